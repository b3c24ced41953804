"""A compaction beside sessions that hold no guard: who loses, what it costs, and that the comparison of rows is not disturbed."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.compact import run
from lakehouse.compact.assess import recent_compactions
from lakehouse.compact.plan.history import CompactionOutcome, Comparison
from lakehouse.compact.run import compact
from lakehouse.declare.policies import Compaction
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.spark.temporary_confs import session_confs
from lakehouse_tests.support.clients import new_session
from lakehouse_tests.support.example_lake import events, rows_of

PARTITIONS = 12


def test_a_contested_partition_is_left_out_of_the_next_try(lake: Lake, spark: SparkSession) -> None:
    table = _two_files_per_partition(lake, spark)
    planned = run.plan(lake, events)
    outcome = _compact_while(lake, spark, f"DELETE FROM {table} WHERE part = 3 AND id % 10 = 3")
    assert planned is not None
    assert (outcome.conflicts, outcome.wasted_bytes) == (1, planned.bytes_removed)
    noted, success = recent_compactions(lake, events.key)
    assert success.result == "succeeded"
    assert (noted.result, noted.wasted_bytes) == ("conflict", outcome.wasted_bytes)
    assert noted.seconds == outcome.wasted_seconds
    assert noted.seconds and noted.seconds > 0
    assert (outcome.entry.compaction.files_removed, outcome.entry.compaction.files_added) == (
        2 * PARTITIONS - 2,
        PARTITIONS - 1,
    )
    without = "; without partitions in which other writers removed files"
    assert outcome.plan.sentence.endswith(without)
    left = [id_ for id_ in range(10 * PARTITIONS) if id_ % PARTITIONS != 3 or id_ % 10 != 3]
    assert rows_of(spark, lake, events.key, "id") == sorted(((id_,) for id_ in left), key=str)
    rest = compact(lake, spark, events)
    assert (rest.conflicts, rest.entry.compaction.files_removed, rest.wasted_bytes) == (0, 2, 0)


def test_a_compaction_is_one_commit_whatever_its_session_sets(
    lake: Lake, spark: SparkSession
) -> None:
    _two_files_per_partition(lake, spark)
    with session_confs(spark, {"spark.databricks.delta.optimize.batchSize": "1b"}):
        outcome = compact(lake, spark, events)
    assert outcome.version_after == outcome.plan.version + 1
    assert outcome.entry.compaction.files_removed == 2 * PARTITIONS


def test_rows_are_compared_as_they_were_at_the_commit_whoever_writes_after_it(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _two_files_per_partition(lake, spark)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    other, real = new_session(lake.settings), run.verify

    def after_other_writes(
        lake: Lake, spark: SparkSession, before: Snapshot, _after: object, commit: Commit
    ) -> Comparison:
        other.sql(f"INSERT INTO {table} VALUES (1000, 1)")
        other.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
        now = lake.facts(events.key)
        assert now is not None
        return real(lake, spark, before, now.snapshot, commit)

    monkeypatch.setattr(run, "verify", after_other_writes)
    every_row = replace(events, compaction=Compaction(verify="content"))
    outcome = compact(lake, spark, every_row)
    other.stop()
    assert (outcome.rows_verified, outcome.conflicts) == (10 * PARTITIONS, 0)
    assert len(rows_of(spark, lake, events.key, "id")) == 10 * PARTITIONS - PARTITIONS + 1


def _compact_while(lake: Lake, spark: SparkSession, statement: str) -> CompactionOutcome:
    """A compaction, beside which another session runs a statement as soon as it has written its first file."""
    other = new_session(lake.settings)
    other.sql("SELECT 1").collect()
    folder = Path(lake.settings.table_uri(events.key))
    before, done = _files(folder), threading.Event()

    def write() -> None:
        while not done.is_set() and _files(folder) == before:
            time.sleep(0.01)
        other.sql(statement)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with session_confs(spark, {"spark.databricks.delta.optimize.maxThreads": "1"}):
            return compact(lake, spark, events)
    finally:
        done.set()
        thread.join()
        other.stop()


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.parquet"))


def _two_files_per_partition(lake: Lake, spark: SparkSession) -> str:
    """The table's name in SQL; ten rows in each partition, five in a file."""
    uri = lake.settings.table_uri(events.key)
    columns = ("id", f"INT(id % {PARTITIONS}) AS part")
    for start in (0, 5 * PARTITIONS):
        frame = spark.range(start, start + 5 * PARTITIONS).selectExpr(*columns)
        frame.coalesce(1).write.format("delta").partitionBy("part").mode("append").save(uri)
    return statements.path_table(uri)
