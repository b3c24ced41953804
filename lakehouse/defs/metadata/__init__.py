"""Metadata on Dagster's pages: of a table, a run's outcome, and an inventory."""
