"""The metrics of a lake, for Prometheus."""
