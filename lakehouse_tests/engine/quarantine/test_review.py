"""What was refused is read again or settled, and each line and file stays accounted for."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import Ledger
from lakehouse.core.settings import Settings
from lakehouse.engine.ingest import commit_rows, load
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.quarantine import retry_lines, review
from lakehouse.engine.quarantine.entries import why_other_fields
from lakehouse.engine.quarantine.retry_lines import mark_other_content
from lakehouse_tests.engine.example import event, events, land, rows_in
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUARANTINE = "quarantine/bronze/events"
LENIENT = '{"id": 2, "state": "kept"}'


def declared(**changes: Any) -> Table:
    assert isinstance(events.source, Landing)
    return replace(events, source=replace(events.source, **changes))


STRICT = declared(required=("id", "at"), max_file_bytes=250, new_columns="refuse")


@pytest.fixture(scope="module")
def of_refused(
    shared_settings: Settings, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Path:
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
    write_table(lake, spark, STRICT)
    return Path(lake.settings.root)


@pytest.fixture
def refused(lake: Lake, of_refused: Path) -> Lake:
    """A table that is declared too strictly: one row, two lines that another declaration takes, two that none does, and a large file."""
    shutil.copytree(of_refused, lake.settings.root)
    assert rows_in(lake, events.key, "id") == [(1,)]
    return lake


def places(lake: Lake) -> list[tuple[Any, ...]]:
    return rows_in(lake, QUARANTINE, "source_file", "line")


A, B, GONE, LARGE = (
    f"landing/events/{name}" for name in ("a.json", "b.json", "gone.json.gz", "large.json")
)


def test_a_line_is_loaded_and_a_file_read_again_as_the_table_is_declared_now(
    refused: Lake, spark: "SparkSession"
) -> None:
    lake, before = refused, places(refused)
    assert before == [(A, 2), (A, 3), (A, 4), (B, 1), (LARGE, None)]
    shown = review.show(lake, spark, STRICT, [A], limit=1)
    why = ("not JSON", "required field at is missing", "the schema does not name extra")
    assert shown["reasons"] == [{"reason": each, "count": 1} for each in why]
    assert [(entry["source_file"], entry["line"], entry["raw"]) for entry in shown["entries"]] == [
        (A, 2, LENIENT)
    ]

    planned = review.retry(lake, spark, events, [], dry_run=True)
    assert (planned.lines, planned.rows, planned.files, planned.left) == (
        4,
        2,
        1,
        {"not JSON": 1, "not UTF-8": 1},
    )
    assert (places(lake), rows_in(lake, events.key, "id")) == (before, [(1,)])

    less_strict = review.retry(lake, spark, declared(new_columns="refuse"), [], dry_run=False)
    stay = "1 stay: not JSON; 1 stay: not UTF-8; 1 stay: the schema does not name extra"
    assert less_strict.sentence == f"1 of 4 line(s) were loaded, 1 file(s) were read again; {stay}"
    assert places(lake) == [(A, 3), (A, 4), (B, 1)]
    land(lake, "a.json", [event(1, 5, "new"), event(4, 5, "late")])
    lake.store.put(GONE, b"no gzip")
    write_table(lake, spark, events)
    lake.store.delete([GONE])
    done = review.retry(lake, spark, events, [], dry_run=False)
    changed, gone = (
        "its rows were loaded: land only what is new, under a new name",
        "the file is gone from landing/events/",
    )
    assert (done.rows, done.files, done.left) == (1, 0, {changed: 1, gone: 1, **planned.left})
    assert rows_in(lake, events.key, "id", "_source_file", "_source_line", "state", "_rescued")[
        -2:
    ] == [
        (2, A, 2, "kept", None),
        (3, A, 3, "kept too", '{"extra": [1.50]}'),
    ]
    assert len(rows_in(lake, events.key, "id")) == 13

    with pytest.raises(Refused, match="--why is empty"):
        review.settle(lake, spark, events, [], why=" ", dry_run=False)
    assert review.settle(lake, spark, events, [B], why="x", dry_run=True).settled == 1
    review.settle(lake, spark, events, [B], why="sent again by post", dry_run=False)
    assert places(lake) == [(A, 4), (A, None), (GONE, None)]
    account = review.account_of(lake, events)
    assert account is not None and (account.rows, account.retried, account.settled) == (3, 3, 1)
    assert lake.store.stat(B) is not None
    with pytest.raises(Refused, match="nothing of it was ever refused"):
        review.retry(lake, spark, replace(events, key="bronze/others"), [], dry_run=False)


def test_a_retry_killed_around_its_commit_leaves_each_line_in_one_place_after_the_next(
    refused: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = refused
    # As after somebody made the quarantine anew from a copy of its rows, and as a program put a line down that knew no digests.
    uri = lake.settings.table_uri(QUARANTINE)
    line = spark.read.format("delta").load(uri).where("line = 3")
    older = line.selectExpr(
        "* EXCEPT (raw, digest)", "raw || ' ' AS raw", "CAST(NULL AS STRING) AS digest"
    )
    line.unionByName(older).write.format("delta").mode("append").save(uri)
    held = [(A, 2), (A, 3), (A, 3), (A, 3), (A, 4), (B, 1), (LARGE, None)]
    real = commit_rows.write_frame

    def without_a_row(frame: "DataFrame", *arguments: Any, **options: Any) -> None:
        real(frame.where("id = 3"), *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(commit_rows, "write_frame", without_a_row)
        with pytest.raises(
            Broken,
            match=r"2 line\(s\) of its quarantine are rows now, and version 2 of the table has 1 of them",
        ):
            review.retry(lake, spark, events, [A], dry_run=False)
    assert places(lake) == held

    with killed_at(commit_rows, "write_frame", "after"):
        review.retry(lake, spark, events, [A], dry_run=False)
    assert places(lake) == held
    assert review.retry(lake, spark, events, [A], dry_run=False).rows == 0
    assert rows_in(lake, events.key, "id") == [(1,), (2,), (3,)]
    assert places(lake) == [(A, 4), (B, 1), (LARGE, None)]


def test_a_line_of_a_content_that_was_never_loaded_stays_though_another_one_has_a_row_at_its_place(
    refused: Lake, spark: "SparkSession"
) -> None:
    """The table and its ledger were deleted, and its files were written anew; the quarantine is the one of before."""
    lake = refused
    lake.store.delete(
        [
            file.name
            for folder in (events.key, "_lakehouse/ingest")
            for file in lake.store.list(folder)
        ]
    )
    land(lake, "a.json", [event(1, 5, "new"), event(5, 5, "new"), '{"id": 6, "state": "kept"}'])
    write_table(lake, spark, STRICT)
    assert places(lake) == [(A, 2), (A, 3), (A, 3), (A, 4), (B, 1), (LARGE, None)]
    done = review.retry(lake, spark, events, [A], dry_run=False)
    assert (done.rows, done.left) == (1, {"their file was loaded with another content": 3})
    assert (rows_in(lake, events.key, "id"), places(lake)) == (
        [(1,), (5,), (6,)],
        [(A, 2), (A, 3), (A, 4), (B, 1), (LARGE, None)],
    )

    # Several contents at one place all stay where the ledger does not tell which one was loaded.
    lines = [("f", 1, "d1"), ("f", 1, "d2"), ("f", 2, "d1"), ("g", 1, None), ("g", 1, "d1")]
    marked = mark_other_content(
        spark,
        spark.createDataFrame(lines, "source_file STRING, line BIGINT, digest STRING"),
        Ledger(newest=None, seen={}),
    )
    assert sorted(tuple(row)[:3] for row in marked.where("_other_content").collect()) == [
        ("f", 1, "d1"),
        ("f", 1, "d2"),
    ]


def test_lines_that_a_table_is_put_back_without_are_in_its_quarantine_again_and_loaded_once(
    refused: Lake, spark: "SparkSession", tmp_path: Path
) -> None:
    """Whatever was settled since stays away, and what landed since is loaded again."""
    lake = refused
    folder, copy = Path(lake.settings.root, events.key), tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert review.retry(lake, spark, events, [A], dry_run=False).rows == 2
    review.settle(lake, spark, events, [A], why="sent again", dry_run=False)
    land(lake, "c.json", [event(4, 5, "new"), "nope"])
    write_table(lake, spark, events)
    c, after = "landing/events/c.json", places(lake)
    assert after == [(B, 1), (c, 2), (LARGE, None)]

    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    with killed_at(retry_lines, "_put_back", "after"):
        write_table(lake, spark, events)
    assert (places(lake), rows_in(lake, events.key, "id")) == ([(A, 2), (A, 3), *after], [(1,)])
    told: list[str] = []
    write_table(lake, spark, events, tell=told.append)
    assert (
        told[0]
        == "bronze/events: 0 line(s) that it came back from an older copy without are in its quarantine again"
    )
    assert (places(lake), rows_in(lake, events.key, "id")) == (
        [(A, 2), (A, 3), *after],
        [(1,), (4,)],
    )
    assert review.retry(lake, spark, events, [A], dry_run=False).rows == 2
    assert rows_in(lake, events.key, "id") == [(1,), (2,), (3,), (4,)]

    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    write_table(lake, spark, events)
    assert places(lake) == [(A, 2), (A, 3), *after]  # once each, though both retries are lost
    assert review.retry(lake, spark, events, [A], dry_run=False).rows == 2
    assert rows_in(lake, events.key, "id") == [(1,), (2,), (3,), (4,)]


def test_lines_of_csv_are_not_read_again_by_a_declaration_with_their_fields_in_another_order(
    lake: Lake, spark: "SparkSession"
) -> None:
    source = Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, name STRING",
        required=("name",),
        null_value="NA",
    )
    codes = Table(key="bronze/codes", source=source, write=Append())
    land(lake, "a.csv", ["code,name", "A,one", "B,NA"], prefix=source.prefix)
    write_table(lake, spark, codes)
    lenient, why = (
        replace(source, required=()),
        "its fields are those of another declaration: code,name",
    )
    turned = replace(codes, source=replace(lenient, schema="name STRING, code STRING"))
    done = review.retry(lake, spark, turned, [], dry_run=False)
    assert (done.rows, done.left) == (0, {why: 1})
    line, by_semicolons = (
        spark.createDataFrame([("code,name",)], "fields STRING"),
        replace(codes, source=replace(lenient, delimiter=";")),
    )
    assert line.select(why_other_fields(by_semicolons)).collect() == [(why,)]
    assert review.retry(lake, spark, replace(codes, source=lenient), [], dry_run=False).rows == 1
    assert rows_in(lake, codes.key, "code", "name") == [("A", "one"), ("B", None)]


def test_nothing_is_read_again_while_a_batch_is_not_done(lake: Lake, spark: "SparkSession") -> None:
    strict = declared(required=("id", "at"), new_columns="refuse")
    land(lake, "a.json", [event(1, 5, "new"), LENIENT])

    def killed(owner: Any, step: str, table: Table) -> None:
        with killed_at(owner, step, "before"):
            write_table(lake, spark, table)

    killed(commit_rows, "write_rows", strict)
    for dry_run in (True, False):
        with pytest.raises(
            Refused,
            match=r"batch 1 is not done, .*; accepted: lakehouse materialize bronze/events, or to wait",
        ):
            review.retry(lake, spark, events, [], dry_run=dry_run)
        with pytest.raises(Refused, match=r"batch 1 is not done"):
            review.settle(lake, spark, events, [], why="looked at", dry_run=dry_run)
    write_table(lake, spark, events)  # as it is declared now, the line is a row
    assert (rows_in(lake, events.key, "id"), places(lake)) == ([(1,), (2,)], [(A, 2)])
    assert review.retry(lake, spark, events, [], dry_run=False).rows == 0
    assert (rows_in(lake, events.key, "id"), places(lake)) == ([(1,), (2,)], [])

    lake.store.put(GONE, b"no gzip")
    killed(load, "quarantine", events)  # its file stands in a manifest, and not yet in quarantine
    with pytest.raises(Refused, match="batch 2 is not done"):
        review.retry(lake, spark, events, [], dry_run=False)
    write_table(lake, spark, events)
    assert places(lake) == [(GONE, None)]
    assert review.retry(lake, spark, events, [], dry_run=False).files == 1
