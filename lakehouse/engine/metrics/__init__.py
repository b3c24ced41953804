"""Reads the metrics of a lake, and serves them to Prometheus."""
