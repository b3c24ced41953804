"""Does. Spark, Delta, S3 and disk: takes a plan, returns an outcome; knows no Dagster."""
