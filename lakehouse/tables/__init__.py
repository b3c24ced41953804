"""The declarations of your tables, and nothing else."""
