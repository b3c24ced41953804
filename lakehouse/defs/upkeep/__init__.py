"""What surrounds a compaction in Dagster: who asks for it, when, and what is recorded afterwards."""
