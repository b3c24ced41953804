"""How landed files are found: by listing, and by the messages of a queue."""
