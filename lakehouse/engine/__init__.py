"""Carries out plans with Spark, Delta, S3 and disks, and returns outcomes. Imports no Dagster."""
