"""Finds, inspects and adopts tables that other programs write, read-only and without Spark."""
