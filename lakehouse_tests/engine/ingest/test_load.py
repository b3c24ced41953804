"""Landed files become rows exactly once, and a line that is no row is kept with its reason."""

import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.core.declaration.table import TRANSACTION_RETENTION, Append, Landing, Overwrite, Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.reasons import Reason
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest import commit_rows, load, staging
from lakehouse.engine.ingest import retire as retiring
from lakehouse.engine.ingest.arrival import record_arrived
from lakehouse.engine.ingest.parse_lines import parse_lines
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal import landed_batches
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.landing.handed_over import hand_over
from lakehouse.engine.store import DiskStore
from lakehouse_tests.engine.example import event, events, land, rows_of, version_of
from lakehouse_tests.kills import Killed, dying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUARANTINE = "quarantine/bronze/events"

codes = Table(
    key="bronze/codes",
    source=Landing(prefix="landing/codes/", format="csv", schema="code STRING, n INT, name STRING", null_value="NA", required=("code",)),
    write=Overwrite(),
)


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
    land(lake, "sub dir/a [b] {c}*? 10:30 100%+ü\\.json", lines)
    land(lake, "b.jsonl", [event(10, 6, "new"), "{'id': 11, 'x': 1.50}"])
    land(lake, "readme.txt", ["hello"])
    land(lake, ".unfinished.json", ["{}"])
    outcome = write_table(lake, spark, events)
    assert (outcome.reason, outcome.rows_written, outcome.rows_quarantined, outcome.files_read) == (Reason.BATCH_READY, 4, 9, 2)
    assert [(aside.name, aside.why) for aside in outcome.set_aside] == [
        ("readme.txt", "its name ends in none of .json, .jsonl, .json.gz, .jsonl.gz, .json.zst, .jsonl.zst")
    ]
    name = "landing/events/sub dir/a [b] {c}*? 10:30 100%+ü\\.json"
    assert outcome.rows_rescued == 2
    assert rows_of(spark, lake, events.key, "id", "_source_file", "_source_line", "state", "_rescued") == [
        (1, name, 1, "new", None),
        (10, "landing/events/b.jsonl", 1, "new", None),
        (11, "landing/events/b.jsonl", 2, None, '{"x":1.5}'),
        (9, name, 12, None, '{"unknown": {"x": [1]}}'),
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


def test_a_second_run_adds_no_rows_makes_no_commit_and_reads_the_log_once(
    lake: Lake, spark: "SparkSession", log_reads: Counter[str]
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), "nope"])
    write_table(lake, spark, events)
    log_reads.clear()
    again = write_table(lake, spark, events)
    assert log_reads == {events.key: 1}
    assert (again.reason, again.committed, again.rows_written) == (Reason.NOTHING_LANDED, False, 0)
    assert (version_of(lake, events.key), version_of(lake, QUARANTINE)) == (0, 0)
    land(lake, "b.json", [event(2, 5, "new")])
    log_reads.clear()
    outcome = write_table(lake, spark, events)
    assert log_reads == {events.key: 2} and outcome.facts == lake.facts(events.key)


def test_what_is_handed_over_is_loaded_alone_and_once_and_a_listing_alone_folds_the_ledger(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    assert events.source is not None
    monkeypatch.setattr(landed_batches, "FOLD_EVERY", 1)
    for name in ("a.json", "b.json"):
        land(lake, name, [event(1, 5, name)])
    hand_over(lake.store, events.key, events.source, 1, landed_batches.landed_files(lake.store, events.source)[1:])
    assert write_table(lake, spark, events, handed_batch=1).rows_written == 1
    assert [file.name.rpartition("/")[2] for file in lake.store.list("_lakehouse/ingest")] == [f"{1:020}.json"]
    assert write_table(lake, spark, events, handed_batch=1).rows_written == 1  # it comes a second time, and so lists
    assert rows_of(spark, lake, events.key, "state") == [("a.json",), ("b.json",)]
    assert [file.name.rpartition("/")[2] for file in lake.store.list("_lakehouse/ingest")] == [f"segment-{2:020}.json"]


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
    assert [file.name for file in LandedBatches(lake.store, events.key, prefix="landing/events/").ledger().newest.files] == ["b.json"]  # type: ignore[union-attr]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_killed_between_staging_and_manifest_is_read_anew_and_one_killed_after_it_is_done_again(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Staged records without a manifest are nobody's: by then the files may be others, and fewer parts."""
    monkeypatch.setattr(staging, "_PART_RECORDS", 1)
    land(lake, "a.json", [event(1, 5, "new"), event(2, 5, "new"), "nope"])
    monkeypatch.setattr(LandedBatches, "plan", dying(LandedBatches.plan, when))
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    parts = [file.name.rpartition("/")[2] for file in lake.store.list(f"_lakehouse/staged/{events.key}")]
    assert parts == ["00000.parquet", "00001.parquet", "00002.parquet"]
    land(lake, "a.json", [event(1, 5, "other")])
    write_table(lake, spark, events)
    if when == "before":
        assert (rows_of(spark, lake, events.key, "id", "state"), version_of(lake, QUARANTINE)) == ([(1, "other")], None)
    else:
        assert rows_of(spark, lake, events.key, "id", "state") == [(1, "new"), (2, "new")]
        assert rows_of(spark, lake, QUARANTINE, "line", "raw") == [(3, "nope"), (None, None)]  # the line, and the file that has changed
    assert lake.store.list("_lakehouse/staged") == []


def test_many_files_arrive_in_several_batches_of_one_run_and_folded_ones_stay_known(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.engine.journal.landed_batches.FOLD_EVERY", 2)
    small = replace(events, source=replace(_landing(events), max_batch_files=2))
    for number in range(3):
        land(lake, f"{number}.json", [event(number, 5, "new")])
    outcome = write_table(lake, spark, small)
    assert (outcome.files_read, outcome.rows_written, version_of(lake, events.key)) == (3, 3, 1)
    assert outcome.sentence.startswith("batch 1 to 2 has 3 landed files (")
    assert [file.name.rpartition("/")[2][:8] for file in lake.store.list(f"_lakehouse/ingest/{events.key}")] == ["segment-"]
    land(lake, "3.json", [event(3, 5, "new")])
    assert (write_table(lake, spark, small).files_read, write_table(lake, spark, small).reason) == (1, Reason.NOTHING_LANDED)


def test_a_batch_of_foreign_files_only_is_noted_once_and_makes_no_table(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "notes.txt", ["hello"])
    land(lake, "empty.json", [])
    first = write_table(lake, spark, events)
    second = write_table(lake, spark, events)
    assert sorted(aside.name for aside in first.set_aside) == ["empty.json", "notes.txt"]
    assert (second.reason, second.set_aside, version_of(lake, events.key)) == (Reason.NOTHING_LANDED, (), None)


@pytest.mark.parametrize("change", [b"", b'{"id": 1, "state": "other"}\n{"id": 2}'], ids=["gone", "changed"])
def test_a_batch_that_was_killed_has_the_records_that_were_read_whatever_becomes_of_its_files(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), "nope"])
    _kill_at(monkeypatch, 2, "before")
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    lake.store.put("landing/events/a.json", change) if change else lake.store.delete(["landing/events/a.json"])
    staged = {file.name: lake.store.read(file.name) for file in lake.store.list("_lakehouse/staged")}
    lake.store.delete([*staged])
    for _ in range(2):  # what the first try read is not what the batch was, and is not taken for it by the second
        with pytest.raises(Broken, match=r"batch 1 was planned with 1 file.*'a.json'"):
            write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/staged")) == (None, [])
    for name, data in staged.items():
        lake.store.put(name, data)
    outcome = write_table(lake, spark, events)
    assert rows_of(spark, lake, events.key, "id", "state") == [(1, "new")]
    assert rows_of(spark, lake, QUARANTINE, "raw") == [("nope",)] + ([(None,)] if change else [])
    assert [aside.name for aside in outcome.set_aside] == (["a.json"] if change else [])
    assert lake.store.list("_lakehouse/staged") == []


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


def test_a_table_made_anew_by_another_declaration_loses_no_line(lake: Lake, spark: "SparkSession") -> None:
    """Its quarantine knows the number of each batch: what is refused only now stands there, too, and nothing twice."""
    # The text of the last line is staged as another where n is a STRING.
    stateless, unfit = {"id": 2, "at": "2013-01-01T05:00:00Z"}, '{"id": "x", "n": 1.10}'
    schema = f"{_landing(events).schema}, n STRING"
    strict = replace(events, source=replace(_landing(events), schema=schema, required=("id", "state")))
    land(lake, "a.json", [event(1, 5, "new"), "nope a", stateless, unfit])
    write_table(lake, spark, events)
    land(lake, "b.json", [event(3, 5, "new"), "nope b"])
    write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list(events.key)])
    write_table(lake, spark, strict)
    refused = [("nope a", 1), ("nope b", 2), (unfit, 1), (json.dumps(stateless), 1)]
    assert (rows_of(spark, lake, events.key, "id"), rows_of(spark, lake, QUARANTINE, "raw", "batch")) == ([(1,), (3,)], refused)

    lake.store.delete([file.name for folder in (events.key, "_lakehouse/ingest") for file in lake.store.list(folder)])
    land(lake, "c.json", ["nope c"])
    write_table(lake, spark, strict)
    now = sorted([*refused, ("nope c", 1)], key=str)
    assert (rows_of(spark, lake, events.key, "id"), rows_of(spark, lake, QUARANTINE, "raw", "batch")) == ([(1,), (3,)], now)


def test_a_file_that_another_declaration_cannot_read_stops_a_table_that_is_made_anew(lake: Lake, spark: "SparkSession") -> None:
    appended = replace(codes, write=Append())
    land(lake, "a.csv", ["code,n,name", "A,1,one"], prefix="landing/codes/")
    write_table(lake, spark, appended)
    lake.store.delete([file.name for file in lake.store.list(codes.key)])
    wider = replace(appended, source=replace(_landing(codes), schema="code STRING, n INT, name STRING, more STRING"))
    for _ in range(2):
        with pytest.raises(Broken, match=r"its file 'a.csv' was read then and cannot be now: its header is 'code,n,name' and not code,n,n"):
            write_table(lake, spark, wider)
    write_table(lake, spark, appended)
    assert rows_of(spark, lake, codes.key, "code", "n") == [("A", 1)]


def test_a_table_whose_manifests_are_lost_is_not_loaded_again(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list("_lakehouse/ingest")])
    with pytest.raises(Broken, match=r"batch 1 is in the table, but the newest manifest .* is 0.*restore the manifests"):
        write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/ingest")) == (0, [])


def test_an_expression_that_fails_on_one_row_gives_null_and_blocks_nobody(lake: Lake, spark: "SparkSession") -> None:
    derived = replace(events, write=Append(), source=replace(_landing(events), derived={"number": "CAST(state AS INT)"}))
    land(lake, "a.json", [event(1, 5, "17"), event(2, 5, "seventeen")])
    write_table(lake, spark, derived)
    assert rows_of(spark, lake, events.key, "id", "number") == [(1, 17), (2, None)]


def test_csv_is_read_below_its_header_and_a_file_with_another_header_is_set_aside(lake: Lake, spark: "SparkSession") -> None:
    appended = replace(codes, write=Append())
    land(lake, "a.csv", ["code,n,name", 'A,1,"one, ""uno"""', "B,NA,NA", "C,x,three", "NA,4,four", "D,5", ""], prefix="landing/codes/")
    land(lake, "b.csv", ["code,name,n", "E,five,5", "F,six,6"], prefix="landing/codes/")
    outcome = write_table(lake, spark, appended)
    assert (outcome.rows_quarantined, [aside.name for aside in outcome.set_aside]) == (3, ["b.csv"])
    assert rows_of(spark, lake, codes.key, "code", "n", "name", "_source_line") == [("A", 1, 'one, "uno"', 2), ("B", None, None, 3)]
    assert rows_of(spark, lake, "quarantine/bronze/codes", "source_file", "line", "reason") == [
        ("landing/codes/a.csv", 4, "a field does not fit the schema"),
        ("landing/codes/a.csv", 5, "required field code is missing"),
        ("landing/codes/a.csv", 6, "a field does not fit the schema"),
        ("landing/codes/b.csv", None, "its header is 'code,name,n' and not code,n,name"),
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


def test_a_csv_field_over_several_lines_is_one_field_and_a_file_with_an_open_quote_may_be_landed_again(
    lake: Lake, spark: "SparkSession"
) -> None:
    appended = replace(codes, write=Append())
    lines = ['A,1,"first', 'second"', 'B,2,"x', 'C,3,injected"', 'D,4,"say ""hi"""', "NA,5,five"]
    land(lake, "a.csv", ["code,n,name", *lines], prefix="landing/codes/")
    land(lake, "b.csv", ["code,n,name", "E,6,six", 'F,7,"seven', "G,8,eight"], prefix="landing/codes/")
    [aside] = write_table(lake, spark, appended).set_aside
    assert (aside.name, aside.why.partition(",")[0]) == ("b.csv", "the quote that opens in line 3 is never closed")
    assert rows_of(spark, lake, codes.key, "_source_line", "code", "n", "name") == [
        (2, "A", 1, "first\nsecond"),
        (4, "B", 2, "x\nC,3,injected"),
        (6, "D", 4, 'say "hi"'),
    ]
    missing = (7, "required field code is missing")
    assert missing in rows_of(spark, lake, "quarantine/bronze/codes", "line", "reason")
    land(lake, "b.csv", ["code,n,name", "E,6,six", "F,7,seven", "G,8,eight"], prefix="landing/codes/")
    write_table(lake, spark, appended)
    assert rows_of(spark, lake, codes.key, "_source_line", "code")[-3:] == [(4, "B"), (4, "G"), (6, "D")]


def test_a_file_that_cannot_be_read_stands_alone_and_may_be_landed_again(lake: Lake, spark: "SparkSession") -> None:
    whole = gzip.compress(json.dumps(event(2, 5, "new")).encode())
    land(lake, "a.json", [event(1, 5, "new")])
    lake.store.put("landing/events/b.json.gz", whole[:-4])
    lake.store.put("landing/events/c.json.gz", gzip.compress(b"\n" * 1_100_000))
    land(lake, "d.json", [event(4, 5, "new")])
    small = replace(events, source=replace(_landing(events), max_file_bytes=250_000))
    first = write_table(lake, spark, small)
    assert rows_of(spark, lake, events.key, "id") == [(1,), (4,)]
    assert [(aside.name, aside.why[:35]) for aside in first.set_aside] == [
        ("b.json.gz", "its gzip is damaged after 0 unpacke"),
        ("c.json.gz", "it unpacks to more than 1000000 byt"),
    ]
    assert write_table(lake, spark, small).reason is Reason.NOTHING_LANDED
    lake.store.put("landing/events/b.json.gz", whole)
    lake.store.delete(["landing/events/c.json.gz"])
    write_table(lake, spark, small)
    assert rows_of(spark, lake, events.key, "id", "_source_file")[1] == (2, "landing/events/b.json.gz")
    found = rows_of(spark, lake, QUARANTINE, "source_file", "line", "raw", "batch")
    assert found == [(f"landing/events/{name}.json.gz", None, None, 1) for name in ("b", "c")]


def test_a_newest_file_without_a_row_leaves_an_overwrite_as_it_is(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.csv", ["code,n,name", "A,1,one"], prefix="landing/codes/")
    write_table(lake, spark, codes)
    land(lake, "2.csv", ["code,n,name", "B,2,two"], prefix="landing/codes/")
    for name, lines in (("3", []), ("4", ["n,code", "3,C"]), ("5", ["code,n,name", "D,x,4", "NA,5,five"]), ("6", ["code,n,name"])):
        land(lake, f"{name}.csv", lines, prefix="landing/codes/")
    outcome = write_table(lake, spark, codes)
    assert rows_of(spark, lake, codes.key, "code") == [("B",)]
    assert [aside.name for aside in outcome.set_aside] == ["6.csv", "5.csv", "4.csv", "3.csv"]
    found = rows_of(spark, lake, "quarantine/bronze/codes", "source_file", "line")
    assert found == [
        (f"landing/codes/{name}.csv", line) for name, line in (("3", None), ("4", None), ("5", 2), ("5", 3), ("5", None), ("6", None))
    ]
    land(lake, "5.csv", ["code,n,name", "E,5,five"], prefix="landing/codes/")
    write_table(lake, spark, codes)
    assert rows_of(spark, lake, codes.key, "code") == [("E",)]


def test_a_file_that_was_loaded_is_never_loaded_again_whatever_becomes_of_it(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "grows.json", [event(1, 5, "new")])
    land(lake, "same size.json", [event(2, 5, "new")])
    land(lake, "touched.json", [event(3, 5, "new")])
    write_table(lake, spark, events)
    rows_before = rows_of(spark, lake, events.key, "id", "state")
    land(lake, "grows.json", [event(1, 5, "new"), event(9, 5, "late")])
    land(lake, "same size.json", [event(2, 5, "old")])
    land(lake, "touched.json", [event(3, 5, "new")])
    for name in ("same size.json", "touched.json"):
        os.utime(Path(lake.settings.root, "landing/events", name), (1_000_000_000, 1_000_000_000))
    outcome = write_table(lake, spark, events)
    assert {aside.name: aside.why.partition(";")[0] for aside in outcome.set_aside} == {
        "grows.json": "it had 55 bytes when it was taken and it has 112 now",
        "same size.json": "it had 55 bytes when it was taken and its content is another",
        "touched.json": "it was written again, with the content that was taken",
    }
    assert rows_of(spark, lake, events.key, "id", "state") == rows_before
    assert rows_of(spark, lake, QUARANTINE, "source_file") == [("landing/events/grows.json",), ("landing/events/same size.json",)]
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED


def test_a_file_that_grows_or_goes_while_it_is_read_is_settled_by_what_was_read(lake: Lake, spark: "SparkSession") -> None:
    class Busy(DiskStore):
        """Somebody writes to the landing area between our listing and our reading."""

        def read_many(self, names: Sequence[str]) -> Iterator[bytes]:
            for name in names:
                if name.endswith("grows.json") and b"late" not in self.read(name):
                    self.put(name, self.read(name) + b"\n" + json.dumps(event(2, 5, "late")).encode())
                if name.endswith("gone.json"):
                    self.delete([name])
            return super().read_many(names)

    land(lake, "grows.json", [event(1, 5, "new")])
    land(lake, "gone.json", [event(3, 5, "new")])
    outcome = write_table(replace(lake, store=Busy(Path(lake.settings.root))), spark, events)
    assert (outcome.files_read, outcome.set_aside, rows_of(spark, lake, events.key, "id")) == (1, (), [(1,), (2,)])
    again = write_table(lake, spark, events)
    assert [(aside.name, aside.why) for aside in again.set_aside] == [
        ("grows.json", "it was written again, with the content that was taken")
    ]
    assert write_table(lake, spark, events).reason is Reason.NOTHING_LANDED


def test_a_loaded_file_that_a_person_moves_renames_packs_or_unpacks_is_not_loaded_again(lake: Lake, spark: "SparkSession") -> None:
    root = Path(lake.settings.root, "landing/events")
    same = [event(1, 5, "same")]
    for name in ("moved.json", "renamed.json", "packed.json", "copied.json", "gone.json"):
        land(lake, name, same if name in ("copied.json", "gone.json") else [event(2, 5, name)])
    (root / "unpacked.json.gz").write_bytes(gzip.compress(json.dumps(event(3, 5, "new")).encode()))
    write_table(lake, spark, events)
    before = rows_of(spark, lake, events.key, "id", "_source_file")
    assert len(before) == 6

    (root / "done").mkdir()
    (root / "moved.json").rename(root / "done" / "moved.json")
    (root / "renamed.json").rename(root / "other.json")
    for name, packed in (("packed.json.gz", gzip.compress((root / "packed.json").read_bytes())), ("unpacked.json", None)):
        old = root / ("packed.json" if packed else "unpacked.json.gz")
        (root / name).write_bytes(packed or gzip.decompress(old.read_bytes()))
        os.utime(root / name, ns=(0, old.stat().st_mtime_ns))  # as gzip and gunzip do
        old.unlink()
    os.utime(root / "copied.json", ns=(0, (was := (root / "copied.json").stat().st_mtime_ns)))
    shutil.copy2(root / "copied.json", root / "twin.json")  # beside the other, and so of its own
    (root / "gone.json").unlink()
    land(lake, "again.json", same)  # the content of a file that is gone, and another time
    os.utime(root / "again.json", ns=(0, was + 10**9))
    outcome = write_table(lake, spark, events)
    assert {aside.name: aside.why for aside in outcome.set_aside} == {
        new: f"it was loaded as landing/events/{old}, and moved or packed since; if it is another file, copy it to a new name"
        for new, old in {
            "done/moved.json": "moved.json",
            "other.json": "renamed.json",
            "packed.json.gz": "packed.json",
            "unpacked.json": "unpacked.json.gz",
        }.items()
    }
    more = [(1, "landing/events/again.json"), (1, "landing/events/twin.json")]
    assert rows_of(spark, lake, events.key, "id", "_source_file") == sorted([*before, *more], key=str)
    assert rows_of(spark, lake, QUARANTINE, "source_file") == sorted((f"landing/events/{each.name}",) for each in outcome.set_aside)
    shutil.copy(root / "other.json", root / "new.json")  # a person says that it is another
    assert (write_table(lake, spark, events).rows_written, write_table(lake, spark, events).reason) == (1, Reason.NOTHING_LANDED)


def test_equal_names_below_another_prefix_are_other_files(lake: Lake, spark: "SparkSession") -> None:
    moved = replace(events, source=replace(_landing(events), prefix="landing/moved/"))
    for prefix in ("landing/events/", "landing/moved/"):
        land(lake, "a.json", [event(1, 5, "new")], prefix=prefix)
    write_table(lake, spark, events)
    write_table(lake, spark, moved)
    assert rows_of(spark, lake, events.key, "_source_file") == [("landing/events/a.json",), ("landing/moved/a.json",)]


def test_loaded_files_leave_the_landing_area_with_the_next_load_and_are_not_loaded_again_when_they_come_back(
    lake: Lake, spark: "SparkSession"
) -> None:
    archiving = replace(events, source=replace(_landing(events), after_load="archive", keep_days=0))
    land(lake, "a.json", [event(1, 5, "new")])
    land(lake, "b.json", [event(2, 5, "new"), "nope"])
    sentences: list[str] = []
    for _ in range(2):
        write_table(lake, spark, archiving, tell=sentences.append)
    assert [file.name for file in lake.store.list("landing/events")] == ["landing/events/b.json"]
    assert sentences == [
        "bronze/events: batch 1: 2 files, 2 rows; 0 files wait",
        "bronze/events: 1 loaded files (55 B) go to the archive; 1 stay: they, or lines of them, are in quarantine",
    ]
    land(lake, "a.json", [event(1, 5, "new")])
    again = write_table(lake, spark, archiving)
    assert (again.rows_written, rows_of(spark, lake, events.key, "id")) == (0, [(1,), (2,)])


def test_files_of_a_table_that_is_loaded_seldom_go_though_the_load_makes_delta_forget_their_commit(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replace(_landing(events), after_load="delete", keep_days=30)
    deleting = replace(events, source=source, properties={"delta.checkpointInterval": "1"})
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, deleting)
    land(lake, "b.json", [event(2, 5, "new")])
    log = Path(lake.settings.root, events.key, "_delta_log")
    for path in log.iterdir():  # forty days pass
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 40 * 86_400))
    monkeypatch.setattr(retiring, "now_ms", lambda: now_ms() + 40 * DAY_MS)
    write_table(lake, spark, deleting)
    assert not (log / f"{0:020}.json").exists()  # Delta has cleaned up
    assert [file.name for file in lake.store.list("landing/events")] == ["landing/events/b.json"]
    assert rows_of(spark, lake, events.key, "id") == [(1,), (2,)]


def test_a_table_that_does_not_tell_its_batches_is_loaded_only_after_a_person_has_told_them(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    uri = lake.settings.table_uri(events.key)
    spark.read.format("delta").load(uri).write.format("delta").partitionBy("day").save(f"{uri}_copy")
    shutil.rmtree(uri)
    Path(f"{uri}_copy").rename(uri)
    land(lake, "b.json", [event(2, 5, "new")])
    for _ in range(2):
        with pytest.raises(Broken, match=r"no transaction id of a landed batch, and 1 batch\(es\) were planned.*--arrived N"):
            write_table(lake, spark, events)
    assert rows_of(spark, lake, events.key, "id") == [(1,)]
    with pytest.raises(Refused, match="--arrived is 2; accepted: 0 to 1"):
        record_arrived(lake, spark, events, 2)
    record_arrived(lake, spark, events, 1)
    with pytest.raises(Refused, match="it holds the batches up to 1"):
        record_arrived(lake, spark, events, 0)
    write_table(lake, spark, events)
    assert rows_of(spark, lake, events.key, "id") == [(1,), (2,)]
    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('{TRANSACTION_RETENTION}' = 'interval 1 days')")
    with pytest.raises(Refused, match=rf"{TRANSACTION_RETENTION} is 'interval 1 days', with which Delta forgets"):
        write_table(lake, spark, events)


def test_a_table_that_was_renamed_is_loaded_only_after_a_person_has_told_its_batches(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    renamed = replace(events, key="bronze/renamed")
    for folder in (".", "_lakehouse/ingest"):
        root = Path(lake.settings.root, folder)
        (root / events.key).rename(root / renamed.key)
        if folder == ".":
            with pytest.raises(Broken, match=r"has rows, but .* was it renamed, or copied\? Accepted: .* --arrived N; or --arrived 0"):
                write_table(lake, spark, renamed)
    with pytest.raises(Broken, match=r"no transaction id of a landed batch, and 1 batch\(es\) were planned.*--arrived N"):
        write_table(lake, spark, renamed)
    record_arrived(lake, spark, renamed, 1)
    land(lake, "b.json", [event(2, 5, "new")])
    write_table(lake, spark, renamed)
    assert rows_of(spark, lake, renamed.key, "id") == [(1,), (2,)]


def test_a_batch_that_is_done_again_by_a_declaration_with_fewer_columns_is_refused(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, events)
    land(lake, "b.json", [event(2, 5, "new")])
    _kill_at(monkeypatch, 1, "before")
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    fewer = replace(events, source=replace(_landing(events), schema="id BIGINT, at TIMESTAMP"))
    with pytest.raises(Refused, match=r"its declaration gives state as absent \(the table: string\)"):
        write_table(lake, spark, fewer)
    write_table(lake, spark, events)
    assert rows_of(spark, lake, events.key, "id", "state") == [(1, "new"), (2, "new")]


def test_a_write_that_leaves_no_trace_of_its_batch_or_has_other_rows_is_not_repeated(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), event(2, 5, "new")])
    real = commit_rows.write_frame

    def without_id(*arguments: Any, transaction: object, **options: Any) -> None:
        real(*arguments, **options)

    def without_a_row(frame: "DataFrame", *arguments: Any, **options: Any) -> None:
        real(frame.where("id = 1"), *arguments, **options)

    def without_a_line(*arguments: Any) -> "DataFrame":
        return parse_lines(*arguments).where("id = 1")

    monkeypatch.setattr(load, "parse_lines", without_a_line)
    with pytest.raises(Broken, match=r"of the 2 staged record\(s\) of batch 1 Spark found 1 row\(s\) and 0 others"):
        write_table(lake, spark, events)
    assert (version_of(lake, events.key), lake.store.list("_lakehouse/ingest")) == (None, [])
    monkeypatch.setattr(load, "parse_lines", parse_lines)
    monkeypatch.setattr(load.commit_rows, "write_frame", without_a_row)
    with pytest.raises(Broken, match=r"batch 1 has 2 row\(s\), but version 0 of the table says that 1 were written"):
        write_table(lake, spark, events)
    lake.store.delete([file.name for file in lake.store.list(events.key)])
    monkeypatch.setattr(load.commit_rows, "write_frame", without_id)
    with pytest.raises(Broken, match="batch 1 was written, but the table's log has batch 0 as its last"):
        write_table(lake, spark, events)
    assert version_of(lake, events.key) == 0


def test_a_file_set_aside_alone_is_quarantined_though_the_run_was_killed_before(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.store.put("landing/events/a.json.gz", b"no gzip")
    _kill_at(monkeypatch, 1, "before")
    with pytest.raises(Killed):
        write_table(lake, spark, events)
    monkeypatch.undo()
    for _ in range(2):
        write_table(lake, spark, events)
        assert rows_of(spark, lake, QUARANTINE, "source_file", "batch") == [("landing/events/a.json.gz", 1)]


def test_a_backlog_is_worked_off_in_batches_bounded_by_what_the_files_unpack_to(lake: Lake, spark: "SparkSession") -> None:
    small = replace(events, source=replace(_landing(events), max_batch_bytes=2_000, max_file_bytes=20_000))
    for number in range(4):
        lines = b"\n".join(json.dumps(event(number * 100 + each, 5, "x" * 20)).encode() for each in range(80))
        lake.store.put(f"landing/events/{number}.json.gz", gzip.compress(lines))
    outcome = write_table(lake, spark, small)
    assert (outcome.files_read, outcome.rows_written, version_of(lake, events.key)) == (4, 320, 1)


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
    first = lake.facts(events.key, version=0)
    assert first is not None and first.snapshot.properties["delta.checkpointInterval"] == "5"  # in the commit that made the table
    write_table(lake, spark, replace(events, properties={"delta.checkpointInterval": "7"}))
    assert ("delta.checkpointInterval", "7") in _properties(lake)


def _properties(lake: Lake) -> set[tuple[str, str]]:
    facts = lake.facts(events.key)
    assert facts is not None
    return set(facts.snapshot.properties.items())


def _landing(table: Table) -> Landing:
    assert table.source is not None
    return table.source


def _kill_at(monkeypatch: pytest.MonkeyPatch, number: int, when: str) -> None:
    """The process ends before or after its `number`th commit."""
    real, calls = commit_rows.write_frame, iter(range(1, 100))

    def write_frame(*arguments: Any, **options: Any) -> None:
        (dying(real, when) if next(calls) == number else real)(*arguments, **options)

    monkeypatch.setattr(load.commit_rows, "write_frame", write_frame)
