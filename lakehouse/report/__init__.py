"""Renders charts and the morning page (the HTML report of `lakehouse report`) from values."""
