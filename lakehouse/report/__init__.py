"""Draws: values in, pictures out."""
