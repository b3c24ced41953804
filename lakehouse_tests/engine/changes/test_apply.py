"""Tables that change data is written to, against a dictionary."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.change_streams import differences, draw_stream, load_with_kills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOSEN = [(1, "dms", "merge"), (2, "dms", "history"), (3, "debezium", "merge"), (4, "debezium", "history"), (5, "unwrapped", "soft")]


@pytest.mark.parametrize(("seed", "source", "write"), CHOSEN)
def test_a_stream_cut_anywhere_in_any_order_and_told_twice_is_a_dictionary(
    lake: Lake, spark: "SparkSession", seed: int, source: str, write: str
) -> None:
    stream = draw_stream(seed, source, write)
    stream.land(lake)
    outcome = write_table(lake, spark, stream.table)
    assert (differences(stream, lake), outcome.rows_quarantined, outcome.set_aside) == ([], 0, ())


def test_a_load_that_dies_at_its_steps_and_begins_again_ends_the_same(lake: Lake, spark: "SparkSession") -> None:
    stream = draw_stream(6, "debezium", "merge")
    stream.land(lake)
    assert load_with_kills(lake, spark, stream, Random(1)) > 1  # nothing secret
    assert differences(stream, lake) == []
