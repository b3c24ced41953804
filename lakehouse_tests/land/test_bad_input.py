"""Rows in = rows loaded + rows quarantined, whatever lands."""

from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse_tests.bad_input.corpus import corpus
from lakehouse_tests.bad_input.draw_files import draw
from lakehouse_tests.bad_input.landed import CSV, JSON, differences


@pytest.mark.parametrize("is_by_spark", [False, True])
def test_every_record_of_the_corpus_and_of_drawn_files_is_a_row_or_in_quarantine(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_by_spark: bool
) -> None:
    random = Random(2026)
    files = [*corpus(), *(draw(random, number) for number in range(150))]
    if is_by_spark:
        monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
        files = [file for file in files if file.table in (JSON, CSV)]
    assert differences(lake, spark, files) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_every_record_of_a_thousand_drawn_files_is_a_row_or_in_quarantine(
    lake: Lake, spark: SparkSession, seed: int
) -> None:
    random = Random(seed)
    assert differences(lake, spark, [draw(random, number) for number in range(1_000)]) == []
