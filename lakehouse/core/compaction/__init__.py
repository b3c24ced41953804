"""Plans a compaction exactly: which files it merges and why, or why there is nothing to do."""
