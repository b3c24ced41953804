"""Landed files of Avro; `make test` has the same with Parquet."""

from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse_tests.land.test_formats import as_avro
from lakehouse_tests.land.test_formats import (
    test_rows_in_are_rows_loaded_and_rows_quarantined_and_a_damaged_file_stands_alone as check_rows,
)


def test_rows_in_are_rows_loaded_and_rows_quarantined_and_a_damaged_file_stands_alone(
    lake: Lake, spark: SparkSession
) -> None:
    check_rows(lake, spark, ".avro", as_avro, {"format": "avro"})
