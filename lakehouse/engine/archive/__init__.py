"""Moves old partitions into a table's archive, and reads them back."""
