"""Renders charts and the morning page: values in, bytes out."""
