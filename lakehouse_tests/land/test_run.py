"""Landed files become rows exactly once, and a line that is no row is kept with its reason."""

import gzip
import json
import os
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors.exceptions.connect import UnknownException
from pyspark.sql import DataFrame, SparkSession

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.reasons import Reason
from lakehouse.declare.table import Landing, Overwrite, Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land import ledger as planned_batches
from lakehouse.land import run as load_run
from lakehouse.land import staging as staged_parts
from lakehouse.land.ledger import PlannedBatches, record_loaded
from lakehouse.land.parse_lines import parse_records
from lakehouse.land.plan import choose_files
from lakehouse.land.quarantine import retry
from lakehouse.materialize import run as materialize_run
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse.store import DiskStore, MountedStore, S3Store
from lakehouse_tests.conftest import wait_until
from lakehouse_tests.kills import Killed, killed_at
from lakehouse_tests.support.clients import Thrown, gate
from lakehouse_tests.support.example_lake import event, events, facts_of, land, rows_in, version_of

QUARANTINE = "quarantine/bronze/events"
SOURCE = events.landing


def declared(**changes: Any) -> Table:
    return replace(events, source=replace(SOURCE, **changes))


def test_good_lines_become_rows_and_others_have_a_reason(lake: Lake, spark: SparkSession) -> None:
    """An expression that fails on a row gives null, and blocks nobody."""
    derived = {"day": "to_date(at)", "number": "CAST(state AS INT)"}
    not_json = ["not json", '{"id": 2} {"id": 3}', '{"id": 4}]', '{"id": 5}}', "[1]"]
    unfit = ['{"id": "six"}', '{"at": "yesterday", "id": 7}']
    lines = [
        "",
        *not_json,
        *unfit,
        '{"state": "lost"}',
        '{"id": 8',
        '  {"id": 9, "unknown": {"x": [1]}}\r',
    ]
    land(lake, "sub dir/a [b] {c}*? 10:30 100%+ü\\.json", [event(1, 5, "new"), *lines])
    single_quotes = "{'id': 11, 'x': 1.50}"
    land(lake, "b.jsonl", [event(10, 6, "17"), single_quotes])
    land(lake, "readme.txt", ["hello"])
    land(lake, ".unfinished.json", ["{}"])
    outcome = write_table(lake, spark, declared(derived=derived))
    counts = (outcome.rows_written, outcome.rows_quarantined, outcome.files_read)
    assert (outcome.reason, *counts) == (Reason.BATCH_READY, 3, 10, 2)
    why = "its name ends in none of .json, .jsonl, .json.gz, .jsonl.gz, .json.zst, .jsonl.zst"
    assert [(aside.name, aside.why) for aside in outcome.set_aside] == [("readme.txt", why)]
    name = "landing/events/sub dir/a [b] {c}*? 10:30 100%+ü\\.json"
    assert outcome.rows_rescued == 1
    assert rows_in(
        lake, events.key, "id", "_source_file", "_source_line", "state", "number", "_rescued"
    ) == [
        (1, name, 1, "new", None, None),
        (10, "landing/events/b.jsonl", 1, "17", 17, None),
        (9, name, 12, None, None, '{"unknown": {"x": [1]}}'),
    ]
    whys = (
        ["not JSON"] * 5
        + ["a field does not fit the schema"] * 2
        + ["required field id is missing", "not JSON"]
    )
    refused = [(name, line, why, lines[line - 2], 1) for line, why in enumerate(whys, start=3)]
    refused.append(("landing/events/b.jsonl", 2, "not JSON", single_quotes, 1))
    expected = sorted(refused, key=str)
    assert rows_in(lake, QUARANTINE, "source_file", "line", "reason", "raw", "batch") == expected


def test_a_second_run_adds_no_rows_makes_no_commit_and_reads_the_log_once(
    lake: Lake, spark: SparkSession, log_reads: Counter[str]
) -> None:
    """A file of equal name and content below another prefix is another file."""
    land(lake, "a.json", [event(1, 5, "new")])
    land(lake, "b.json", ["nope"])
    write_table(lake, spark, events)
    log_reads.clear()
    again = write_table(lake, spark, events)
    assert log_reads == {events.key: 1}
    assert (again.reason, again.rows_written) == (Reason.NOTHING_LANDED, 0)
    assert (version_of(lake, events.key), version_of(lake, QUARANTINE)) == (0, 0)
    land(lake, "a.json", [event(1, 5, "new")], prefix="landing/moved/")
    log_reads.clear()
    outcome = write_table(lake, spark, declared(prefix="landing/moved/"))
    assert log_reads == {events.key: 2} and outcome.facts == lake.facts(events.key)
    expected = [("landing/events/a.json",), ("landing/moved/a.json",)]
    assert rows_in(lake, events.key, "_source_file") == expected


def test_a_batch_killed_at_any_step_is_there_once_after_the_next_run(
    lake: Lake, spark: SparkSession
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), "nope"])
    for when in ("before", "after", "after"):  # before its quarantine, after it, and after its rows
        with killed_at(frames, "write_frame", when):
            write_table(lake, spark, events)
    land(lake, "b.json", [event(2, 6, "new")])
    write_table(lake, spark, events)
    expected = [(1, "landing/events/a.json"), (2, "landing/events/b.json")]
    assert rows_in(lake, events.key, "id", "_source_file") == expected
    assert rows_in(lake, QUARANTINE, "raw", "batch") == [("nope", 1)]
    newest = PlannedBatches(lake.store, events.key, prefix="landing/events/").ledger().newest
    assert newest is not None and [file.name for file in newest.files] == ["b.json"]


@pytest.mark.long
def test_a_batch_killed_between_staging_and_manifest_is_read_anew_and_one_killed_after_it_is_done_again(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staged records without a manifest are nobody's: by then the files may be others, and fewer parts."""
    monkeypatch.setattr(staged_parts, "_PART_RECORDS", 1)
    land(lake, "a.json", [event(1, 5, "first"), event(2, 5, "first"), "nope"])
    with killed_at(PlannedBatches, "plan", "before"):
        write_table(lake, spark, events)
    parts = [
        file.name.rpartition("/")[2] for file in lake.store.list(f"_lakehouse/staged/{events.key}")
    ]
    assert parts == ["00000.parquet", "00001.parquet", "00002.parquet"]
    land(lake, "a.json", [event(1, 5, "second"), "no"])
    with killed_at(PlannedBatches, "plan", "after"):
        write_table(lake, spark, events)
    land(lake, "a.json", [event(1, 5, "third")])
    write_table(lake, spark, events)
    assert rows_in(lake, events.key, "id", "state") == [(1, "second")]
    # The line, and the file that has changed.
    assert rows_in(lake, QUARANTINE, "line", "raw") == [(2, "no"), (None, None)]
    assert lake.store.list("_lakehouse/staged") == []


@pytest.mark.long
def test_a_killed_batch_keeps_the_records_that_were_read(lake: Lake, spark: SparkSession) -> None:
    land(lake, "changes.json", [event(1, 5, "new"), "nope"])
    land(lake, "goes.json", [event(2, 5, "new")])
    for when in ("after", "before"):  # after its quarantine, and before its rows
        with killed_at(frames, "write_frame", when):
            write_table(lake, spark, events)
    land(lake, "changes.json", [{"id": 1, "state": "other"}, {"id": 2}])
    staged = {
        file.name: lake.store.read(file.name) for file in lake.store.list("_lakehouse/staged")
    }
    lake.store.delete([*staged])
    # What the first try read is not what the batch was, and is not taken for it by the second.
    for _ in range(2):
        message = r"batch 1 was planned with 2 files .*'changes.json' has changed"
        with pytest.raises(Broken, match=message):
            write_table(lake, spark, events)
    lake.store.delete(["landing/events/goes.json"])
    message = r"batch 1 was planned with 2 files .* gone from landing/events/: 1, first 'goes.json'"
    with pytest.raises(Broken, match=message):
        write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/staged")) == (None, [])
    for name, data in staged.items():
        lake.store.put(name, data)
    outcome = write_table(lake, spark, events)
    assert rows_in(lake, events.key, "id", "state") == [(1, "new"), (2, "new")]
    assert rows_in(lake, QUARANTINE, "raw") == [("nope",), (None,)]
    assert [aside.name for aside in outcome.set_aside] == ["changes.json"]
    assert lake.store.list("_lakehouse/staged") == []


def test_a_file_that_was_loaded_is_never_loaded_again_whatever_becomes_of_it(
    lake: Lake, spark: SparkSession
) -> None:
    land(lake, "shrinks.json", [event(1, 5, "new"), "nope"])
    land(lake, "grows.json", [event(4, 5, "new")])
    land(lake, "same size.json", [event(2, 5, "new")])
    land(lake, "touched.json", [event(3, 5, "new")])
    write_table(lake, spark, events)
    rows_before = rows_in(lake, events.key, "id", "state")
    land(lake, "shrinks.json", [event(1, 5, "new")])
    land(lake, "grows.json", [event(4, 5, "new"), event(5, 5, "late")])
    land(lake, "same size.json", [event(2, 5, "old")])
    land(lake, "touched.json", [event(3, 5, "new")])
    for name in ("same size.json", "touched.json"):
        os.utime(Path(lake.settings.root, "landing/events", name), (1_000_000_000, 1_000_000_000))
    outcome = write_table(lake, spark, events)
    assert {aside.name: aside.why.partition(". ")[0] for aside in outcome.set_aside} == {
        "shrinks.json": "it had 60 bytes when it was loaded and has 55 now",
        "grows.json": "it had 55 bytes when it was loaded and has 112 now",
        "same size.json": "it had 55 bytes when it was loaded and its content differs now",
        "touched.json": "it was written again with content that was already read",
    }
    assert rows_in(lake, events.key, "id", "state") == rows_before
    assert rows_in(lake, QUARANTINE, "source_file", "line") == [
        ("landing/events/grows.json", None),
        ("landing/events/same size.json", None),
        ("landing/events/shrinks.json", 2),
        ("landing/events/shrinks.json", None),
    ]
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED


def test_a_file_that_changes_while_it_is_read_is_settled(lake: Lake, spark: SparkSession) -> None:
    class Busy(DiskStore):
        """Somebody writes to the landing area between our listing and our reading."""

        def read(self, name: str) -> bytes:
            if name.endswith("grows.json") and b"late" not in super().read(name):
                late = json.dumps(event(2, 5, "late")).encode()
                self.put(name, super().read(name) + b"\n" + late)
            if name.endswith("gone.json"):
                self.delete([name])
            return super().read(name)

    land(lake, "grows.json", [event(1, 5, "new")])
    land(lake, "gone.json", [event(3, 5, "new")])
    outcome = write_table(replace(lake, store=Busy(Path(lake.settings.root))), spark, events)
    expected = (1, (), [(1,), (2,)])
    assert (outcome.files_read, outcome.set_aside, rows_in(lake, events.key, "id")) == expected
    again = write_table(lake, spark, events)
    assert [(aside.name, aside.why) for aside in again.set_aside] == [
        ("grows.json", "it was written again with content that was already read")
    ]
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED


@pytest.mark.long
def test_an_overwrite_has_all_records_of_a_grown_object(lake: Lake, spark: SparkSession) -> None:
    table = replace(events, write=Overwrite())
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, table)
    land(lake, "a.json", [event(1, 5, "new"), event(2, 5, "late")])
    outcome = write_table(lake, spark, table)
    expected = ((), [(1, 1), (2, 2)])
    assert (outcome.set_aside, rows_in(lake, table.key, "id", "_source_line")) == expected
    assert write_table(lake, spark, table).reason is Reason.NOTHING_LANDED


@pytest.mark.long
def test_a_table_without_its_batches_waits_for_a_person(lake: Lake, spark: SparkSession) -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    uri = lake.settings.table_uri(events.key)
    rows = DeltaTable(uri).to_pyarrow_table()
    shutil.rmtree(uri)
    write_deltalake(uri, rows, partition_by=["day"])
    land(lake, "b.json", [event(2, 5, "new")])
    for _ in range(2):
        message = (
            r"no transaction id of a landed batch, but batches up to 1 were planned.*--arrived N"
        )
        with pytest.raises(Broken, match=message):
            write_table(lake, spark, events)
    assert rows_in(lake, events.key, "id") == [(1,)]
    session = TableSession(lake=lake, spark=spark, table=events)
    with pytest.raises(Refused, match=r"--arrived is 2\. Use 0 to 1"):
        record_loaded(session, 2)
    record_loaded(session, 1)
    with pytest.raises(Refused, match="the log already records batch 1 as the last one"):
        record_loaded(session, 0)
    write_table(lake, spark, events)
    assert rows_in(lake, events.key, "id") == [(1,), (2,)]


def test_a_write_of_other_rows_than_were_staged_is_not_repeated(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), event(2, 5, "new")])
    real = frames.write_frame

    def without_a_row(frame: DataFrame, *arguments: Any, **options: Any) -> None:
        real(frame.where("id = 1"), *arguments, **options)

    def without_a_line(*arguments: Any) -> DataFrame:
        return parse_records(*arguments).where("id = 1")

    monkeypatch.setattr(load_run, "parse_records", without_a_line)
    message = r"batch 1 has 2 records, but Spark read 1 row and 0 bad records"
    with pytest.raises(Broken, match=message):
        write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/ingest")) == (None, [])
    monkeypatch.setattr(load_run, "parse_records", parse_records)
    monkeypatch.setattr(frames, "write_frame", without_a_row)
    message = "batch 1 has 2 rows, but version 0 of the table records 1 written row"
    with pytest.raises(Broken, match=message):
        write_table(lake, spark, events)
    assert version_of(lake, events.key) == 0


def test_a_batch_that_a_dead_client_s_statement_loads_first_with_other_rows_is_broken(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its declaration accepted fewer records. Without a word, the others would be nowhere."""
    land(lake, "a.json", [event(1, 5, "new"), event(2, 5, "new")])
    real = frames.write_frame

    def too_late(frame: DataFrame, *arguments: Any, **options: Any) -> None:
        real(frame.where("id = 1"), *arguments, **options)
        raise UnknownException("", errorClass="DELTA_CONCURRENT_TRANSACTION", sql_state="2D521")

    monkeypatch.setattr(frames, "write_frame", too_late)
    with pytest.raises(
        Broken, match="batch 1 has 2 rows, but version 0 of the table records 1 written row"
    ):
        write_table(lake, spark, events)


@pytest.mark.parametrize("is_laxer", [True, False], ids=["laxer", "stricter"])
def test_a_statement_that_goes_on_without_its_client_cannot_load_a_batch_that_is_repeated(
    lake: Lake, spark: SparkSession, tmp_path: Path, is_laxer: bool
) -> None:
    """The declaration is changed meanwhile, so that the statement has other rows than the batch."""
    seen, go = tmp_path / "seen", tmp_path / "go"

    lax, strict = declared(required=("id",)), declared(required=("id", "state"))
    land(lake, "a.json", [event(0, 5, "new")])
    write_table(lake, spark, lax)
    land(lake, "b.json", [event(1, 5, "new"), {"id": 2, "at": "2013-01-01T05:00:00Z"}])
    real = frames.write_frame
    statements = list[Thrown]()

    def abandoned(frame: DataFrame, uri: str, *arguments: Any) -> None:
        if "quarantine" in uri:
            return real(frame, uri, *arguments)
        slow = frame.coalesce(1).withColumn("id", gate(seen, go)("id"))
        statements.append(Thrown(lambda: real(slow, uri, *arguments)))
        wait_until("the statement reads the rows", seen.exists)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "write_frame", abandoned)
        with pytest.raises(Killed):
            write_table(lake, spark, strict if is_laxer else lax)
    [statement] = statements
    read = load_run.staged_again

    def then_the_statement_ends(*arguments: Any) -> Any:
        go.touch()
        statement.join()
        return read(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_run, "staged_again", then_the_statement_ends)
        write_table(lake, spark, lax if is_laxer else strict)
    assert isinstance(statement.error, Transient), statement.error
    assert rows_in(lake, events.key, "id") == [(0,), (1,), (2,)][: 3 if is_laxer else 2]
    assert rows_in(lake, QUARANTINE, "line") == ([] if is_laxer else [(2,)])
    assert write_table(lake, spark, lax if is_laxer else strict).rows_written == 0


def test_a_file_set_aside_is_quarantined_after_a_kill(lake: Lake, spark: SparkSession) -> None:
    lake.store.put("landing/events/a.json.gz", b"no gzip")
    with killed_at(frames, "write_frame", "before"):
        write_table(lake, spark, events)
    for _ in range(2):
        write_table(lake, spark, events)
        expected = [("landing/events/a.json.gz", 1)]
        assert rows_in(lake, QUARANTINE, "source_file", "batch") == expected


@pytest.mark.long
def test_a_backlog_is_worked_off_in_batches_bounded_by_files_and_by_what_they_unpack_to_and_folded_ones_stay_known(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_batches, "FOLD_EVERY", 2)
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", 4)
    small = declared(max_file_bytes=1_500)
    for number, count in enumerate((80, 80, 80, 1, 1, 1, 1, 1)):
        lines = b"\n".join(
            json.dumps(event(number * 100 + each, 5, "x" * 20)).encode() for each in range(count)
        )
        lake.store.put(f"landing/events/{number}.json.gz", gzip.compress(lines))
    outcome = write_table(lake, spark, small)
    assert (outcome.files_read, outcome.rows_written) == (8, 245)
    assert outcome.sentence.startswith("batch 1 to 3 has 8 landed files (")
    commits = facts_of(lake, events.key).history.commits
    assert [commit.metrics["numOutputRows"] for commit in commits] == ["240", "4", "1"]
    assert [
        file.name.rpartition("/")[2][:8]
        for file in lake.store.list(f"_lakehouse/ingest/{events.key}")
    ] == ["segment-"]
    assert write_table(lake, spark, small).reason is Reason.NOTHING_LANDED


@pytest.mark.long
def test_after_a_race_that_is_lost_between_batches_each_row_is_there_once_and_the_outcome_tells_of_all(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, real = Counter[str](), frames.write_frame

    def lost_once(frame: DataFrame, *arguments: Any, **options: Any) -> None:
        tries["commits"] += 1
        if tries["commits"] == 2:
            # Somebody changed the table's metadata first, for instance by ADD COLUMNS.
            raise UnknownException("", errorClass="DELTA_METADATA_CHANGED", sql_state="2D521")
        real(frame, *arguments, **options)

    monkeypatch.setattr(frames, "write_frame", lost_once)
    for name in "abc":
        land(lake, f"{name}.json", [event(1, 5, name)])
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", 1)
    outcome = write_table(lake, spark, events)
    assert (outcome.files_read, outcome.rows_written, outcome.reason) == (3, 3, Reason.BATCH_READY)
    assert outcome.sentence.startswith("batch 1 to 3 has 3 landed files (")
    assert (tries["commits"], rows_in(lake, events.key, "state")) == (4, [("a",), ("b",), ("c",)])


def test_properties_are_set_at_once_and_when_changed(lake: Lake, spark: SparkSession) -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(
        lake,
        spark,
        replace(events, properties={"delta.checkpointInterval": "5", "team": "it's ours"}),
    )
    assert _properties(lake) >= {
        ("delta.enableChangeDataFeed", "true"),
        ("delta.checkpointInterval", "5"),
        ("team", "it's ours"),
    }
    # In the commit that made the table.
    assert ("delta.checkpointInterval", "5") in _properties(lake, version=0)
    write_table(lake, spark, replace(events, properties={"delta.checkpointInterval": "7"}))
    assert ("delta.checkpointInterval", "7") in _properties(lake)


def _properties(lake: Lake, version: int | None = None) -> set[tuple[str, str]]:
    return set(facts_of(lake, events.key, version).snapshot.properties.items())


codes = Table(
    key="bronze/codes",
    source=Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, n INT, name STRING",
        null_value="NA",
        required=("code",),
    ),
    write=Overwrite(),
)


@pytest.mark.long
def test_a_table_made_by_another_declaration_loses_no_line(lake: Lake, spark: SparkSession) -> None:
    """Its quarantine knows the number of each batch: what is refused only now stands there, too, and nothing twice."""
    # The text of the last line is staged as another where n is a STRING.
    stateless, unfit = {"id": 2, "at": "2013-01-01T05:00:00Z"}, '{"id": "x", "n": 1.10}'
    schema = f"{SOURCE.schema}, n STRING"
    strict = declared(schema=schema, required=("id", "state"))
    land(lake, "a.json", [event(1, 5, "new"), "nope a", stateless, unfit])
    write_table(lake, spark, events)
    land(lake, "b.json", [event(3, 5, "new"), "nope b"])
    write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list(events.key)])
    land(lake, "c.json", [event(4, 5, "new")])
    outcome = write_table(lake, spark, strict)
    assert (outcome.files_read, outcome.rows_written) == (3, 3)
    assert write_table(lake, spark, strict).reason == Reason.NOTHING_LANDED
    rows = [
        (number, f"landing/events/{name}.json") for number, name in ((1, "a"), (3, "b"), (4, "c"))
    ]
    refused = [("nope a", 1), ("nope b", 2), (unfit, 1), (json.dumps(stateless), 1)]
    assert rows_in(lake, events.key, "id", "_source_file") == rows
    assert rows_in(lake, QUARANTINE, "raw", "batch") == refused

    for folder in (events.key, "_lakehouse/ingest"):
        lake.store.delete([file.name for file in lake.store.list(folder)])
    land(lake, "d.json", ["nope d"])
    write_table(lake, spark, strict)
    assert rows_in(lake, events.key, "id", "_source_file") == rows
    assert rows_in(lake, QUARANTINE, "raw", "batch") == sorted([*refused, ("nope d", 1)], key=str)


@pytest.mark.long
def test_an_overwrite_holds_the_newest_file_with_a_row(lake: Lake, spark: SparkSession) -> None:
    land(lake, "1.csv", ["code,n,name", "A,1,one"], prefix="landing/codes/")
    land(lake, "2.csv", ["code,n,name", "B,2,two"], prefix="landing/codes/")
    first = write_table(lake, spark, codes)
    assert [aside.name for aside in first.set_aside] == ["1.csv"]
    land(lake, "note.md", [], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("B",)]

    land(lake, "3.csv", ["code,n,name", "C,3,three"], prefix="landing/codes/")
    for name, lines in (
        ("4", []),
        ("5", ["n,code", "3,C"]),
        ("6", ["code,n,name", "D,x,4", "NA,5,five"]),
        ("7", ["code,n,name"]),
    ):
        land(lake, f"{name}.csv", lines, prefix="landing/codes/")
    outcome = write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("C",)]
    assert [aside.name for aside in outcome.set_aside] == ["7.csv", "6.csv", "5.csv", "4.csv"]
    found = rows_in(lake, "quarantine/bronze/codes", "source_file", "line")
    assert found == [
        (f"landing/codes/{name}.csv", line)
        for name, line in (("4", None), ("5", None), ("6", 2), ("6", 3), ("6", None), ("7", None))
    ]
    land(lake, "6.csv", ["code,n,name", "E,5,five"], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_in(lake, codes.key, "code") == [("E",)]


def test_a_load_whose_batch_another_home_loads_meanwhile_has_a_reason_and_its_next_batch_stays(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes without any lock in common: one deletes what it loaded, and nothing of the next batch."""
    land(lake, "1.json", [event(1, 5, "new")])
    with killed_at(frames, "write_frame", "before"):
        write_table(lake, spark, events)
    monkeypatch.setattr(materialize_run, "hold", lambda *_, **__: nullcontext())
    real = load_run.staged_again

    def then_another_home(*arguments: Any) -> Any:
        batch = real(*arguments)
        monkeypatch.setattr(load_run, "staged_again", real)
        lake.store.put("_lakehouse/staged/bronze/events/2-x/00000.parquet", b"")
        write_table(lake, spark, events)
        return batch

    monkeypatch.setattr(load_run, "staged_again", then_another_home)
    with pytest.raises(Transient, match="batch 1 is in the table, but a statement of this load"):
        write_table(lake, spark, events)
    [staged] = lake.store.list("_lakehouse/staged/bronze/events")
    assert "/2-x/" in staged.name
    lake.store.delete([staged.name])
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED
    assert rows_in(lake, events.key, "id") == [(1,)]


@pytest.mark.long
def test_an_archived_object_is_set_aside_with_what_to_do_and_loaded_after_a_retry(
    lake: Lake, spark: SparkSession, bucket: str
) -> None:
    """It does not hold up the others; a listing shows it as DEEP_ARCHIVE before and after the restore."""
    s3 = S3Store(bucket, "in")
    there = replace(lake, store=MountedStore(lake.store, {"landing/events": (s3, "")}))
    for name, storage_class in (("a.json", "DEEP_ARCHIVE"), ("b.json", "STANDARD")):
        line = json.dumps(event(ord(name[0]), 5, "new")).encode()
        s3.client.put_object(Bucket=bucket, Key=f"in/{name}", Body=line, StorageClass=storage_class)
    outcome = write_table(there, spark, events)
    [aside] = outcome.set_aside
    assert (aside.name, aside.is_quarantined) == ("a.json", True)
    assert aside.why.startswith("it is archived in storage class DEEP_ARCHIVE")
    assert "aws s3api restore-object" in aside.why
    assert rows_in(lake, events.key, "id") == [(98,)]
    s3.requests.clear()
    assert write_table(there, spark, events).reason is Reason.NOTHING_LANDED
    assert s3.requests == {"ListObjectsV2": 1}
    s3.client.restore_object(Bucket=bucket, Key="in/a.json", RestoreRequest={"Days": 1})
    assert write_table(there, spark, events).reason is Reason.NOTHING_LANDED
    session = TableSession(lake=there, spark=spark, table=events)
    assert retry(session, [], dry_run=False).files == 1
    assert write_table(there, spark, events).rows_written == 1
    assert rows_in(lake, events.key, "id") == [(97,), (98,)]
    assert rows_in(lake, QUARANTINE, "source_file") == []
