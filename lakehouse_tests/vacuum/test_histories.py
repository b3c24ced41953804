"""A few random histories with vacuums: every version within the retention reads as it was written; `make bench` runs hundreds."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse_tests.support.histories import FileHistory


@pytest.mark.long
@pytest.mark.parametrize("seed", [2])
def test_no_version_within_the_retention_loses_a_row(
    lake: Lake, spark: SparkSession, seed: int
) -> None:
    FileHistory(lake, spark, seed).run(operations=6, vacuums=1)
