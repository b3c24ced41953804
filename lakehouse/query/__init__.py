"""Reading tables by SQL: `lakehouse sql`, and the names of tables in the Spark server."""
