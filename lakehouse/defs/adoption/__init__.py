"""Tables that others write, in Dagster: observed, never made."""
