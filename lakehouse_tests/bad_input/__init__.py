"""Input as it should not be: files made by hand and drawn from a grammar, each with what a load has to make of it."""
