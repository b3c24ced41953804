"""The files of a table to delete, the mode and its price, and the reasons."""
