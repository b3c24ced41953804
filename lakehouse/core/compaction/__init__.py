"""The plan of a compaction, exact: which files it merges into which, and why, or why nothing."""
