"""Which landed files make a batch, which rows of an input make an increment, and what came of it."""
