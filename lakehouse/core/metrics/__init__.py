"""Computes the metrics of a lake, and decides which alerts fire."""
