"""Reads prices, upkeep operations and stored bytes, and writes the cost tables."""
