"""Decides which rows of a table have expired."""
