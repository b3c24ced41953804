"""A server that is killed in the middle of statements, for real."""

import os
import signal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakehouse.base.errors import Transient
from lakehouse.compact.assess import recent_compactions
from lakehouse.compact.run import compact
from lakehouse.lake.lake import open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse_tests.conftest import own_settings, wait_until
from lakehouse_tests.support.clients import Thrown, new_session, slow_copies, small_events
from lakehouse_tests.support.example_lake import events, version_of
from lakehouse_tests.support.vacuums import data_files


def test_a_server_killed_in_the_middle_of_a_write_and_of_a_compaction_comes_back_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    settings, told = own_settings(tmp_path / "home"), list[str]()
    lake = open_lake(settings)
    with server.supervised(settings, told.append):
        first, second = connect(settings), new_session(settings)
        for _ in range(2):
            new = pa.table({"id": range(8), "part": range(8)})
            write_deltalake(
                settings.table_uri(events.key), new, mode="append", partition_by=["part"]
            )
        state = server.status(settings)
        token = server.read_token(settings)
        before = data_files(lake, events.key)
        writer = Thrown(lambda: write_table(lake, first, slow_copies(600_000)))
        wait_until("a part of the rows is written", lambda: data_files(lake, "silver/copies"))
        compactor = Thrown(lambda: compact(lake, second, small_events()))
        wait_until("a bin is merged", lambda: data_files(lake, events.key) - before)
        assert state.pid is not None
        os.kill(state.pid, signal.SIGKILL)
        for statement in (writer, compactor):
            statement.join()
            assert isinstance(statement.error, Transient), statement.error
        wait_until("the server is back", lambda: server.status(settings).is_running)
        wait_until("death and return are told", lambda: len(told) == 2)
        assert server.status(settings).pid != state.pid and server.read_token(settings) == token
        assert (version_of(lake, "silver/copies"), version_of(lake, events.key)) == (None, 1)
        [noted] = recent_compactions(lake, events.key)
        assert noted.result == "failed" and noted.wasted_bytes > 0

        third = connect(settings)
        outcome = compact(lake, third, small_events())
        assert (outcome.entry.compaction.files_removed, outcome.entry.compaction.files_added) == (
            16,
            8,
        )
        assert write_table(lake, third, slow_copies(0)).rows_written == 16
        copies = DeltaTable(settings.table_uri("silver/copies")).to_pyarrow_table()
        assert sorted(copies["id"].to_pylist()) == sorted([*range(8)] * 2)
        # No statement was sent a second time to the server that came back.
        assert version_of(lake, "silver/copies") == 0
        third.stop()
