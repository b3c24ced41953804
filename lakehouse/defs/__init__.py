"""Presents the lakehouse to Dagster: one factory per noun, and no decisions."""
