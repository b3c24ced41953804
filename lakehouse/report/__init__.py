"""Draws charts: values in, pictures out."""
