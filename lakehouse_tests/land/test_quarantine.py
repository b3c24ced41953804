"""Quarantined lines and files are loaded again through the landing area, and each stays accounted for."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Csv, Debezium, Landing, Merge, Table
from lakehouse.base.errors import Refused
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake, TableSession, open_lake
from lakehouse.land import quarantine
from lakehouse.land import run as load_run
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse.spark.session import connect
from lakehouse.write import commit_rows
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import event, events, land, rows_in
from lakehouse_tests.support.terminal import Terminal

QUARANTINE = "quarantine/bronze/events"
LENIENT = '{"id": 2, "state": "kept"}'
A, B, GONE, LARGE = (
    f"landing/events/{name}" for name in ("a.json", "b.json", "gone.json.gz", "large.json")
)
RETRIED = "landing/events/_retry/bronze/events"


def test_no_server_starts_for_a_table_without_a_quarantine(terminal: Terminal) -> None:
    refusal = terminal.refused("quarantine", "show", "bronze/orders")
    assert "nothing was ever quarantined" in refusal
    assert len(refusal.splitlines()) == 1


def declared(**changes: Any) -> Table:
    assert isinstance(events.source, Landing)
    return replace(events, source=replace(events.source, **changes))


STRICT = declared(required=("id", "at"), max_file_bytes=250, new_columns="refuse")


@pytest.fixture(scope="module")
def of_refused(shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake for `refused`."""
    lake = open_lake(
        replace(shared_settings, root=str(tmp_path_factory.mktemp("refused") / "lake"))
    )
    land(
        lake,
        "a.json",
        [event(1, 5, "new"), LENIENT, '{"id": 3, "state": "kept too", "extra": [1.50]}', "nope"],
    )
    land(lake, "large.json", [event(number, 6, "new") for number in range(10, 20)])
    lake.store.put("landing/events/b.json", b'\xff{"id": 4}')
    write_table(lake, connect(lake.settings), STRICT)
    return Path(lake.settings.root)


@pytest.fixture
def refused(lake: Lake, of_refused: Path) -> Lake:
    """A table that is declared too strictly: one row, two lines that another declaration takes, two that none does, and a large file."""
    shutil.copytree(of_refused, lake.settings.root)
    assert rows_in(lake, events.key, "id") == [(1,)]
    return lake


def places(lake: Lake) -> list[tuple[Any, ...]]:
    return rows_in(lake, QUARANTINE, "source_file", "line")


def retried_files(lake: Lake, folder: str = RETRIED) -> list[str]:
    return [file.name for file in lake.store.list(folder)]


def of(lake: Lake, spark: SparkSession, table: Table = events) -> TableSession:
    return TableSession(lake=lake, spark=spark, table=table)


@pytest.mark.long
def test_lines_and_files_are_loaded_as_declared_now(refused: Lake, spark: SparkSession) -> None:
    lake, before = refused, places(refused)
    assert before == [(A, 2), (A, 3), (A, 4), (B, 1), (LARGE, None)]
    shown = quarantine.show(of(lake, spark, STRICT), [A], limit=1)
    why = ("not JSON", "required field at is missing", "the schema does not name extra")
    assert shown["reasons"] == [{"reason": each, "count": 1} for each in why]
    assert [(entry["source_file"], entry["line"], entry["raw"]) for entry in shown["entries"]] == [
        (A, 2, LENIENT)
    ]

    planned = retry(of(lake, spark), [], dry_run=True)
    kept = {"not JSON": 1, "not UTF-8": 1}
    assert (planned.lines, planned.files, planned.left) == (2, 1, kept)
    expected = (before, [], [(1,)])
    assert (places(lake), retried_files(lake), rows_in(lake, events.key, "id")) == expected

    less_strict = declared(new_columns="refuse")
    done = retry(of(lake, spark, less_strict), [], dry_run=False)
    [first] = retried_files(lake)
    assert done.sentence == (
        f"landed 2 lines again in {first}; to be read again: 1 file; "
        "1 kept: not JSON; 1 kept: not UTF-8"
    )
    raw = '{"id": 3, "state": "kept too", "extra": [1.50]}'
    assert lake.store.read(first).decode() == f"{LENIENT}\n{raw}\n"
    assert places(lake) == [(A, 4), (B, 1)]
    write_table(lake, spark, less_strict)
    assert rows_in(lake, QUARANTINE, "source_file", "line", "reason") == [
        (first, 2, "the schema does not name extra"),
        (A, 4, "not JSON"),
        (B, 1, "not UTF-8"),
    ]
    assert len(rows_in(lake, events.key, "id")) == 12

    assert retry(of(lake, spark), [], dry_run=False).lines == 1
    write_table(lake, spark, events)
    [second] = {*retried_files(lake)} - {first}
    columns = ("id", "_source_file", "_source_line", "state", "_rescued")
    added = [row for row in rows_in(lake, events.key, *columns) if row[1].startswith(RETRIED)]
    assert added == [(2, first, 1, "kept", None), (3, second, 1, "kept too", '{"extra": [1.50]}')]
    assert places(lake) == [(A, 4), (B, 1)]

    with pytest.raises(Refused, match="--why is empty"):
        quarantine.drop(of(lake, spark), [], why=" ", dry_run=False)
    assert quarantine.drop(of(lake, spark), [B], why="x", dry_run=True).dropped == 1
    quarantine.drop(of(lake, spark), [B], why="sent again by post", dry_run=False)
    assert places(lake) == [(A, 4)]
    assert lake.store.stat(B) is not None
    with pytest.raises(Refused, match="nothing was ever quarantined"):
        retry(of(lake, spark, replace(events, key="bronze/others")), [], dry_run=False)


@pytest.mark.long
def test_a_file_that_is_gone_or_was_loaded_stays(refused: Lake, spark: SparkSession) -> None:
    lake = refused
    land(lake, "a.json", [event(1, 5, "new"), event(4, 5, "late")])
    lake.store.put(GONE, b"no gzip")
    write_table(lake, spark, events)
    lake.store.delete([GONE])
    done = retry(of(lake, spark), [A, GONE], dry_run=True)
    assert (done.lines, done.files, done.left) == (
        2,
        0,
        {
            "not JSON": 1,
            "rows of the file are loaded. Land only the new rows, in a file with a new name": 1,
            "the file is gone from landing/events/": 1,
        },
    )


@pytest.mark.long
def test_a_retry_killed_at_any_step_lands_each_line_once_however_it_goes_on(
    refused: Lake, spark: SparkSession
) -> None:
    """Loads, other selections and another declaration come in between."""
    lake = refused
    second = '{"id": 5, "state": "kept"}'
    held = places(lake)

    def killed(step: str, when: str) -> None:
        with killed_at(quarantine, step, when):
            retry(of(lake, spark), [A], dry_run=False)

    killed("_mark", "before")
    assert (places(lake), retried_files(lake)) == (held, [])
    killed("_mark", "after")
    land(lake, "c.json", [second])
    write_table(lake, spark, STRICT)
    killed("_content", "after")  # before the file is written
    assert retried_files(lake) == []
    with killed_at(quarantine.statements, "delete_rows", "before"):
        retry(of(lake, spark), ["landing/events/c.json"], dry_run=False)
    files = retried_files(lake)
    write_table(lake, spark, events)
    assert (A, 2) in places(lake)  # it is in both places, until the next retry
    lake.store.delete(files)  # a lifecycle rule ends loaded files
    assert retry(of(lake, spark), [], dry_run=False).lines == 3
    write_table(lake, spark, events)
    ids = [number for (number,) in rows_in(lake, events.key, "id")]
    assert [ids.count(number) for number in (1, 2, 3, 5)] == [1, 1, 1, 1]
    assert places(lake) == [(A, 4), (B, 1)]


@pytest.mark.long
def test_lines_are_landed_for_their_own_table_alone(refused: Lake, spark: SparkSession) -> None:
    lake, other = refused, replace(events, key="bronze/others")
    write_table(lake, spark, other)
    before = rows_in(lake, other.key, "id")
    retry(of(lake, spark), [A], dry_run=False)
    assert write_table(lake, spark, other).files_read == 0
    write_table(lake, spark, events)
    expected = (before, [(1,), (2,), (3,)])
    assert (rows_in(lake, other.key, "id"), rows_in(lake, events.key, "id")) == expected


@pytest.mark.long
def test_changes_are_not_landed_again(lake: Lake, spark: SparkSession) -> None:
    source = Landing(prefix="landing/parts/", format="json", schema="id BIGINT", changes=Debezium())
    parts = Table(key="bronze/parts", source=source, write=Merge(keys=("id",)))
    good = '{"op": "c", "after": {"id": 1}, "source": {"lsn": 1, "ts_ms": 1}}'
    land(lake, "1.json", [good, "nope"], prefix=source.prefix)
    write_table(lake, spark, parts)
    done = retry(of(lake, spark, parts), [], dry_run=False)
    expected = (0, {"the table is not written by Append. Land these lines in a new file": 1})
    assert (done.lines, done.left) == expected
    assert retried_files(lake, f"{source.prefix}_retry") == []


def test_too_many_lines_for_one_file_are_refused(refused: Lake, spark: SparkSession) -> None:
    with pytest.raises(Refused, match=r"the size of 2 lines is .*Use --file to retry fewer"):
        retry(of(refused, spark, declared(max_file_bytes=20)), [], dry_run=False)
    assert retried_files(refused) == []


@pytest.mark.long
def test_nothing_is_retried_while_a_batch_is_unfinished(lake: Lake, spark: SparkSession) -> None:
    strict = declared(required=("id", "at"), new_columns="refuse")
    land(lake, "a.json", [event(1, 5, "new"), LENIENT])

    def killed(owner: Any, step: str, table: Table) -> None:
        with killed_at(owner, step, "before"):
            write_table(lake, spark, table)

    killed(commit_rows, "write_rows", strict)
    for dry_run in (True, False):
        message = r"batch 1 is unfinished .* Use `lakehouse materialize bronze/events`, or wait"
        with pytest.raises(Refused, match=message):
            retry(of(lake, spark), [], dry_run=dry_run)
        with pytest.raises(Refused, match=r"batch 1 is unfinished"):
            quarantine.drop(of(lake, spark), [], why="looked at", dry_run=dry_run)
    write_table(lake, spark, strict)
    assert (rows_in(lake, events.key, "id"), places(lake)) == ([(1,)], [(A, 2)])

    lake.store.put(GONE, b"no gzip")
    # Its file is in a manifest, and not yet in the quarantine.
    killed(load_run, "quarantine", events)
    with pytest.raises(Refused, match="batch 2 is unfinished"):
        retry(of(lake, spark), [], dry_run=False)
    write_table(lake, spark, events)
    assert places(lake) == [(A, 2), (GONE, None)]
    assert retry(of(lake, spark), [GONE], dry_run=False).files == 1


@pytest.mark.long
def test_two_repeats_of_a_batch_at_once_add_an_entry_once(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake, "a.json", [event(1, 5, "new"), LENIENT, "nope"])
    with killed_at(commit_rows, "write_rows", "before"):
        write_table(lake, spark, events)
    before = lake.facts(QUARANTINE)
    assert places(lake) == [(A, 3)]
    read, add = Lake.facts, load_run.quarantine

    def add_twice(*arguments: Any) -> None:
        add(*arguments)
        with monkeypatch.context() as patch:  # another process read the same version
            patch.setattr(Lake, "facts", lambda *_: before)
            add(*arguments)

    monkeypatch.setattr(load_run, "quarantine", add_twice)
    write_table(lake, spark, STRICT)
    assert read(lake, QUARANTINE) != before
    assert places(lake) == [(A, 2), (A, 3)]


@pytest.mark.long
def test_lines_of_csv_are_landed_with_their_own_fields(lake: Lake, spark: SparkSession) -> None:
    source = Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, name STRING",
        required=("name",),
        null_value="NA",
        csv=Csv(delimiter=";"),
        encoding="cp1252",
    )
    codes = Table(key="bronze/codes", source=source, write=Append())
    text = 'code;more;name\nA;1;one\n"Bé\n";2;NA'
    lake.store.put(f"{source.prefix}a.csv", text.encode("cp1252"))
    write_table(lake, spark, codes)
    lenient = replace(source, required=())
    turned = replace(codes, source=replace(lenient, schema="name STRING, code STRING"))
    done = retry(of(lake, spark, turned), [], dry_run=False)
    assert (done.lines, done.left) == (0, {"the lines were read with other fields: code;name": 1})
    mended = replace(codes, source=lenient)
    assert retry(of(lake, spark, mended), [], dry_run=False).lines == 1
    # The declaration changes again before the lines are loaded.
    [aside] = write_table(lake, spark, turned).set_aside
    assert aside.is_quarantined and "and not name;code" in aside.why
    assert retry(of(lake, spark, mended), [], dry_run=False).files == 1
    write_table(lake, spark, mended)
    expected = [("A", "one", '{"more":"1"}'), ("Bé\n", None, '{"more":"2"}')]
    assert rows_in(lake, codes.key, "code", "name", "_rescued") == expected
