"""Finds, inspects and adopts tables that others write, read-only and without Spark."""
