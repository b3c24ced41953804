"""Tables that others write, in Dagster."""
