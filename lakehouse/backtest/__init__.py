"""What another compaction policy would have done."""
