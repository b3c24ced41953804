"""Simulates a table's log under another policy."""
