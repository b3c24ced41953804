"""What Dagster's page shows of a table, a compaction, a vacuum and an inventory: the one place that knows the keys."""
