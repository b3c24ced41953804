"""Hundreds of random histories with vacuums by every mode: every version within the retention reads as it was written, to the row.

`HISTORIES=20 FIRST=300 python -m pytest lakehouse_tests/long/test_vacuum_histories.py` runs others, or fewer.
"""

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.histories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES, FIRST = int(os.environ.get("HISTORIES", "300")), int(os.environ.get("FIRST", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_no_version_within_the_retention_loses_a_row(lake: Lake, spark: "SparkSession", seed: int) -> None:
    Story(lake, spark, seed).run(operations=7, vacuums=2)
    shutil.rmtree(lake.settings.root)
