"""Which tables are compacted now and in which order, and why each of the others is not."""
