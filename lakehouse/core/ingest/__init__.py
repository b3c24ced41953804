"""Decides which landed files make a batch, and which rows of an input make an increment."""
