"""Plans compactions exactly, and decides which tables are compacted now."""
