"""Tables that other programs write: their file, and what is known before adoption."""
