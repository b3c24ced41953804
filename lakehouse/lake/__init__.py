"""One lake: its store, its tables, its state and leases, and how commits to it are made."""
