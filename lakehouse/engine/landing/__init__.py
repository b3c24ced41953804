"""Discovery of landed files, by listing and by the messages of a queue."""
