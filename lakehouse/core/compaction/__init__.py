"""What a compaction of a table will do, exactly: which files it merges into which, and why, or why nothing."""
