"""Runs compaction plans, verifies that no row changed, and measures the gain for readers."""
