"""Somebody's Dagster project, whose Delta tables are written by deltalake."""
