"""Tables that other programs write: the file that lists them, and the report before adoption."""
