"""Decides which partitions are archived, expire or come back, and which rows have expired. Pure."""
