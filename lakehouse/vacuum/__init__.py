"""Vacuum: deletes files that no version needs, fed by the storage inventory."""
