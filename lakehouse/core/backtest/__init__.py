"""A table's log simulated under another policy: what would have run, when, and what it would have cost and given."""
