"""Tables that other code writes, as Dagster assets that are observed but never materialized."""
