"""Ten thousand drawn files, and not a record unaccounted for."""

from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse_tests.bad_input.draw_files import draw
from lakehouse_tests.bad_input.landed import differences


@pytest.mark.parametrize("seed", range(10))
def test_every_record_of_a_thousand_drawn_files_is_a_row_or_in_quarantine(
    lake: Lake, spark: SparkSession, seed: int
) -> None:
    random = Random(seed)
    assert differences(lake, spark, [draw(random, number) for number in range(1_000)]) == []
