"""A retry of quarantined lines that is killed before they left the quarantine lands them once."""

from typing import TYPE_CHECKING

from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from lakehouse_tests.engine.ingest.quarantine.test_retry import (
    _loaded,
    of_refused,
    refused,
    retry_killed_before_the_lines_left,
)

__all__ = ["of_refused", "refused"]  # fixtures


def test_a_retry_killed_before_the_lines_left_the_quarantine_lands_them_once(
    refused: Lake, spark: "SparkSession"
) -> None:
    """`lakehouse_tests/long` has other ways to go on."""
    retry_killed_before_the_lines_left(refused, spark, _loaded)
