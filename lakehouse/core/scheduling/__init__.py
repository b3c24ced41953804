"""The tables that are compacted now, in their order, and why each of the others is not."""
