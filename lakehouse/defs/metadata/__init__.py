"""Metadata on Dagster's pages: of tables, of a run's outcome, and of an inventory."""
