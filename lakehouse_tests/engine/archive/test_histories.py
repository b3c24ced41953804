"""A few random histories: no row of a table and its archive is lost or doubled. `make bench` plays three hundred."""

from typing import TYPE_CHECKING

import pytest

from lakehouse.engine.archive import restore, run
from lakehouse.engine.lake import Lake
from lakehouse.engine.ttl import run as ttl_run
from lakehouse_tests.engine.archive.histories import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", [1])
def test_no_row_is_lost_or_doubled(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for module in (restore, run, ttl_run):
        monkeypatch.setattr(module, "now_ms", module.now_ms)  # put back afterwards
    History(lake, spark, seed).check()
