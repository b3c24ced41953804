"""Two who write one table at once lose nothing; two who want to be its only writer take turns."""

import os
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow.parquet
import pytest

from lakehouse.core.errors import Refused, Transient
from lakehouse.engine import table_lock
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark.prepare_session import session_id
from lakehouse.engine.table_lock import hold, record_session, session_of
from lakehouse.runtime.processes import identify
from lakehouse.runtime.server_state import folder, remember
from lakehouse_tests.conftest import own_settings, type_of_client
from lakehouse_tests.engine.example import facts_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_SESSION = "0d5b6f2e-52a5-4d0e-9a52-6ab3a1b0c001"
APPEND = "import sys; from lakehouse_tests.engine.clients import append_rows; append_rows('bronze/race', sys.argv[1], int(sys.argv[2]))"


def race(lake: Lake, spark: "SparkSession", new_client: type_of_client, *, appends: int) -> None:
    """Two clients append so many rows each at the same time, a commit for each row, and all are there."""
    # Two that make one table at once are a conflict for the second, by Delta's rules; appends to a table are none.
    spark.createDataFrame([], "name STRING, number INT").write.format("delta").save(
        lake.settings.table_uri("bronze/race")
    )
    both = [new_client(APPEND, lake.settings, name, str(appends)) for name in ("left", "right")]
    assert [client.stdout.readline() for client in both if client.stdout] == ["ready\n"] * 2
    for client in both:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    assert [client.wait() for client in both] == [0, 0]
    wanted = sorted(
        ((name, number) for name in ("left", "right") for number in range(appends)), key=str
    )
    assert rows_of(spark, lake, "bronze/race", "name", "number") == wanted
    writers = writers_by_version(lake, "bronze/race")
    assert len(writers) == 2 * appends
    assert sum(earlier != later for earlier, later in pairwise(writers)) > 1, (
        "one client wrote after the other, not at the same time"
    )


def writers_by_version(lake: Lake, key: str) -> list[str]:
    """Which client made each commit, told by the name in the file that it added."""
    paths = [path for commit in facts_of(lake, key).history.commits for path in commit.added_paths]
    return [
        pyarrow.parquet.read_table(BytesIO(lake.store.read(f"{key}/{path}")))["name"][0].as_py()
        for path in paths
    ]


def test_two_clients_of_ten_appends_each_lose_no_row(
    lake: Lake, spark: "SparkSession", new_client: type_of_client
) -> None:
    race(lake, spark, new_client, appends=10)


def test_a_table_that_is_held_makes_others_wait_and_names_its_holder(
    lake: Lake, spark: "SparkSession"
) -> None:
    held = rf"compaction of bronze/t: bronze/t has been locked for more than 0 s by process {os.getpid()} \(write of bronze/t\)"
    with hold(lake, spark, "bronze/t", owner="write of bronze/t"):
        with (
            pytest.raises(Transient, match=held),
            hold(lake, spark, "bronze/t", owner="compaction of bronze/t", wait_seconds=0),
        ):
            pass
        with hold(lake, spark, "bronze/other", owner="write of bronze/other", wait_seconds=0):
            pass
    with hold(lake, spark, "bronze/t", owner="compaction of bronze/t", wait_seconds=0):
        pass


def test_the_session_is_on_record_for_as_long_as_the_table_is_held(
    lake: Lake, spark: "SparkSession"
) -> None:
    with hold(lake, spark, "bronze/t", owner="write of bronze/t"):
        record = session_of(lake.store, "bronze/t")
        assert record is not None
        assert (record.session_id, record.owner) == (session_id(spark), "write of bronze/t")
    assert session_of(lake.store, "bronze/t") is None
    with pytest.raises(ZeroDivisionError), hold(lake, spark, "bronze/t", owner="write of bronze/t"):
        raise ZeroDivisionError
    assert session_of(lake.store, "bronze/t") is None


def test_who_gives_a_table_back_leaves_the_record_of_another_that_took_it_meanwhile(
    lake: Lake, spark: "SparkSession"
) -> None:
    """So it is after a person gave the lake to another driver: that one has locks of its own."""
    with hold(lake, spark, "bronze/t", owner="write of bronze/t"):
        record_session(lake.store, "bronze/t", CONNECT_SESSION, "another")
    assert (record := session_of(lake.store, "bronze/t")) is not None and record.owner == "another"


def test_a_driver_in_this_process_is_refused_while_the_server_may_still_write_for_a_dead_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commits are not conditional."""
    monkeypatch.setattr(table_lock, "spark_commits_conditionally", lambda _: False)
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_SPARK="local[2]"))
    me, no_session = identify(os.getpid()), cast("SparkSession", None)
    record_session(lake.store, "bronze/t", CONNECT_SESSION, "dead")
    folder(lake.settings).mkdir()
    assert me is not None
    # Its port does not answer: a server that is busy may not, either.
    remember(lake.settings, me, None, {})
    way_out = rf"^write of bronze/t: .*process {me.pid}.*LAKEHOUSE_SPARK=local\[2\] cannot .*LAKEHOUSE_SPARK=server.*lakehouse server stop"
    with (
        pytest.raises(Refused, match=way_out),
        hold(lake, no_session, "bronze/t", owner="write of bronze/t"),
    ):
        pass
    assert (record := session_of(lake.store, "bronze/t")) is not None and record.owner == "dead"


@pytest.mark.parametrize("has_server", [True, False])
def test_the_record_of_a_driver_that_is_gone_holds_nobody_up(
    lake: Lake, spark: "SparkSession", tmp_path: Path, *, has_server: bool
) -> None:
    """A driver in a process ended with it, whoever comes next; a server that was stopped ended its sessions."""
    if not has_server:
        lake = open_lake(own_settings(tmp_path / "home", LAKEHOUSE_SPARK="local[2]"))
    record_session(
        lake.store, "bronze/t", "local-1700000000000" if has_server else CONNECT_SESSION, "dead"
    )
    with hold(lake, spark, "bronze/t", owner="write of bronze/t"):
        assert (
            record := session_of(lake.store, "bronze/t")
        ) is not None and record.owner == "write of bronze/t"
    assert session_of(lake.store, "bronze/t") is None
