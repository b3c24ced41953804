"""What each table costs: `costs/chargeback`."""
