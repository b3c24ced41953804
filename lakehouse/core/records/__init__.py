"""Dagster's own records: which of them may go."""
