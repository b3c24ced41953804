"""One command of the terminal a file: what it asks for, what it shows, and its JSON."""
