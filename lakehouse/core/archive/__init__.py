"""Decides which partitions leave a table, and what its archive holds."""
