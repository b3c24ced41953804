"""Landed files become rows exactly once, and a line that is no row is kept with its reason."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest import SetAside
from lakehouse.core.reason import Reason
from lakehouse.core.table import Append, Landing, Overwrite, Table
from lakehouse.engine import ingest, rows
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.write import write_table
from lakehouse_tests.engine.example import event, events, land, rows_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUARANTINE = "quarantine/bronze/events"

codes = Table(
    key="bronze/codes",
    source=Landing(prefix="landing/codes/", format="csv", schema="code STRING, n INT, name STRING", null_value="NA", required=("code",)),
    write=Overwrite(),
)


class Killed(BaseException):
    """The end of a process, as far as one test can play it: nothing of ours handles it."""


def test_good_lines_become_rows_and_the_others_stand_in_quarantine_with_their_reason(lake: Lake, spark: "SparkSession") -> None:
    lines = [
        event(1, 5, "new"),
        "",
        "not json",
        '{"id": 2} {"id": 3}',
        '{"id": 4}]',
        '{"id": 5}}',
        "[1]",
        '{"id": "six"}',
        '{"at": "yesterday", "id": 7}',
        '{"state": "lost"}',
        '{"id": 8',
        '  {"id": 9, "unknown": {"x": [1]}}\r',
    ]
    land(lake, "sub dir/a [b] {c}*? 100%+ü\\.json", lines)
    land(lake, "b.jsonl", [event(10, 6, "new")])
    land(lake, "readme.txt", ["hello"])
    land(lake, ".unfinished.json", ["{}"])
    outcome = write_table(lake, spark, events)
    assert (outcome.reason, outcome.rows_written, outcome.rows_quarantined, outcome.files_read) == (Reason.BATCH_READY, 3, 9, 2)
    assert outcome.set_aside == (
        SetAside(name="readme.txt", size_bytes=5, why="its name ends in none of .json, .jsonl, .json.gz, .jsonl.gz"),
    )
    name = "landing/events/sub dir/a [b] {c}*? 100%+ü\\.json"
    assert rows_of(spark, lake, events.key, "id", "_source_file", "_source_line", "state") == [
        (1, name, 1, "new"),
        (10, "landing/events/b.jsonl", 1, "new"),
        (9, name, 12, None),
    ]
    assert rows_of(spark, lake, QUARANTINE, "source_file", "line", "reason", "raw", "batch") == sorted(
        [
            (name, 3, "not JSON", "not json", 1),
            (name, 4, "not JSON", '{"id": 2} {"id": 3}', 1),
            (name, 5, "not JSON", '{"id": 4}]', 1),
            (name, 6, "not JSON", '{"id": 5}}', 1),
            (name, 7, "not JSON", "[1]", 1),
            (name, 8, "a field does not fit the schema", '{"id": "six"}', 1),
            (name, 9, "a field does not fit the schema", '{"at": "yesterday", "id": 7}', 1),
            (name, 10, "required field id is missing", '{"state": "lost"}', 1),
            (name, 11, "not JSON", '{"id": 8', 1),
        ],
        key=str,
    )


def test_a_second_run_adds_no_rows_and_makes_no_commit(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new"), "nope"])
    write_table(lake, spark, events)
    again = write_table(lake, spark, events)
    assert (again.reason, again.committed, again.rows_written) == (Reason.NOTHING_LANDED, False, 0)
    assert (version_of(lake, events.key), version_of(lake, QUARANTINE)) == (0, 0)


@pytest.mark.parametrize(("write", "when"), [(1, "before"), (1, "after"), (2, "after")])
def test_a_batch_killed_at_any_step_is_there_once_after_the_next_run(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, write: int, when: str
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), "nope"])
    _kill_at(monkeypatch, write, when)
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    land(lake, "b.json", [event(2, 6, "new")])
    write_table(lake, spark, events)
    assert rows_of(spark, lake, events.key, "id", "_source_file") == [(1, "landing/events/a.json"), (2, "landing/events/b.json")]
    assert rows_of(spark, lake, QUARANTINE, "raw", "batch") == [("nope", 1)]
    assert [file.name for file in Journal(lake.store).ledger(events.key).newest.files] == ["b.json"]  # type: ignore[union-attr]


def test_many_files_arrive_in_several_batches_of_one_run(lake: Lake, spark: "SparkSession") -> None:
    small = replace(events, source=replace(_landing(events), max_batch_files=2))
    for number in range(3):
        land(lake, f"{number}.json", [event(number, 5, "new")])
    outcome = write_table(lake, spark, small)
    assert (outcome.files_read, outcome.rows_written, version_of(lake, events.key)) == (3, 3, 1)
    assert outcome.sentence.startswith("3 landed file(s) of ")
    assert "make batch 1 to 2" in outcome.sentence


def test_a_batch_of_foreign_files_only_is_noted_once_and_makes_no_table(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "notes.txt", ["hello"])
    land(lake, "10:30.json", [event(1, 5, "new")])
    first = write_table(lake, spark, events)
    second = write_table(lake, spark, events)
    assert sorted(aside.name for aside in first.set_aside) == ["10:30.json", "notes.txt"]
    assert "':', which Spark cannot read" in next(aside.why for aside in first.set_aside if ":" in aside.name)
    assert (second.reason, second.set_aside, version_of(lake, events.key)) == (Reason.NOTHING_LANDED, (), None)


def test_a_file_of_an_unfinished_batch_that_is_gone_is_named(lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    _kill_at(monkeypatch, 1, "before")
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    lake.store.delete(["landing/events/a.json"])
    with pytest.raises(Broken, match=r"batch 1 was planned with 1 file.*first 'a.json'"):
        write_table(lake, spark, events)


def test_a_table_whose_folder_was_deleted_is_made_of_all_its_batches_again(lake: Lake, spark: "SparkSession") -> None:
    for number in range(3):
        land(lake, f"{number}.json", [event(number, 5, "new"), f"nope {number}"])
        write_table(lake, spark, events)
    rows_before = rows_of(spark, lake, events.key, "id", "_source_file")
    lake.store.delete([file.name for file in lake.store.list(events.key)])
    land(lake, "3.json", [event(3, 5, "new")])
    outcome = write_table(lake, spark, events)
    assert (outcome.files_read, outcome.rows_written) == (4, 4)
    assert rows_of(spark, lake, events.key, "id", "_source_file") == [*rows_before, (3, "landing/events/3.json")]
    assert rows_of(spark, lake, QUARANTINE, "raw", "batch") == [(f"nope {number}", number + 1) for number in range(3)]
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED


def test_a_table_whose_manifests_are_lost_is_not_loaded_again(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list("_lakehouse/ingest")])
    with pytest.raises(Broken, match=r"batch 1 is in the table, but the newest manifest .* is 0.*restore the manifests"):
        write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/ingest")) == (0, [])


def test_lines_are_numbered_rightly_where_a_file_is_read_in_parts(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "long.json", [event(number, number % 24, "x" * (number % 50)) for number in range(1, 2001)])
    spark.conf.set("spark.sql.files.maxPartitionBytes", "9000")
    try:
        write_table(lake, spark, events)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    found = spark.read.format("delta").load(lake.settings.table_uri(events.key))
    assert found.where("id = _source_line").count() == found.count() == 2000


def test_an_expression_that_fails_on_one_row_gives_null_and_blocks_nobody(lake: Lake, spark: "SparkSession") -> None:
    derived = replace(events, write=Append(), source=replace(_landing(events), derived={"number": "CAST(state AS INT)"}))
    land(lake, "a.json", [event(1, 5, "17"), event(2, 5, "seventeen")])
    write_table(lake, spark, derived)
    assert rows_of(spark, lake, events.key, "id", "number") == [(1, 17), (2, None)]


def test_csv_is_read_below_its_header_and_a_file_with_another_header_is_quarantined(lake: Lake, spark: "SparkSession") -> None:
    appended = replace(codes, write=Append())
    land(lake, "a.csv", ["code,n,name", 'A,1,"one, ""uno"""', "B,NA,NA", "C,x,three", "NA,4,four", "D,5", ""], prefix="landing/codes/")
    land(lake, "b.csv", ["code,name,n", "E,five,5", "F,six,6"], prefix="landing/codes/")
    outcome = write_table(lake, spark, appended)
    assert outcome.rows_quarantined == 4
    assert rows_of(spark, lake, codes.key, "code", "n", "name", "_source_line") == [("A", 1, 'one, "uno"', 2), ("B", None, None, 3)]
    assert rows_of(spark, lake, "quarantine/bronze/codes", "source_file", "line", "reason") == [
        ("landing/codes/a.csv", 4, "a field does not fit the schema"),
        ("landing/codes/a.csv", 5, "required field code is missing"),
        ("landing/codes/a.csv", 6, "a field does not fit the schema"),
        ("landing/codes/b.csv", 1, "the header is not code,n,name: no line of this file was read"),
    ]


def test_an_overwrite_holds_what_the_newest_file_does(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.csv", ["code,n,name", "A,1,one"], prefix="landing/codes/")
    land(lake, "2.csv", ["code,n,name", "B,2,two"], prefix="landing/codes/")
    first = write_table(lake, spark, codes)
    assert [aside.name for aside in first.set_aside] == ["1.csv"]
    land(lake, "note.md", [], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_of(spark, lake, codes.key, "code") == [("B",)]
    land(lake, "3.csv", ["code,n,name", "C,3,three"], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_of(spark, lake, codes.key, "code") == [("C",)]


def test_a_declaration_that_differs_from_the_table_is_refused_before_anything_is_written(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    land(lake, "b.json", [event(2, 5, "new"), "nope"])
    other = replace(events, source=replace(_landing(events), schema="id STRING, at TIMESTAMP, state STRING, more INT"))
    with pytest.raises(Refused, match=r"id as string \(the table: bigint\), more as int \(the table: absent\)"):
        write_table(lake, spark, other)
    with pytest.raises(Refused, match="declared as partitioned by nothing, the table is by day"):
        write_table(lake, spark, replace(events, write=Append()))
    assert (version_of(lake, events.key), version_of(lake, QUARANTINE)) == (0, None)


def test_declared_properties_are_set_at_once_and_when_they_change(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, replace(events, properties={"delta.checkpointInterval": "5", "team": "it's ours"}))
    assert _properties(lake) >= {("delta.enableChangeDataFeed", "true"), ("delta.checkpointInterval", "5"), ("team", "it's ours")}
    write_table(lake, spark, replace(events, properties={"delta.checkpointInterval": "7"}))
    assert ("delta.checkpointInterval", "7") in _properties(lake)


def _properties(lake: Lake) -> set[tuple[str, str]]:
    facts = lake.facts(events.key)
    assert facts is not None
    return set(facts.layout.properties.items())


def _landing(table: Table) -> Landing:
    assert table.source is not None
    return table.source


def _kill_at(monkeypatch: pytest.MonkeyPatch, number: int, when: str) -> None:
    """The process ends before or after its `number`th commit."""
    real, calls = rows.write_frame, iter(range(1, 100))

    def write_frame(*arguments: Any, **options: Any) -> None:
        is_last = next(calls) == number
        if is_last and when == "before":
            raise Killed
        real(*arguments, **options)
        if is_last:
            raise Killed

    monkeypatch.setattr(ingest.rows, "write_frame", write_frame)
