"""Reads landed change data and applies it to tables, in whatever order it arrives."""
