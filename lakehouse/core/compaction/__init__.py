"""The exact plan of a compaction: which files it merges, and why. Or why there is nothing to do."""
