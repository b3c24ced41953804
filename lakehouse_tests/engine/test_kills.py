"""Clients that are killed in the middle of a statement, for real."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.core.settings import Settings
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.write import write_table
from lakehouse_tests.engine.clients import slow_copies
from lakehouse_tests.engine.example import events, rows_of, version_of

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

type_of_client = Callable[..., "subprocess.Popen[str]"]

PROGRAM = "import sys; from lakehouse_tests.engine import clients; getattr(clients, sys.argv[1])(*map(int, sys.argv[2:]))"
SECONDS = 6


def test_a_statement_whose_client_was_killed_is_ended_by_the_successor_and_never_commits(
    lake: Lake, spark: "SparkSession", new_client: type_of_client
) -> None:
    spark.range(0, 4).write.format("delta").option("delta.enableChangeDataFeed", "true").save(lake.settings.table_uri(events.key))
    client = new_client(PROGRAM, lake.settings, "write_slowly", str(SECONDS * 1000))
    _wait_until(lambda: _data_files(lake.settings, "silver/copies"))
    client.kill()
    client.wait()
    killed_at = time.monotonic()
    record = Journal(lake.store).session("silver/copies")
    assert record is not None
    assert version_of(lake, "silver/copies") is None
    assert write_table(lake, spark, slow_copies(0)).rows_written == 4
    # The killed statement would have committed by itself when its wait was over: only time tells that it did not.
    time.sleep(max(0.0, SECONDS + 2 - (time.monotonic() - killed_at)))
    assert version_of(lake, "silver/copies") == 0
    assert rows_of(spark, lake, "silver/copies", "id") == [(0,), (1,), (2,), (3,)]
    assert Journal(lake.store).session("silver/copies") is None


def _data_files(settings: Settings, key: str) -> set[str]:
    return {str(path) for path in Path(settings.root, key).rglob("*.parquet") if "_delta_log" not in path.parts}


def _wait_until(holds: Callable[[], object], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
