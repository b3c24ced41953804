"""Compares the content of storage, by an inventory, with the tables' logs."""
