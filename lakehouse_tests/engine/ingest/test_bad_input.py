"""Rows in = rows loaded + rows quarantined, whatever lands."""

from random import Random
from typing import TYPE_CHECKING

from lakehouse.engine.lake import Lake
from lakehouse_tests.bad_input.corpus import corpus
from lakehouse_tests.bad_input.draw_files import draw
from lakehouse_tests.bad_input.landed import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_record_of_the_corpus_and_of_drawn_files_is_a_row_or_in_quarantine(
    lake: Lake, spark: "SparkSession"
) -> None:
    random = Random(2026)
    files = [*corpus(), *(draw(random, number) for number in range(150))]
    assert differences(lake, spark, files) == []
