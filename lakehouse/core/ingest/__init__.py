"""The landed files that make a batch, the rows of an input that make an increment, and what came of it."""
