"""Three hundred random change streams, of each source, with rows removed and marked, half of them with kills between."""

from itertools import product
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse_tests.change_streams import (
    SOURCES,
    WRITES,
    differences,
    draw_stream,
    load_with_kills,
)

pytestmark = pytest.mark.spark

KINDS = tuple(product(SOURCES, WRITES))


@pytest.mark.parametrize("number", range(300))
def test_a_random_stream_is_a_dictionary(
    lake: Lake, spark: SparkSession, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = draw_stream(number, *KINDS[number % len(KINDS)])
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", stream.batch_files)
    stream.land(lake)
    if number % 2:
        load_with_kills(lake, spark, stream, Random(number))  # nothing secret
    else:
        write_table(lake, spark, stream.table)
    assert differences(stream, lake) == []
