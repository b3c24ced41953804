"""Shows. Dagster only wires: one factory per noun."""
