"""The metadata on Dagster's page of a table, a compaction, a vacuum and an inventory: the one place that knows the keys."""
