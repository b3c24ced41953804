"""Decides which partitions move from a table to its archive, and what the archive holds."""
