"""Runs a compaction plan, verifies its rows, and measures what it gained."""
