"""Clients that are killed in the middle of a statement, for real."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

from lakehouse.core.errors import Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import prepare_session
from lakehouse.engine.spark.open_session import prepare
from lakehouse.engine.spark.prepare_session import connection_url, interrupt_session, session_id
from lakehouse.engine.table_lock import hold, record_session, session_of
from lakehouse_tests.conftest import type_of_client, wait_until
from lakehouse_tests.engine.clients import Thrown, new_session, slow_copies, stuck
from lakehouse_tests.engine.example import rows_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "import sys; from lakehouse_tests.engine import clients; getattr(clients, sys.argv[1])(*map(int, sys.argv[2:]))"


def test_a_statement_whose_client_was_killed_is_ended_by_whoever_takes_the_table_next(
    lake: Lake, spark: "SparkSession", new_client: type_of_client
) -> None:
    """A plain append to a table that is there: nothing else would ever stop it, no conflict of Delta's and no transaction id."""
    spark.range(4).write.format("delta").save(lake.settings.table_uri("silver/copies"))
    before = _data_files(lake.settings, "silver/copies")
    client = new_client(PROGRAM, lake.settings, "append_slowly", "300000")
    wait_until(
        "the append has written a file",
        lambda: _data_files(lake.settings, "silver/copies") - before,
    )
    client.kill()
    client.wait()
    record = session_of(lake.store, "silver/copies")
    assert record is not None and _is_at_work(lake.settings, record.session_id)
    try:
        with hold(lake, spark, "silver/copies", owner="successor"):
            assert not _is_at_work(lake.settings, record.session_id)
        assert version_of(lake, "silver/copies") == 0
        assert rows_of(spark, lake, "silver/copies", "id") == [(0,), (1,), (2,), (3,)]
        assert session_of(lake.store, "silver/copies") is None
    finally:
        interrupt_session(
            lake.settings, record.session_id
        )  # where the test fails, so that nothing goes on after it


def test_who_fails_beside_a_statement_of_its_own_stays_on_record(
    lake: Lake, spark: "SparkSession", tmp_path: Path
) -> None:
    """Nobody knows whether it has ended, so the next one waits for it; the same where the session does not answer any more."""
    session, out = new_session(lake.settings), tmp_path / "out"
    copies = slow_copies(300_000)
    assert copies.transform is not None
    slow = copies.transform(session.range(4)).write

    def fail_beside(pool: ThreadPoolExecutor) -> None:
        with hold(lake, session, "bronze/t", owner="write of bronze/t"):
            started.append(pool.submit(slow.parquet, str(out)))
            wait_until("the statement has written a file", lambda: [*out.rglob("*.parquet")])
            raise ZeroDivisionError

    started: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        try:
            with pytest.raises(ZeroDivisionError):
                fail_beside(pool)
            assert session_of(lake.store, "bronze/t") is not None
        finally:
            interrupt_session(lake.settings, session_id(session))
    assert started[0].exception() is not None
    session.stop()
    with (
        pytest.raises(SparkConnectGrpcException),
        hold(lake, spark, "bronze/t", owner="write of bronze/t"),
    ):
        raise SparkConnectGrpcException(
            "the session is gone", errorClass="INVALID_HANDLE.SESSION_CLOSED"
        )
    assert session_of(lake.store, "bronze/t") is not None


def test_a_statement_in_its_commit_is_waited_for_by_all_who_come_while_it_goes_on(
    lake: Lake, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt names a statement once, and whoever interrupted it may have given up waiting."""
    with stuck(lake.settings, tmp_path / "table") as session:
        record_session(lake.store, "bronze/t", session_id(session), "write of bronze/t")
        monkeypatch.setattr(prepare_session, "_SETTLE_SECONDS", 0)
        for owner in ("first", "second"):
            with (
                pytest.raises(Transient, match="has not ended after 0 s"),
                hold(lake, spark, "bronze/t", owner=owner),
            ):
                pass
        monkeypatch.undo()
        ends = Thrown(lambda: _take(lake, spark))
    ends.join()
    assert (ends.error, session_of(lake.store, "bronze/t")) == (None, None)


def _take(lake: Lake, spark: "SparkSession") -> None:
    with hold(lake, spark, "bronze/t", owner="third"):
        pass


def _is_at_work(settings: Settings, session: str) -> bool:
    """Whether the server still has an operation of that session that has not ended, also one that is being interrupted."""
    prepare(settings)
    client = SparkConnectClient(connection=connection_url(settings, session))
    try:
        status = GetStatusResponse.OperationStatus
        ended = (
            status.OPERATION_STATE_SUCCEEDED,
            status.OPERATION_STATE_FAILED,
            status.OPERATION_STATE_CANCELLED,
        )
        return any(
            each.state not in ended for each in client._get_operation_statuses().operation_statuses
        )
    finally:
        client.close()


def _data_files(settings: Settings, key: str) -> set[str]:
    return {
        str(path)
        for path in Path(settings.root, key).rglob("*.parquet")
        if "_delta_log" not in path.parts
    }
