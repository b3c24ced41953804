"""Reads prices, the operations of upkeep and stored bytes, and keeps them as tables of costs."""
