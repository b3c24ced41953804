"""Vacuums: planned files are confirmed by Delta, checked again, and deleted in batches."""
