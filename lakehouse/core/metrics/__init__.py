"""Decides what the metrics of a lake say, and which alerts fire."""
