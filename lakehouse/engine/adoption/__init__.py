"""Tables that others write, looked for and looked at without Spark and without being touched."""
