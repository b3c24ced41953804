"""Derived tables follow their inputs: nothing twice, nothing lost, and nothing at all where nothing is new."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors.exceptions.connect import SparkException

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import Merge
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.reasons import Reason
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.ingest import commit_rows, write
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import copies, counts, event, events, land, rows_of, session_settings, states, version_of
from lakehouse_tests.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (events, states, copies, counts)


def test_late_repeated_and_out_of_order_events_leave_the_newest_state(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.json", [event(1, 7, "left"), event(1, 5, "planned"), event(2, 5, "planned"), event(2, 5, "planned")])
    _run(lake, spark)
    land(
        lake,
        "2.json",
        [event(1, 6, "late"), event(1, 7, "again"), event(2, 9, "left"), {"id": 2, "state": "no time"}, event(3, 5, "planned")],
    )
    outcome = _run(lake, spark)[states.key]
    assert outcome.rows_written == 2
    assert rows_of(spark, lake, states.key, "id", "state") == [(1, "left"), (2, "left"), (3, "planned")]
    assert rows_of(spark, lake, counts.key, "state", "count") == [("left", 2), ("planned", 1)]
    assert len(rows_of(spark, lake, copies.key, "id")) == 9


def test_events_that_change_nothing_touch_no_file_and_nothing_downstream(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.json", [event(1, 7, "left")])
    _run(lake, spark)
    land(lake, "2.json", [event(1, 7, "left"), event(1, 6, "late")])
    outcomes = _run(lake, spark)
    facts = lake.facts(states.key)
    assert facts is not None
    assert (outcomes[states.key].rows_written, facts.history.data_changed_after(0)) == (0, False)
    assert (outcomes[counts.key].reason, outcomes[counts.key].committed) == (Reason.INPUTS_UNCHANGED, False)


def test_a_rerun_makes_no_commit(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.json", [event(1, 7, "left")])
    first = _run(lake, spark)
    assert [first[table.key].reason for table in ALL] == [Reason.BATCH_READY, *[Reason.INPUT_UNREAD] * 3]
    again = _run(lake, spark)
    assert [again[table.key].committed for table in ALL] == [False] * 4
    assert [again[table.key].reason for table in ALL] == [Reason.NOTHING_LANDED, *[Reason.INPUTS_UNCHANGED] * 3]


def test_a_compaction_upstream_changes_nothing_downstream(lake: Lake, spark: "SparkSession") -> None:
    eager = replace(events, compaction=Compaction(min_small_files=2))
    for number in range(2):
        land(lake, f"{number}.json", [event(number, 7, "left")])
        write_table(lake, spark, eager)
    for table in ALL:
        write_table(lake, spark, table)
    assert compact(lake, spark, eager).files_removed == 2
    assert [outcome.committed for outcome in _run(lake, spark).values()] == [False] * 4
    land(lake, "3.json", [event(3, 7, "left")])
    outcomes = _run(lake, spark)
    assert [outcomes[table.key].rows_written for table in ALL] == [1, 1, 1, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_at_its_commit_leaves_each_row_once(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    land(lake, "1.json", [event(1, 5, "planned")])
    _run(lake, spark)
    land(lake, "2.json", [event(1, 6, "left"), event(2, 6, "planned")])
    write_table(lake, spark, events)
    for name, table in (("merge_rows", states), ("write_frame", copies)):
        _kill_at(monkeypatch, name, when)
        with pytest.raises(KeyboardInterrupt):
            write_table(lake, spark, table)
        monkeypatch.undo()
        outcome = write_table(lake, spark, table)
        assert outcome.committed == (when == "before")
        read, written = lake.facts(events.key), lake.facts(table.key)
        assert read is not None and written is not None
        assert written.snapshot.transactions[write.consume_app_id(read.snapshot)] == read.snapshot.version == 1
    assert rows_of(spark, lake, states.key, "id", "state") == [(1, "left"), (2, "planned")]
    assert rows_of(spark, lake, copies.key, "id", "state") == [(1, "left"), (1, "planned"), (2, "planned")]


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_a_file_of_an_input_that_cannot_be_read_is_never_passed_over_whatever_the_server_is_set_to(
    lake: Lake, spark: "SparkSession", damage: str
) -> None:
    for number in (1, 2):
        land(lake, f"{number}.json", [event(number, 5, "new")])
        write_table(lake, spark, events)
    [first, _] = [file.name for file in lake.store.list(events.key) if file.name.endswith(".parquet") and "_delta_log" not in file.name]
    data = lake.store.read(first)
    lake.store.delete([first]) if damage == "missing" else lake.store.put(first, b"no parquet")
    setting = f"spark.sql.files.ignore{damage.capitalize()}Files"
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|FILE_NOT_EXIST|CANNOT_READ"):
            write_table(lake, spark, copies)
        assert spark.conf.get(setting) == "true"
    finally:
        spark.conf.unset(setting)
    lake.store.put(first, data)
    write_table(lake, spark, copies)
    assert rows_of(spark, lake, copies.key, "id") == [(1,), (2,)]


def test_an_input_without_a_table_is_refused_with_what_to_do_first(lake: Lake, spark: "SparkSession") -> None:
    with pytest.raises(Refused, match="its input bronze/events has no table yet; accepted: materialize bronze/events first"):
        write_table(lake, spark, states)


def test_changes_that_are_gone_are_merged_from_the_whole_input_and_never_appended_again(lake: Lake, spark: "SparkSession") -> None:
    """First the files of changes that were recorded are vacuumed, then changes are not recorded any more."""
    uri = lake.settings.table_uri(events.key)
    land(lake, "1.json", [event(1, 5, "planned"), event(2, 5, "planned")])
    _run(lake, spark, (events, states, copies))
    spark.sql(f"UPDATE delta.`{uri}` SET state = 'left', at = at + INTERVAL 1 HOUR WHERE id = 1")
    changes = [file.name for file in lake.store.list(f"{events.key}/_change_data") if file.name.endswith(".parquet")]
    assert changes
    lake.store.delete(changes)
    with pytest.raises(Broken, match=r"the changes of bronze/events after version 0 are gone: .* appending it again would double rows"):
        write_table(lake, spark, copies)
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_HISTORY_LOST, 1)
    assert rows_of(spark, lake, states.key, "id", "state") == [(1, "left"), (2, "planned")]

    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    land(lake, "2.json", [event(1, 7, "gone"), event(3, 7, "planned")])
    write_table(lake, spark, replace(events, properties={"delta.enableChangeDataFeed": "false"}))
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_HISTORY_LOST, 2)
    assert rows_of(spark, lake, states.key, "id", "state") == [(1, "gone"), (2, "planned"), (3, "planned")]
    assert rows_of(spark, lake, copies.key, "id", "state") == [(1, "planned"), (2, "planned")]


# What Spark says of a file that is gone where a write fails over it, and of another failure.
TRACE = (
    "org.apache.spark.SparkException\n\tat A.b(A.scala:1)\nCaused by: org.apache.spark.SparkException: [{}] while reading file file:{}. It"
)
CAUSES = {
    "a change file": ("FAILED_READ_FILE.FILE_NOT_EXIST", "/lake/bronze/t/_change_data/cdc-1.parquet", True),
    "a file that was compacted away": ("FAILED_READ_FILE.FILE_NOT_EXIST", "/lake/bronze/t/d=a%20c/old.parquet", True),
    "a file that the input still has": ("FAILED_READ_FILE.FILE_NOT_EXIST", "/lake/bronze/t/d=a%20b/live.parquet", False),
    "a file of another input": ("FAILED_READ_FILE.FILE_NOT_EXIST", "/lake/bronze/t2/old.parquet", False),
    "storage that failed": ("FAILED_READ_FILE.NO_HINT", "/lake/bronze/t/_change_data/cdc-1.parquet", False),
}


@pytest.mark.parametrize(("condition", "path", "are_gone"), CAUSES.values(), ids=CAUSES)
def test_changes_are_gone_where_the_cause_says_so(condition: str, path: str, are_gone: bool) -> None:
    snapshot = LogBuilder().create(partition_by=["d"]).append([("d=a%20b/live.parquet", 1)]).snapshot()
    trace = TRACE.format(condition, path)
    error = SparkException("task failed", errorClass="TASK_WRITE_FAILED", messageParameters={}, server_stacktrace=trace)
    assert write._changes_are_gone(error, snapshot) is are_gone


def test_somebodys_restore_of_an_input_gives_no_row_twice(lake: Lake, spark: "SparkSession") -> None:
    """Rows of a MERGE stay the newest of each key that was ever read; rows that were taken from the input are not taken from it."""
    uri = lake.settings.table_uri(events.key)
    land(lake, "1.json", [event(1, 5, "planned"), event(2, 5, "planned")])
    _run(lake, spark, (events, states, copies))
    land(lake, "2.json", [event(1, 6, "left"), event(3, 6, "planned")])
    write_table(lake, spark, events)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id < 3")
    _run(lake, spark, (states, copies))
    spark.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF 0")
    told = "version 3 of bronze/events is a RESTORE of somebody else, .* would double rows; accepted: to move its folder away"
    with pytest.raises(Broken, match=told):
        write_table(lake, spark, copies)
    assert rows_of(spark, lake, copies.key, "id", "state") == [(1, "left"), (1, "planned"), (2, "planned"), (3, "planned")]
    assert write_table(lake, spark, states).rows_written == 0
    assert rows_of(spark, lake, states.key, "id", "state") == [(1, "left"), (2, "planned"), (3, "planned")]


def test_an_input_that_was_made_anew_at_a_higher_version_is_read_whole(lake: Lake, spark: "SparkSession") -> None:
    plain = replace(counts, key="gold/plain", inputs=(events,), transform=lambda events: events.select("id", "state"))
    tables = (events, states, copies, plain)
    land(lake, "0.json", [event(0, 5, "planned")])
    _run(lake, spark, tables)
    lake.store.delete([file.name for prefix in (events.key, "_lakehouse", "landing") for file in lake.store.list(prefix)])
    for number in (1, 2, 3):
        land(lake, f"{number}.json", [event(number, 5, "anew")])
        write_table(lake, spark, events)
    outcome = write_table(lake, spark, states)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUT_MADE_ANEW, 3)
    assert rows_of(spark, lake, states.key, "id", "state") == [(0, "planned"), (1, "anew"), (2, "anew"), (3, "anew")]
    with pytest.raises(
        Broken, match=r"bronze/events was made anew .*appending it again would double rows; accepted: to move its folder away"
    ):
        write_table(lake, spark, copies)
    assert write_table(lake, spark, plain).reason is Reason.INPUT_MADE_ANEW
    assert rows_of(spark, lake, plain.key, "id") == [(1,), (2,), (3,)]
    assert [write_table(lake, spark, table).committed for table in (states, plain)] == [False, False]
    land(lake, "4.json", [event(1, 6, "left")])
    write_table(lake, spark, events)
    assert (write_table(lake, spark, states).reason, version_of(lake, states.key)) == (Reason.INPUTS_CHANGED, 2)


def test_an_older_copy_of_an_input_is_seen_also_after_it_was_written_to(lake: Lake, spark: "SparkSession") -> None:
    """By then its version is the one that was consumed, or a later one."""
    uri = lake.settings.table_uri(events.key)
    for number in (1, 2):
        land(lake, f"{number}.json", [event(number, 5, "planned")])
        write_table(lake, spark, events)
        if number == 1:
            shutil.copytree(uri, f"{uri}_copy")
    _run(lake, spark, (states, copies))
    shutil.rmtree(uri)
    Path(f"{uri}_copy").rename(uri)
    for number in (3, 4):
        land(lake, f"{number}.json", [event(number, 5, "planned")])
        write_table(lake, spark, events)
        for follower, way in ((states, "to delete its folder"), (copies, "to move its folder away")):
            told = rf"version 1 of bronze/events, which it has consumed, .* an older copy was put in its place; accepted: {way}"
            with pytest.raises(Broken, match=told):
                write_table(lake, spark, follower)
    assert rows_of(spark, lake, copies.key, "id") == [(1,), (2,)]


def test_what_is_written_while_a_run_reads_is_left_to_the_next_run(lake: Lake, spark: "SparkSession") -> None:
    """Every transform here is slower than somebody else, who adds a row to its input before it is read."""
    land(lake, "1.json", [event(1, 5, "planned")])
    write_table(lake, spark, events)
    source = spark.read.format("delta").load(lake.settings.table_uri(events.key))

    def overtaken(events: Any) -> Any:
        source.limit(1).write.format("delta").mode("append").save(lake.settings.table_uri("bronze/events"))
        return events.select("id", "state")

    follower = replace(copies, transform=overtaken)
    whole = replace(counts, key="gold/whole", inputs=(events,), transform=overtaken)
    found = []
    for _ in range(2):
        found += [write_table(lake, spark, table).rows_written for table in (follower, whole)]
    assert found == [1, 2, 2, 4]
    assert write_table(lake, spark, copies).rows_written == 2
    assert len(rows_of(spark, lake, copies.key, "id")) == len(rows_of(spark, lake, events.key, "id")) == 5


def test_an_overwrite_follows_each_of_its_inputs_and_somebody_elses_write(lake: Lake, spark: "SparkSession") -> None:
    both = replace(counts, inputs=(states, copies), transform=lambda states, copies: states.join(copies, "id").groupBy().count())
    land(lake, "1.json", [event(1, 5, "planned")])
    _run(lake, spark, (events, states, copies, both))
    land(lake, "2.json", [event(1, 5, "planned")])
    outcomes = _run(lake, spark, (events, states, copies, both))
    assert (outcomes[states.key].rows_written, outcomes[both.key].reason) == (0, Reason.INPUTS_CHANGED)
    assert rows_of(spark, lake, both.key, "count") == [(2,)]
    spark.sql(f"DELETE FROM delta.`{lake.settings.table_uri(both.key)}`")
    write_table(lake, spark, both)
    assert rows_of(spark, lake, both.key, "count") == [(2,)]


def test_a_transform_without_the_columns_that_its_write_names_is_refused(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.json", [event(1, 5, "planned")])
    write_table(lake, spark, events)
    with pytest.raises(Refused, match="its transform gives no column at, which its write= names; it gives id"):
        write_table(lake, spark, replace(states, transform=lambda events: events.select("id")))
    assert version_of(lake, states.key) is None


def test_a_merge_writes_few_files_unless_the_table_says_otherwise(lake: Lake, spark: "SparkSession") -> None:
    """Into a table with deletion vectors, Delta would write a file for each task of the source."""
    uri, found = lake.settings.table_uri(states.key), list[int]()
    spark.sql(f"CREATE TABLE delta.`{uri}` (id BIGINT, at BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for number in (1, 2):
        facts = lake.facts(states.key)
        assert facts is not None
        rows = spark.range(100 * number, 100 * number + 80, 1, 6).selectExpr("id", "id AS at")
        transaction = commit_rows.Transaction(app_id="lakehouse/test", version=number)
        commit_rows.merge_rows(spark, rows, facts.snapshot, Merge(keys=("id",), order_by=("at",)), transaction)
        after = lake.facts(states.key)
        assert after is not None
        found.append(len(after.history.commits[-1].added_paths))
        spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.autoOptimize.optimizeWrite' = 'false')")
    assert found[0] == 1 < found[1]


def test_no_setting_of_a_run_stays_in_its_session(lake: Lake, spark: "SparkSession") -> None:
    before = session_settings(spark)
    land(lake, "1.json", [event(1, 5, "planned")])
    _run(lake, spark)
    assert session_settings(spark) == before


def _run(lake: Lake, spark: "SparkSession", tables: Any = ALL) -> dict[str, Any]:
    return {table.key: write_table(lake, spark, table) for table in tables}


def _kill_at(monkeypatch: pytest.MonkeyPatch, name: str, when: str) -> None:
    """The person at the terminal ends the run before or after its commit."""
    real = getattr(commit_rows, name)

    def killed(*arguments: Any, **options: Any) -> None:
        if when == "after":
            real(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(write.commit_rows, name, killed)
