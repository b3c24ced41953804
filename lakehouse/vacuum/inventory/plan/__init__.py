"""Compares an inventory of storage with the tables' logs."""
