"""Tables that others write."""
