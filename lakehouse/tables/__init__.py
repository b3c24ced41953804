"""Your room: one declaration per table, and nothing else."""
