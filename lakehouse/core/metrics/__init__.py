"""Computes the metrics of a lake."""
