"""Files of each format, and changes of each source, with earlier and present names of columns."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Debezium, Dms, Landing, Merge, Table
from lakehouse.base.errors import Refused
from lakehouse.evolve.run import apply_changes
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse.write import commit_rows
from lakehouse_tests.kills import killed_at
from lakehouse_tests.land.test_columns_left import PREFIX as SHOPS
from lakehouse_tests.support.example_lake import columns_of, land, rows_in, rows_of

PREFIX = "landing/people/"


type_of_rows = Sequence[dict[str, Any]]
RENAMED = {"city": "town", "cost": "price"}
CLASH = "different values under two names of a column: city and town"
TWO_NAMES = (
    "its header is 'id,city,town' and not id,town,price. Land it with the declared names, each once, "
    "or declare the names of the file: `lakehouse schema` shows how"
)
TWO_COLUMNS = "it has two names for town. Land the file with one of them"
UNFIT = "a field does not fit the schema"


def as_json(rows: type_of_rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def tables(format: str) -> tuple[Table, Table]:
    """A table with a city and a cost for each shop, and its declaration with other names."""
    source = Landing(
        prefix=SHOPS,
        format=format,
        schema="id BIGINT, city STRING, cost DECIMAL(10, 2)",
        required=("cost",),
        derived={"initial": "left(city, 1)"},
    )
    before = Table(key="bronze/shops", source=source, write=Append())
    schema = "id BIGINT, town STRING, price DECIMAL(10, 2)"
    initial = {"initial": "left(town, 1)"}
    after = replace(source, schema=schema, required=("id",), derived=initial)
    return before, replace(before, source=after, renamed=RENAMED)


def rename_columns(lake: Lake, spark: SparkSession, key: str, names: dict[str, str]) -> None:
    """The table is written again under other names of its columns, in one commit."""
    uri = lake.settings.table_uri(key)
    rows = spark.read.format("delta").load(uri).withColumnsRenamed(names)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(uri)


def as_csv(rows: type_of_rows) -> bytes:
    lines = [["" if value is None else str(value) for value in row.values()] for row in rows]
    return "\n".join(map(",".join, [[*rows[0]], *lines])).encode()


def as_parquet(rows: type_of_rows) -> bytes:
    file = BytesIO()
    pq.write_table(pa.Table.from_pylist([*rows]), file)
    return file.getvalue()


def as_avro(rows: type_of_rows) -> bytes:
    file = BytesIO()
    types = {name: "long" if name in ("id", "no") else "string" for name in rows[0]}
    fields = [{"name": name, "type": ["null", type_]} for name, type_ in types.items()]
    fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    return file.getvalue()


@pytest.mark.parametrize(
    ("format", "as_file"),
    [("json", as_json), ("csv", as_csv), ("parquet", as_parquet), ("avro", as_avro)],
)
def test_old_and_new_files_load_mixed_in_each_format(
    lake: Lake, spark: SparkSession, format: str, as_file: Callable[[type_of_rows], bytes]
) -> None:
    """A value is right, or its record is in quarantine, which keeps each line as it was sent."""
    before, after = tables(format)
    mixed = [
        # Under the earlier names, the present ones, and one of each.
        [{"id": 1, "city": "Rome", "cost": "1.10"}],
        [{"id": 2, "town": "Oslo", "price": "2"}],
        [{"id": 3, "city": "Bonn", "price": "3"}, {"id": None, "city": "Lima", "price": "1"}],
        [{"id": 4, "town": "Kiel", "cost": "dear"}, {"id": 5, "town": None, "cost": None}],
    ]

    def land(name: str, rows: type_of_rows) -> None:
        lake.store.put(f"{SHOPS}{name}.{format}", as_file(rows))

    land("0", [{"id": 6, "city": "Pisa", "cost": "6"}, {"id": 8, "city": "Metz", "cost": None}])
    write_table(lake, spark, before)
    # Its second line is refused, and is a row by the other declaration.
    land("1", [{"id": 7, "city": "Graz", "cost": "7"}, {"id": 13, "city": "Ulm", "cost": None}])
    with killed_at(commit_rows, "write_rows", "before"):
        write_table(lake, spark, before)
    rename_columns(lake, spark, before.key, RENAMED)
    for number, rows in enumerate(mixed):
        land(f"2-{number}", rows)
    outcome = write_table(lake, spark, after)
    assert (outcome.rows_written, outcome.rows_quarantined, outcome.set_aside) == (6, 2, ())

    done = retry(TableSession(lake=lake, spark=spark, table=after), [], dry_run=False)
    # Rows of Parquet and Avro cannot be landed again line by line.
    has_lines = format in ("json", "csv")
    assert (done.lines, sum(done.left.values())) == ((3, 0) if has_lines else (0, 3))
    twice = [
        {"id": 9, "city": "Linz", "town": "Linz"},
        {"id": 10, "city": "Linz", "town": "Wels"},
        {"id": 11, "city": None, "town": "Wels"},
        {"id": 12, "city": "Enns", "town": None},
    ]
    land("3", twice)
    outcome = write_table(lake, spark, after)
    assert outcome.rows_rescued == 0
    rows = [
        (1, "Rome", "1.10", "R"),
        (2, "Oslo", "2.00", "O"),
        (3, "Bonn", "3.00", "B"),
        (5, None, None, None),
        (6, "Pisa", "6.00", "P"),
        (7, "Graz", "7.00", "G"),
        (13, "Ulm", None, "U"),
    ]
    reasons = ["required field id is missing", UNFIT]
    raw = [",Lima,1", "4,Kiel,dear"]
    if format != "csv":
        spaces = (", ", ": ") if has_lines else (",", ":")
        raw = [json.dumps(row, separators=spaces) for row in (mixed[2][1], mixed[3][0])]
    if format == "json":
        rows += [(9, "Linz", None, "L"), (11, "Wels", None, "W"), (12, "Enns", None, "E")]
        reasons.append(CLASH)
        raw.append(json.dumps(twice[1]))
    else:
        reasons.append(TWO_NAMES if format == "csv" else TWO_COLUMNS)
        raw.append(None)
    if has_lines:
        rows.append((8, "Metz", None, "M"))
    else:
        reasons.append("required field cost is missing")
        raw.append('{"id":8,"city":"Metz","cost":null}')
    found = rows_in(lake, after.key, "id", "town", "price", "initial")
    assert [(*row[:2], row[2] and str(row[2]), row[3]) for row in found] == sorted(rows, key=str)
    entries = rows_in(lake, f"quarantine/{after.key}", "reason", "raw")
    assert entries == sorted(zip(reasons, raw, strict=True), key=str)


# By source: how an operation, a position and a row are written; the earlier key and value first.
def as_debezium(
    op: str, lsn: int, row: dict[str, Any], was: dict[str, Any] | None = None
) -> dict[str, Any]:
    before, after = (row, None) if op == "d" else (was or None, row)
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": lsn}}


def as_unwrapped(op: str, lsn: int, row: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    return {**row, "__op": op, "__source_lsn": lsn, "__source_ts_ms": lsn}


def as_dms(op: str, lsn: int, row: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    key = was or {name: None for name in row if name in ("id", "no")}
    images = {f"BI_{name}": value for name, value in key.items()}
    code = {"c": "I", "u": "U", "d": "D"}[op]
    at = f"2026-01-01T00:00:{lsn:02}Z"
    return {"Op": code, **row, **images, "seq": f"{lsn:03}", "at": at}


def as_csv_of_dms(rows: type_of_rows) -> bytes:
    nulls = {None: "NULL"}
    return as_csv([{name: nulls.get(row[name], row[name]) for name in row} for row in rows])


SOURCES: dict[str, Any] = {
    "debezium": (Debezium(), "json", as_debezium, as_json),
    "unwrapped": (Debezium(unwrapped=True), "json", as_unwrapped, as_json),
    "dms json": (Dms(position=("seq",), committed_at="at"), "json", as_dms, as_json),
    "dms csv": (Dms(position=("seq",), committed_at="at"), "csv", as_dms, as_csv_of_dms),
    "dms parquet": (Dms(position=("seq",), committed_at="at"), "parquet", as_dms, as_parquet),
}


@pytest.mark.parametrize(
    "write", [Merge(keys=("no",)), Merge(keys=("no",), deletes="soft")], ids=["hard", "soft"]
)
@pytest.mark.parametrize("source", SOURCES)
def test_changes_with_earlier_and_present_names_are_those_of_one_row(
    lake: Lake, spark: SparkSession, source: str, write: Any
) -> None:
    """In one batch and in two; a key that changes is read from the earlier name, too, where the source sends it."""
    changes, format, as_event, as_file = SOURCES[source]
    is_dms = isinstance(changes, Dms)
    more = ", BI_no BIGINT, seq STRING, at TIMESTAMP" if is_dms else ""
    schema = f"{'Op STRING, ' if is_dms else ''}no BIGINT, town STRING{more}"
    landing = Landing(prefix=PREFIX, format=format, schema=schema, new_columns="refuse")
    null_value = "NULL" if format == "csv" else None
    landing = replace(landing, changes=changes, null_value=null_value, required=("town",))
    renamed = {"id": "no", "city": "town"}
    table = Table(key="bronze/people", source=landing, write=write, renamed=renamed)
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
    is_soft = write.deletes == "soft"
    there = [(2, "B"), *([(3, "c")] if is_soft else []), (4, "moved")]
    assert found == ([(1, "A")] if is_soft or not moves else []) + there
    reasons = rows_in(lake, f"quarantine/{table.key}", "reason")
    assert reasons == [("required field town is missing",)]


UNSENT = "__debezium_unavailable_value"


DOCS = Landing(prefix="landing/docs/", format="json", schema="id BIGINT, doc STRING")
DOCS = replace(DOCS, changes=Debezium(), new_columns="refuse", derived={"size": "length(doc)"})
BEFORE = Table(key="bronze/docs", source=DOCS, write=Merge(keys=("id",)))
AFTER = replace(
    BEFORE,
    source=replace(DOCS, schema="no BIGINT, text STRING", derived={"size": "length(text)"}),
    write=Merge(keys=("no",)),
    renamed={"id": "no", "doc": "text"},
)


def load_before(lake: Lake, spark: SparkSession) -> None:
    """A value that is kept, a deletion that is remembered, and two rows."""
    first = [
        as_debezium("c", 10, {"id": 1, "doc": "one"}),
        as_debezium("u", 20, {"id": 1, "doc": UNSENT}),
        as_debezium("c", 10, {"id": 2, "doc": "two"}),
        as_debezium("d", 30, {"id": 2, "doc": "two"}),
        as_debezium("c", 10, {"id": 3, "doc": "three"}),
        as_debezium("c", 10, {"id": 4, "doc": "four"}),
    ]
    land(lake, "1.json", first, prefix=DOCS.prefix)
    write_table(lake, spark, BEFORE)


def load_after(lake: Lake, spark: SparkSession) -> None:
    """Changes with earlier and present names, some late, into the table with the present ones."""
    second = [
        # Late, between the row and the change that its value is from.
        as_debezium("u", 15, {"id": 1, "doc": "ONE"}),
        # Late, before a deletion that is remembered.
        as_debezium("u", 20, {"no": 2, "text": "late"}),
        as_debezium("u", 20, {"id": 3, "doc": UNSENT}),
        as_debezium("u", 30, {"no": 3, "text": UNSENT}),
        as_debezium("d", 20, {"id": 4, "doc": "four"}),
        as_debezium("c", 10, {"no": 5, "doc": "five", "text": None}),
        as_debezium("c", 10, {"no": 6, "doc": "six", "text": "SIX"}),
    ]
    land(lake, "2.json", second, prefix=DOCS.prefix)
    outcome = write_table(lake, spark, AFTER)
    assert (outcome.rows_quarantined, outcome.rows_superseded) == (1, 2)
    rows = rows_of(spark, lake, AFTER.key, "no", "text", "size")
    assert rows == [(1, "ONE", 3), (3, "three", 5), (5, "five", 4)]
    clash = "different values under two names of a column: doc and text"
    assert rows_in(lake, f"quarantine/{AFTER.key}", "line", "reason") == [(7, clash)]


def test_changes_go_on_after_columns_and_key_were_renamed(lake: Lake, spark: SparkSession) -> None:
    load_before(lake, spark)
    with pytest.raises(Refused, match="doc is renamed to text in the declaration"):
        load_after(lake, spark)
    session = TableSession(lake=lake, spark=spark, table=AFTER)
    apply_changes(session, (), lambda _: None)
    load_after(lake, spark)


def test_a_renamed_added_column_takes_both_names(lake: Lake, spark: SparkSession) -> None:
    """Retried lines of CSV have the declared fields, by whichever name."""
    schema = "id STRING, city STRING"
    landing = Landing(prefix=PREFIX, format="csv", schema=schema, new_columns="add")
    before = Table(key="bronze/people", source=landing, write=Append())
    declared = replace(landing, schema="id STRING, town STRING, charge STRING")
    after = replace(before, source=declared, renamed={"city": "town", "fee": "charge"})
    land(lake, "1.csv", ["id,city", "1,a"], prefix=PREFIX)
    write_table(lake, spark, before)
    strict = replace(before, source=replace(landing, required=("city",)))
    land(lake, "2.csv", ["id,city,fee", "2,b,20", "3,,30"], prefix=PREFIX)
    write_table(lake, spark, strict)
    town = replace(landing, schema="id STRING, town STRING")
    with_town = replace(before, source=town, renamed={"city": "town"})
    rename_columns(lake, spark, before.key, with_town.renamed)
    done = retry(TableSession(lake=lake, spark=spark, table=with_town), [], dry_run=False)
    assert (done.lines, done.left) == (1, {})
    assert write_table(lake, spark, with_town).rows_written == 1
    rename_columns(lake, spark, before.key, {"fee": "charge"})
    land(lake, "3.csv", ["id,town,fee", "4,d,40"], prefix=PREFIX)
    land(lake, "4.csv", ["id,city,charge", "5,e,50"], prefix=PREFIX)
    outcome = write_table(lake, spark, after)
    assert (outcome.rows_rescued, outcome.columns_added, outcome.set_aside) == (0, (), ())
    rows = [("1", "a", None), ("2", "b", "20"), ("3", None, "30"), ("4", "d", "40")]
    assert rows_in(lake, after.key, "id", "town", "charge") == [*rows, ("5", "e", "50")]
    assert columns_of(lake, after) == ["fee"]
