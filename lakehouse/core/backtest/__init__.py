"""A table's log simulated under another policy: each compaction that would have run, with its price and its gain."""
