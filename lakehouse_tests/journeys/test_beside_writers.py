"""Foreign sessions write while the lake compacts: no row is lost, every compaction is verified, and what conflicts cost is known."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakehouse.engine.lake import Lake
from lakehouse_tests.journeys.beside import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 24  # `python -m benchmarks.beside_writers` plays 200


def test_rounds_beside_foreign_sessions_lose_no_row(
    lake: Lake, spark: "SparkSession", record_property: Callable[[str, object], None]
) -> None:
    report = play(lake, rounds=ROUNDS, seed=4)
    record_property("report", str(report))
    assert (report.statements, report.rows_differing, report.unverified) == (ROUNDS, 0, 0)
    assert report.compactions > 0
    assert report.rows_verified > 0
    assert (report.wasted_bytes > 0) == (report.conflicts > 0)
