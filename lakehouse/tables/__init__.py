"""Your room: the declarations of the lake's tables, and nothing else."""
