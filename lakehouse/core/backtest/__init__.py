"""A table's log replayed under another policy: what would have run, when, and what it would have cost and given."""
