"""Decides which landed files make a batch, and which of their records become rows."""
