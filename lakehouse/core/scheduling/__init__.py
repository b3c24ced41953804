"""Decides which tables are compacted now, in which order, and why the others are not."""
