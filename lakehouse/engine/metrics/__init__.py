"""Reads the facts behind the metrics, serves them to Prometheus, and sends alerts."""
