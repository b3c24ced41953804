"""Plans a vacuum: the files to delete, the mode and its price, and the reasons."""
