"""A load, a derived table, a compaction and a vacuum on a cluster; in the middle of each, executors, a worker or the Connect server are killed.

No row is lost or doubled, no live file is deleted, and the next run finishes the work.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Event

import pytest
from pyspark.sql import SparkSession

from lakehouse import Compaction
from lakehouse.base.errors import Transient
from lakehouse.base.reasons import Reason
from lakehouse.base.settings import Settings
from lakehouse.compact.run import compact
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.server.conf import TOKEN_VARIABLE
from lakehouse.spark.session import connect
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.cluster import Cluster, ConnectServer, deployed_conf, standalone
from lakehouse_tests.conftest import own_settings, wait_until
from lakehouse_tests.s3_servers import BUCKET, s3_server
from lakehouse_tests.support.clients import Thrown, slow_copies
from lakehouse_tests.support.example_lake import event, events, facts_of, land, rows_of
from lakehouse_tests.support.vacuums import create, data_files, table_of

VICTIMS = ("executors", "worker", "server")
PARTS = 8
SMALL = replace(table_of(), compaction=Compaction(min_small_files=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCluster:
    """A lake whose Connect server runs on a cluster."""

    cluster: Cluster
    server: ConnectServer
    settings: Settings
    lake: Lake

    def kill(self, victim: str) -> None:
        """Kills the victim; who runs a cluster starts a worker or a Connect server again."""
        match victim:
            case "executors":
                self.cluster.kill_executors()
            case "worker":
                self.cluster.replace_worker()
            case _:
                self.server.kill()

    def interrupt(
        self,
        victim: str,
        work: Callable[[SparkSession], object],
        *,
        once: Callable[[], object],
        again: Callable[[SparkSession], object] | None = None,
    ) -> None:
        """Kills the victim once a condition holds. Without the server, the work is done `again`."""
        spark = connect(self.settings)
        run = Thrown(lambda: work(spark))
        wait_until("the work is on its way", lambda: once() or not run.is_alive())
        self.kill(victim)
        run.join()
        if victim != "server":
            assert run.error is None, run.error
            return
        assert run.error is None or isinstance(run.error, Transient), run.error
        self.server.start()
        (again or work)(connect(self.settings))

    def writes(self, key: str) -> Callable[[], object]:
        """Whether a table has more data files than now."""
        before = self.parquet_files(key)
        return lambda: self.parquet_files(key) - before

    def parquet_files(self, key: str) -> set[str]:
        """The data files in a table's folder, live or not."""
        return {name for name in data_files(self.lake, key) if name.endswith(".parquet")}

    def ids(self, key: str) -> list[int]:
        """The ids in a table, each as often as it is there."""
        spark = connect(self.settings)
        return sorted(row[0] for row in rows_of(spark, self.lake, key, "id"))

    def live_files(self, key: str) -> set[str]:
        """The files of a table's newest version, all of which must be there."""
        live = {file.path for file in facts_of(self.lake, key).snapshot.files}
        assert live <= self.parquet_files(key)
        return live


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCluster]:
    """A lake on a cluster of two workers, with an empty table that has deletion vectors."""
    folder = tmp_path_factory.mktemp("killed")
    with ExitStack() as stack:
        told = stack.enter_context(s3_server("moto", folder))
        cluster = stack.enter_context(standalone(folder / "cluster", told))
        server = ConnectServer(cluster=cluster, conf=deployed_conf(told))
        stack.enter_context(server.running())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**told, **server.environment}.items():
            patch.setenv(name, value)
        place = {"LAKEHOUSE_ROOT": f"s3://{BUCKET}/lake"}
        place["LAKEHOUSE_SPARK"] = server.environment["LAKEHOUSE_SPARK"]
        settings = own_settings(folder / "home", **place)
        lake = open_lake(settings)
        spark = connect(settings)
        uri = create(spark, lake)
        vectors = "'delta.enableDeletionVectors' = 'true'"
        spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ({vectors})")
        yield OnCluster(cluster=cluster, server=server, settings=settings, lake=lake)


@pytest.fixture(autouse=True)
def own_token(
    on_cluster: OnCluster, no_token_of_another_test: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of this cluster's server, for the sessions of one test."""
    monkeypatch.setenv(TOKEN_VARIABLE, on_cluster.server.token)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_load_and_a_derived_table_have_each_row_once_after_a_kill(
    on_cluster: OnCluster, victim: str
) -> None:
    number = VICTIMS.index(victim)
    lake = on_cluster.lake
    new = range(100 * number, 100 * number + 16)
    land(lake, f"{victim}.json", [event(id_, 1, victim, day=1 + id_ % PARTS) for id_ in new])
    landed = [id_ for id_ in range(300) if id_ % 100 < 16 and id_ <= new[-1]]

    on_cluster.interrupt(
        victim, lambda spark: write_table(lake, spark, events), once=on_cluster.writes(events.key)
    )
    assert on_cluster.ids(events.key) == landed

    milliseconds = 600_000 if victim == "server" else 1_000
    on_cluster.interrupt(
        victim,
        lambda spark: write_table(lake, spark, slow_copies(milliseconds)),
        once=on_cluster.writes("silver/copies"),
        again=lambda spark: write_table(lake, spark, slow_copies(0)),
    )
    assert on_cluster.ids("silver/copies") == landed
    assert on_cluster.live_files("silver/copies")


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_compaction_and_a_vacuum_finish_after_a_kill_and_keep_every_live_file(
    on_cluster: OnCluster, victim: str
) -> None:
    lake = on_cluster.lake
    spark = connect(on_cluster.settings)
    uri = lake.table_uri(SMALL.key)
    first = 100 * VICTIMS.index(victim)
    earlier = on_cluster.ids(SMALL.key)
    for start in (first, first + 2 * PARTS):
        rows = spark.range(start, start + 2 * PARTS, numPartitions=1)
        rows = rows.selectExpr("id", f"INT(id % {PARTS}) AS part")
        rows.write.format("delta").mode("append").save(uri)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = {first}")
    expected = sorted([*earlier, *range(first + 1, first + 4 * PARTS)])

    on_cluster.interrupt(
        victim, lambda spark: compact(lake, spark, SMALL), once=on_cluster.writes(SMALL.key)
    )
    assert on_cluster.ids(SMALL.key) == expected
    live = on_cluster.live_files(SMALL.key)
    assert len(live) == PARTS

    opened = Event()

    def vacuum_on(spark: SparkSession) -> None:
        def open_spark() -> SparkSession:
            opened.set()
            return spark

        vacuum(LakeFacts(lake, [SMALL]), open_spark, SMALL, mode="FULL")

    on_cluster.interrupt(victim, vacuum_on, once=opened.is_set)
    assert opened.is_set()
    assert on_cluster.live_files(SMALL.key) == live
    assert on_cluster.ids(SMALL.key) == expected
    again = vacuum(LakeFacts(lake, [SMALL]), lambda: connect(on_cluster.settings), SMALL)
    assert again.plan.reason is Reason.NOTHING_PAST
