"""The compaction study: 200 merges and queries under each way to keep files few."""
