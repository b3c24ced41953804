"""Derived tables follow their inputs: nothing twice, nothing lost, and nothing at all where nothing is new."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize import run as derived_inputs
from lakehouse.materialize.plan import consume_app_id
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse.write import commit_rows as merge_rows
from lakehouse.write.outcome import WriteOutcome
from lakehouse_tests.kills import killed_at
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_lake import (
    add_events,
    copies,
    counts,
    event,
    events,
    facts_of,
    land,
    rows_in,
    session_settings,
    states,
    version_of,
)

FOLLOWERS = (states, copies, counts)


def test_late_repeated_and_out_of_order_events_leave_the_newest_state(
    lake: Lake, spark: SparkSession
) -> None:
    """Events that change nothing touch no file, and nothing downstream."""
    add_events(
        lake,
        event(1, 7, "left"),
        event(1, 5, "planned"),
        event(2, 5, "planned"),
        event(2, 5, "planned"),
    )
    _run(lake, spark, (states, counts))
    late = [
        event(1, 6, "late"),
        event(1, 7, "again"),
        event(2, 9, "left"),
        {"id": 2, "state": "no time"},
        event(3, 5, "planned"),
    ]
    add_events(lake, *late)
    outcome = _run(lake, spark, (states, counts))[states.key]
    assert outcome.rows_written == 2
    assert rows_in(lake, states.key, "id", "state") == [(1, "left"), (2, "left"), (3, "planned")]
    assert rows_in(lake, counts.key, "state", "count") == [("left", 2), ("planned", 1)]

    before = version_of(lake, counts.key)
    add_events(lake, event(1, 7, "left"), event(1, 6, "late"))
    outcomes = _run(lake, spark, (states, counts))
    assert outcomes[states.key].rows_written == 0
    assert not facts_of(lake, states.key).history.data_changed_after(1)
    assert outcomes[counts.key].reason == Reason.INPUTS_UNCHANGED
    assert version_of(lake, counts.key) == before


def test_a_rerun_makes_no_commit_and_no_setting_of_a_run_stays_in_its_session(
    lake: Lake, spark: SparkSession
) -> None:
    tables, before = (events, *FOLLOWERS), session_settings(spark)
    land(lake, "1.json", [event(1, 7, "left")])
    first = _run(lake, spark, tables)
    expected = [Reason.BATCH_READY, *[Reason.INPUT_READ_WHOLE] * 3]
    assert [first[table.key].reason for table in tables] == expected
    versions = _versions(lake, tables)
    again = _run(lake, spark, tables)
    assert _versions(lake, tables) == versions
    expected = [Reason.NOTHING_LANDED, *[Reason.INPUTS_UNCHANGED] * 3]
    assert [again[table.key].reason for table in tables] == expected
    assert session_settings(spark) == before


@pytest.mark.parametrize(
    "moments", [("after",), pytest.param(("before", "after"), marks=pytest.mark.long)]
)
def test_a_run_killed_at_its_commit_leaves_each_row_once(
    lake: Lake, spark: SparkSession, moments: Sequence[str]
) -> None:
    add_events(lake, event(1, 5, "planned"))
    _run(lake, spark, (states, copies))
    for version, when in enumerate(moments, start=1):
        add_events(lake, event(1, 5 + version, when), event(1 + version, 6, "planned"))
        steps = ((merge_rows, "merge_rows", states), (frames, "write_frame", copies))
        for owner, name, table in steps:
            with killed_at(owner, name, when):
                write_table(lake, spark, table)
            killed = version_of(lake, table.key)
            write_table(lake, spark, table)
            assert (version_of(lake, table.key) == killed) == (when == "after")
            read, written = lake.facts(events.key), lake.facts(table.key)
            assert read is not None and written is not None
            consumed = written.snapshot.transactions[consume_app_id(read.snapshot)]
            assert consumed == read.snapshot.version == version
    others = [(1 + version, "planned") for version in range(1, len(moments) + 1)]
    assert rows_in(lake, states.key, "id", "state") == [(1, "after"), *others]
    every = [*((1, state) for state in sorted((*moments, "planned"))), *others]
    assert rows_in(lake, copies.key, "id", "state") == every


def test_an_unreadable_file_of_an_input_is_never_skipped(lake: Lake, spark: SparkSession) -> None:
    for number in (1, 2):
        add_events(lake, event(number, 5, "new"))
    [first, _] = [
        file.name
        for file in lake.store.list(events.key)
        if file.name.endswith(".parquet") and "_delta_log" not in file.name
    ]
    data = lake.store.read(first)
    for damage in ("Missing", "Corrupt"):
        lake.store.delete([first]) if damage == "Missing" else lake.store.put(first, b"no parquet")
        setting = f"spark.sql.files.ignore{damage}Files"
        spark.conf.set(setting, "true")
        try:
            with pytest.raises(Exception, match=r"FAILED_READ_FILE|FILE_NOT_EXIST|CANNOT_READ"):
                write_table(lake, spark, copies)
            assert spark.conf.get(setting) == "false"
        finally:
            spark.conf.unset(setting)
    lake.store.put(first, data)
    write_table(lake, spark, copies)
    assert rows_in(lake, copies.key, "id") == [(1,), (2,)]


def test_an_input_without_a_table_says_what_to_do_first(lake: Lake, spark: SparkSession) -> None:
    message = r"its input bronze/events has no table yet\. Use `lakehouse materialize bronze/events` first"
    with pytest.raises(Refused, match=message):
        write_table(lake, spark, states)


# What Spark says of a file that is gone where a write fails over it, and of another failure.
TRACE = "org.apache.spark.SparkException\n\tat A.b(A.scala:1)\nCaused by: org.apache.spark.SparkException: [{}] while reading file file:{}. It"
GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"
CAUSES = {
    "a change file": (GONE, "t/_change_data/cdc-1.parquet", True),
    "a file that was compacted away": (GONE, "t/d=a%20c/old.parquet", True),
    "a file that the input still has": (GONE, "t/d=a%20b/live.parquet", False),
    "a file of another input": (GONE, "t2/old.parquet", False),
    "storage that failed": ("FAILED_READ_FILE.NO_HINT", "t/_change_data/cdc-1.parquet", False),
}


@pytest.mark.parametrize(("condition", "path", "are_gone"), CAUSES.values(), ids=CAUSES)
def test_changes_are_gone_if_the_cause_says_so(condition: str, path: str, are_gone: bool) -> None:
    log = LogBuilder().create(partition_by=["d"]).append([("d=a%20b/live.parquet", 1)])
    trace = TRACE.format(condition, f"/lake/bronze/{path}")
    error = SparkException(
        "task failed", errorClass="TASK_WRITE_FAILED", messageParameters={}, server_stacktrace=trace
    )
    assert derived_inputs.changes_are_gone(error, log.snapshot()) is are_gone


@pytest.mark.long
def test_what_is_written_meanwhile_is_left_to_the_next_run(lake: Lake, spark: SparkSession) -> None:
    """Every transform here is slower than somebody else, who adds a row to its input before it is read."""
    add_events(lake, event(1, 5, "planned"))

    def overtaken(events: Any) -> Any:
        add_events(lake, event(1, 5, "planned"))
        return events.select("id", "state")

    follower = replace(copies, transform=overtaken)
    whole = replace(counts, key="gold/whole", inputs=(events,), transform=overtaken)
    tables = (follower, whole, follower, copies)
    assert [write_table(lake, spark, table).rows_written for table in tables] == [1, 2, 2, 1]
    assert len(rows_in(lake, copies.key, "id")) == len(rows_in(lake, events.key, "id")) == 4


@pytest.mark.long
def test_an_overwrite_follows_inputs_and_foreign_writes(lake: Lake, spark: SparkSession) -> None:
    places = {key: lake.settings.table_uri(key) for key in (states.key, copies.key, counts.key)}
    both = replace(
        counts,
        inputs=(states, copies),
        transform=lambda states, copies: states.join(copies, "id").groupBy().count(),
    )
    for key in (states.key, copies.key):
        write_deltalake(places[key], pa.table({"id": [1]}))
    write_table(lake, spark, both)
    write_deltalake(places[copies.key], pa.table({"id": [1]}), mode="append")
    assert write_table(lake, spark, both).reason is Reason.INPUTS_CHANGED
    assert rows_in(lake, both.key, "count") == [(2,)]
    DeltaTable(places[both.key]).delete()
    write_table(lake, spark, both)
    assert rows_in(lake, both.key, "count") == [(2,)]
    outcome = write_table(
        lake,
        spark,
        replace(both, inputs=(states,), transform=lambda states: states.groupBy().count()),
    )
    assert "its rows were also made from silver/copies, which" in outcome.explanation.sentence
    assert rows_in(lake, both.key, "count") == [(1,)]


def test_rows_that_a_restore_has_removed_are_read_again(lake: Lake, spark: SparkSession) -> None:
    """A RESTORE keeps the transaction id that records the removed rows as read."""
    followers = (states, copies)
    for number in (1, 2):
        add_events(lake, event(number, 5, "planned"))
        _run(lake, spark, followers)
    spark.sql(f"RESTORE delta.`{lake.settings.table_uri(states.key)}` TO VERSION AS OF 0")
    DeltaTable(lake.settings.table_uri(copies.key)).restore(0)
    for table in followers:
        with pytest.raises(
            Refused, match=f"a RESTORE has removed .*`lakehouse rebuild {table.key}"
        ):
            write_table(lake, spark, table)
    add_events(lake, event(3, 5, "planned"))
    for _ in range(2):
        _run(lake, spark, followers)
        for table in followers:
            assert rows_in(lake, table.key, "id") == [(1,), (2,), (3,)]


def test_a_transform_without_the_named_columns_is_refused(lake: Lake, spark: SparkSession) -> None:
    add_events(lake, event(1, 5, "planned"))
    with pytest.raises(Refused, match="write= names column at, but the transform returns only id"):
        write_table(lake, spark, replace(states, transform=lambda events: events.select("id")))
    assert version_of(lake, states.key) is None


def _run(lake: Lake, spark: SparkSession, tables: Sequence[Table]) -> dict[str, WriteOutcome]:
    return {table.key: write_table(lake, spark, table) for table in tables}


def _versions(lake: Lake, tables: Sequence[Table]) -> list[int | None]:
    return [version_of(lake, table.key) for table in tables]
