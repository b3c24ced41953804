"""Files of each format, and changes of each source, with earlier and present names of columns."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Append, Debezium, Dms, History, Landing, Merge, Table
from lakehouse.core.errors import Refused
from lakehouse.engine.evolution.apply import ApplyRequest, apply_changes
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse_tests.engine.example import columns_of, land, rows_in
from lakehouse_tests.engine.ingest.test_columns_left import ROWS, load_changes
from lakehouse_tests.engine.ingest.test_renamed_columns import (
    load_old_and_new_files,
    rename_columns,
    type_of_rows,
)
from lakehouse_tests.long.test_renamed_changes import (
    AFTER,
    load_after,
    load_before,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "landing/people/"


def as_csv(rows: type_of_rows) -> bytes:
    lines = [",".join(rows[0])]
    lines += [
        ",".join("" if value is None else str(value) for value in row.values()) for row in rows
    ]
    return "\n".join(lines).encode()


def as_parquet(rows: type_of_rows) -> bytes:
    file = BytesIO()
    pq.write_table(pa.Table.from_pylist([*rows]), file)
    return file.getvalue()


def as_avro(rows: type_of_rows) -> bytes:
    file = BytesIO()
    fields = [
        {"name": name, "type": ["null", "long" if name in ("id", "no") else "string"]}
        for name in rows[0]
    ]
    fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    return file.getvalue()


@pytest.mark.parametrize(
    ("format", "as_file"), [("csv", as_csv), ("parquet", as_parquet), ("avro", as_avro)]
)
def test_old_and_new_files_load_mixed_in_each_format(
    lake: Lake, spark: "SparkSession", format: str, as_file: Callable[[type_of_rows], bytes]
) -> None:
    load_old_and_new_files(lake, spark, format, as_file)


@pytest.mark.parametrize(("write", "rows"), [ROWS[0], ROWS[2]])
def test_changed_rows_have_null_and_versions_that_are_closed_keep_their_value(
    lake: Lake, spark: "SparkSession", write: Any, rows: Any
) -> None:
    table = load_changes(lake, spark, write)
    assert rows_in(lake, table.key, "id", "note", "name") == sorted(rows, key=str)


# By source: how an operation, a position and a row are written; the earlier key and value first.
def as_debezium(op: str, lsn: int, row: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    before, after = (row, None) if op == "d" else (was or None, row)
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": lsn}}


def as_unwrapped(op: str, lsn: int, row: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    return {**row, "__op": op, "__source_lsn": lsn, "__source_ts_ms": lsn}


def as_dms(op: str, lsn: int, row: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    images = {f"BI_{name}": value for name, value in was.items()} or {
        f"BI_{name}": None for name in row if name in ("id", "no")
    }
    code = {"c": "I", "u": "U", "d": "D"}[op]
    at = f"2026-01-01T00:00:{lsn:02}Z"
    return {"Op": code, **row, **images, "seq": f"{lsn:03}", "at": at}


def as_csv_of_dms(rows: type_of_rows) -> bytes:
    return as_csv(
        [{name: "NULL" if value is None else value for name, value in row.items()} for row in rows]
    )


def as_lines(rows: type_of_rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


SOURCES: dict[str, Any] = {
    "debezium": (Debezium(), "json", as_debezium, as_lines),
    "unwrapped": (Debezium(unwrapped=True), "json", as_unwrapped, as_lines),
    "dms json": (Dms(position=("seq",), committed_at="at"), "json", as_dms, as_lines),
    "dms csv": (Dms(position=("seq",), committed_at="at"), "csv", as_dms, as_csv_of_dms),
    "dms parquet": (Dms(position=("seq",), committed_at="at"), "parquet", as_dms, as_parquet),
}


@pytest.mark.parametrize(
    "write",
    [Merge(keys=("no",)), Merge(keys=("no",), deletes="soft"), History(keys=("no",))],
    ids=["hard", "soft", "history"],
)
@pytest.mark.parametrize("source", SOURCES)
def test_changes_with_earlier_and_present_names_are_those_of_one_row(
    lake: Lake, spark: "SparkSession", source: str, write: Any
) -> None:
    """In one batch and in two; a key that changes is read from the earlier name, too, where the source sends it."""
    changes, format, as_event, as_file = SOURCES[source]
    is_dms = isinstance(changes, Dms)
    more = ", BI_no BIGINT, seq STRING, at TIMESTAMP" if is_dms else ""
    landing = Landing(
        prefix=PREFIX,
        format=format,
        schema=f"{'Op STRING, ' if is_dms else ''}no BIGINT, town STRING{more}",
        changes=changes,
        null_value="NULL" if format == "csv" else None,
        new_columns="refuse",
        required=("town",),
    )
    table = Table(
        key="bronze/people", source=landing, write=write, renamed={"id": "no", "city": "town"}
    )
    moves = source != "unwrapped"  # whose rows have no row before the change
    batches = [
        [("c", 1, {"id": 1, "city": "a"}, {}), ("c", 1, {"id": 2, "city": "b"}, {})],
        [("u", 2, {"no": 1, "town": "A"}, {}), ("c", 1, {"no": 3, "town": "c"}, {})],
        [("u", 3, {"id": 2, "city": "B"}, {}), ("d", 2, {"id": 3, "city": "c"}, {})],
        [("u", 4, {"id": 4, "city": "moved"}, {"id": 1} if moves else {})],
        [("u", 4, {"id": 2, "city": None}, {})],
    ]
    for number, events in enumerate(batches):
        data = as_file([as_event(*event) for event in events])
        lake.store.put(f"{PREFIX}{number}.{format}", data)
        if number in (1, 4):
            write_table(lake, spark, table)
    found = rows_in(lake, table.key, "no", "town")
    newest = [(2, "B"), (4, "moved")] + ([] if moves else [(1, "A")])
    if isinstance(write, History):
        current = rows_in(lake, table.key, "no", "town", "is_current")
        assert [row[:2] for row in current if row[2]] == sorted(newest, key=str)
        assert {(1, "a"), (1, "A"), (2, "b"), (3, "c")} <= {*found}
    elif write.deletes == "soft":
        deleted = [(3, "c")] + ([(1, "A")] if moves else [])
        assert found == sorted([*newest, *deleted], key=str)
    else:
        assert found == sorted(newest, key=str)
    reasons = rows_in(lake, f"quarantine/{table.key}", "reason")
    assert reasons == [("required field town is missing",)]


@pytest.mark.parametrize("in_place", [False, True])
def test_changes_go_on_after_the_columns_and_the_key_were_renamed(
    lake: Lake, spark: "SparkSession", in_place: bool
) -> None:
    load_before(lake, spark)
    with pytest.raises(Refused, match="doc is declared as text now"):
        load_after(lake, spark)
    session = TableSession(lake=lake, spark=spark, table=AFTER)
    apply_changes(session, ApplyRequest(in_place=in_place), lambda _: None)
    load_after(lake, spark)


def test_an_inferred_or_added_column_that_was_renamed_keeps_its_record_and_takes_both_names(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Retried lines of CSV have the pinned fields, by whichever name."""
    landing = Landing(prefix=PREFIX, format="csv", new_columns="add")
    before = Table(key="bronze/people", source=landing, write=Append())
    after = replace(before, renamed={"city": "town", "fee": "charge"})
    land(lake, "1.csv", ["id,city", "1,a"], prefix=PREFIX)
    write_table(lake, spark, before)
    strict = replace(before, source=replace(landing, required=("city",)))
    land(lake, "2.csv", ["id,city,fee", "2,b,20", "3,,30"], prefix=PREFIX)
    write_table(lake, spark, strict)
    with_town = replace(before, renamed={"city": "town"})
    rename_columns(lake, spark, before.key, with_town.renamed)
    done = retry(TableSession(lake=lake, spark=spark, table=with_town), [], dry_run=False)
    assert (done.lines, done.left) == (1, {})
    assert write_table(lake, spark, with_town).rows_written == 1
    rename_columns(lake, spark, before.key, {"fee": "charge"})
    land(lake, "3.csv", ["id,town,fee", "4,d,40"], prefix=PREFIX)
    land(lake, "4.csv", ["id,city,charge", "5,e,50"], prefix=PREFIX)
    outcome = write_table(lake, spark, after)
    assert (outcome.rows_rescued, outcome.columns_added, outcome.set_aside) == (0, (), ())
    assert rows_in(lake, after.key, "id", "town", "charge") == [
        ("1", "a", None),
        ("2", "b", "20"),
        ("3", None, "30"),
        ("4", "d", "40"),
        ("5", "e", "50"),
    ]
    assert [name for name, *_ in columns_of(lake, after)] == ["id", "city", "fee"]
