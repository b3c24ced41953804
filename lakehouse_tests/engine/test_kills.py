"""Clients and servers that are killed in the middle of a statement, for real."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.settings import Settings
from lakehouse.engine import server
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.write import write_table
from lakehouse_tests.conftest import own_settings, wait_until
from lakehouse_tests.engine.clients import slow_copies
from lakehouse_tests.engine.example import events, rows_of, version_of

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

type_of_client = Callable[..., "subprocess.Popen[str]"]

PROGRAM = "import sys; from lakehouse_tests.engine import clients; getattr(clients, sys.argv[1])(*map(int, sys.argv[2:]))"
SECONDS = 6


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake with a server of its own, which a test may kill."""
    settings = own_settings(tmp_path / "home")
    server.start(settings)
    yield open_lake(settings)
    server.stop(settings)


def test_a_statement_whose_client_was_killed_is_ended_by_the_successor_and_never_commits(
    lake: Lake, spark: "SparkSession", new_client: type_of_client
) -> None:
    spark.range(0, 4).write.format("delta").option("delta.enableChangeDataFeed", "true").save(lake.settings.table_uri(events.key))
    client = new_client(PROGRAM, lake.settings, "write_slowly", str(SECONDS * 1000))
    wait_until("a part of the rows is written", lambda: _data_files(lake.settings, "silver/copies"))
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


def test_a_server_killed_in_the_middle_of_a_write_and_of_a_compaction_loses_and_doubles_nothing(
    own_lake: Lake, new_client: type_of_client
) -> None:
    settings = own_lake.settings
    _finish(new_client(PROGRAM, settings, "make_input", "8"))
    before = _data_files(settings, events.key)
    writer = new_client(PROGRAM, settings, "write_slowly", "600000")
    wait_until("a part of the rows is written", lambda: _data_files(settings, "silver/copies"))
    compactor = new_client(PROGRAM, settings, "compact_input")
    wait_until("a bin is merged", lambda: _data_files(settings, events.key) - before)
    _kill_server(settings)
    assert [client.wait() != 0 for client in (writer, compactor)] == [True, True]
    assert (version_of(own_lake, "silver/copies"), version_of(own_lake, events.key)) == (None, 1)
    [noted] = Journal(own_lake.store).tries(events.key)
    assert (noted.result, noted.files_rewritten) == ("failed", 16)

    server.start(settings)
    assert _finish(new_client(PROGRAM, settings, "compact_input")) == "(16, 8, 16)"
    assert _finish(new_client(PROGRAM, settings, "write_and_tell")) == str(sorted([(number,) for number in range(8)] * 2, key=str))


def _kill_server(settings: Settings) -> None:
    pid = server.status(settings).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def _finish(client: "subprocess.Popen[str]") -> str:
    out, _ = client.communicate()
    assert client.returncode == 0
    return out.strip()


def _data_files(settings: Settings, key: str) -> set[str]:
    return {str(path) for path in Path(settings.root, key).rglob("*.parquet") if "_delta_log" not in path.parts}
