"""Compaction: which tables and files, in which order, by which engine, and what it gained."""
