"""Large Parquet files, which Spark reads itself: the same rows and the same quarantine as of small ones."""

import json
from base64 import b64decode
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse import Append, Dms, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse.spark import frames
from lakehouse.write.outcome import WriteOutcome
from lakehouse_tests.kills import killed_at
from lakehouse_tests.land.spark import test_text
from lakehouse_tests.support.example_lake import rows_in, rows_of

SCHEMA = (
    "id INT, town STRING, at TIMESTAMP, local TIMESTAMP, day DATE, price DECIMAL(8, 2), "
    "paid BOOLEAN, score DOUBLE, key STRING, sold DATE, missing STRING"
)
LANDED = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),  # an earlier name of `town`
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ns")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 3)),
        ("paid", pa.bool_()),
        ("score", pa.float32()),
        ("key", pa.binary()),
        ("sold", pa.string()),
        ("note", pa.string()),  # undeclared, and so is the next
        ("count", pa.int32()),
    ]
)
GOOD: dict[str, Any] = {
    "id": 1,
    "city": "Zoë's",
    "at": datetime(2026, 11, 22, 8, 44, 1, 500_001, UTC),
    "local": 1_700_000_000_000_016_001,  # a DOUBLE would be before this microsecond
    "day": date(2024, 2, 29),
    "price": Decimal("12.345"),
    "paid": True,
    "score": 0.25,
    "key": b"\xff\x00",
    "sold": "2024-02-29",
    "note": None,
    "count": None,
}
# Each with the row's id, and what differs from GOOD.
ROWS = [
    GOOD | changed
    for changed in [
        {},
        dict.fromkeys(GOOD) | {"id": 2},
        {"id": 3, "city": "-", "local": -1},  # `null_value`; a time before 1970
        {"id": 4, "note": 'the "x"', "count": 7},
        {"id": None},  # `required`
        {"id": 2**31},
        {"id": 7, "price": Decimal("999999.995")},  # rounded, it has too many digits
        {"id": 8, "sold": "29.02.2024"},
        {"id": 9, "day": date(1, 1, 1), "score": float("nan")},
        {"id": 10, "sold": "20240229"},
    ]
]


@pytest.fixture
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)


def file_of(rows: list[dict[str, Any]] | pa.Table, **options: Any) -> bytes:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    file = BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def as_parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    return file_of(pa.Table.from_pylist(rows, LANDED), **options)


def declared(key: str, **words: Any) -> Table:
    source = Landing(
        prefix=f"landing/{key}/",
        format="parquet",
        schema=SCHEMA,
        required=("id",),
        null_value="-",
        derived={"year": "year(day)"},
        **words,
    )
    return Table(key=f"bronze/{key}", source=source, write=Append(), renamed={"city": "town"})


def loaded(lake: Lake, table: Table) -> tuple[list[Any], list[Any]]:
    """The rows without their origin, and the quarantined rows with their reasons."""
    names = ["id", "town", "at", "local", "day", "price", "paid", "score", "key", "sold"]
    rows = [
        (*row, rescued and json.loads(rescued))
        for *row, rescued in rows_in(lake, table.key, *names, "missing", "year", "_rescued")
    ]
    refused = rows_in(lake, f"quarantine/{table.key}", "reason", "raw")
    texts = sorted((reason, repr(sorted(json.loads(raw)))) for reason, raw in refused)
    return sorted(map(repr, rows)), texts


@pytest.mark.usefixtures("all_by_spark")
def test_a_large_file_gives_the_same_rows_and_the_same_quarantine_as_small_ones(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = declared("large")
    small = declared("small")
    lake.store.put("landing/large/an export+1 ü.parquet", as_parquet(ROWS))
    for number, row in enumerate(ROWS):
        lake.store.put(f"landing/small/{number}.parquet", as_parquet([row]))
    by_spark = write_table(lake, spark, large)
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 2**40)
    by_us = write_table(lake, spark, small)
    assert (by_spark.rows_written, by_spark.rows_quarantined, by_spark.rows_rescued) == (5, 5, 1)
    assert (by_us.rows_written, by_us.rows_quarantined, by_us.rows_rescued) == (5, 5, 1)
    assert loaded(lake, large) == loaded(lake, small)
    origins = rows_in(lake, large.key, "_source_file", "_source_line", "id")
    assert sorted(origins) == [
        ("landing/large/an export+1 ü.parquet", line, id_)
        for line, id_ in [(1, 1), (2, 2), (3, 3), (4, 4), (9, 9)]
    ]
    local = dict(rows_in(lake, large.key, "id", "local"))
    assert local[1] == datetime(2023, 11, 14, 22, 13, 20, 16, UTC)
    assert local[3] == datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    lines = rows_in(lake, f"quarantine/{large.key}", "line")
    assert sorted(lines) == [(5,), (6,), (7,), (8,), (10,)]


# Written by parquet-mr 1.17.0: `required int32 id; optional binary amount (DECIMAL(64,2))`, with
# 125.92 and -0.01. Kafka Connect writes decimals like this one.
OF_KAFKA_CONNECT = b64decode(
    "UEFSMRUAFRAVEBX43Yg4HBUEFQAVCBUIAAABAAAAAgAAABUAFSIVIhWZ2MehDRwVBBUAFQYVCAAAAgAAAAMDAgAA"
    "ADEwAQAAAP8ZEQIZGAQBAAAAGRgEAgAAABUCGRYAABkRAhkYAf8ZGAIxMBUCGRYAABkcFggVPBYAAAAZHBZEFVAW"
    "AAAZFgYAFQIZPEgBbRUEABUCJQAYAmlkABUMJQIYBmFtb3VudCUKFQQVgAEsXBUEFYABAAAAFgQZHBksJgAcFQIZ"
    "JQAIGRgCaWQVABYEFjwWPCYIPBgEAgAAABgEAQAAABYAKAQCAAAAGAQBAAAAABkcFQAVABUCADwAABbmARUUFpQB"
    "FS4AJgAcFQwZNQYACBkYBmFtb3VudBUAFgQWUBZQJkQ8NgAoAjEwGAH/ABkcFQAVABUCADwWBgAAFvoBFRoWwgEV"
    "JAAWjAEWBCYIFowBFAAAGRwYEXdyaXRlci5tb2RlbC5uYW1lGAdleGFtcGxlABhKcGFycXVldC1tciB2ZXJzaW9u"
    "IDEuMTcuMCAoYnVpbGQgZmFjMGM3NDY1MzJlMTMzYmViOTI4YTdmNmE3ZTU3YjUxMGI0NzdhMSkZLBwAABwAAABD"
    "AQAAUEFSMQ=="
)


@pytest.mark.parametrize("least_bytes", [1, 2**40])
def test_what_spark_does_not_read_as_it_is_meant_is_the_same_in_files_of_any_size(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    """Spark reads a decimal of 64 digits as a text of its bytes: 125.92 as `10`."""
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", least_bytes)
    noon = pa.array([datetime(2026, 11, 22, 12)], pa.timestamp("ns"))
    other_names = {"": ["a"], "line\nbreak": ["b"], "${x}": ["c"], "_lakehouse_path": ["d"]}
    files = {
        "decimal.parquet": OF_KAFKA_CONNECT,
        "time.parquet": file_of(pa.table({"at": noon}), use_deprecated_int96_timestamps=True),
        "names.parquet": file_of(pa.table({"id": [3], **other_names})),
        "packed.parquet": file_of(pa.table({"id": [4]}), compression="brotli"),
    }
    schema = "id INT, amount STRING, at STRING"
    rows, refused = landed_rows(lake, spark, files, schema=schema)
    others = json.dumps({name: text for name, [text] in other_names.items()}, separators=(",", ":"))
    assert rows == [
        (1, "125.92", None, None),
        (2, "-0.01", None, None),
        (3, None, None, others),
        (4, None, None, None),
        (None, None, "2026-11-22T12:00:00.000000Z", None),
    ]
    assert refused == []


@pytest.mark.long
@pytest.mark.usefixtures("all_by_spark")
def test_a_damaged_page_sets_its_file_aside(lake: Lake, spark: SparkSession) -> None:
    table = declared("orders")
    whole = as_parquet(ROWS[:4], compression="none", use_dictionary=False)
    torn = bytearray(as_parquet(ROWS[:4], compression="zstd"))
    torn[40:80] = bytes(40)
    files = {
        "a": whole,
        "b b": whole.replace(b"Zo\xc3\xab's", b"Zo\xc3\xab'\xff\xff"),
        "c c": bytes(torn),
        "d": whole[:-9],
    }
    for name, content in files.items():
        lake.store.put(f"landing/orders/{name}.parquet", content)
    outcome = write_table(lake, spark, table)
    found = sorted((aside.name, aside.is_quarantined) for aside in outcome.set_aside)
    assert found == [("b b.parquet", True), ("c c.parquet", True), ("d.parquet", True)]
    assert (outcome.files_read, outcome.rows_written, outcome.rows_quarantined) == (1, 4, 0)


@pytest.mark.usefixtures("all_by_spark")
def test_damage_that_the_write_finds_sets_one_file_aside(lake: Lake, spark: SparkSession) -> None:
    for number in range(3):
        first = number * 300
        rows = [{"id": id_, "score": id_ / 7} for id_ in range(first, first + 300)]
        content = bytearray(file_of(rows, row_group_size=100))
        if number == 1:  # no judgement reads the scores, whose type is that of the table
            scores = pq.read_metadata(BytesIO(content)).row_group(2).column(1)
            page = scores.dictionary_page_offset
            content[page : page + 10] = bytes(10)
        lake.store.put(f"landing/scores/{number}.parquet", bytes(content))
    source = Landing(prefix="landing/scores/", format="parquet", schema="id BIGINT, score DOUBLE")
    table = Table(key="bronze/scores", source=source, write=Append())
    outcome = write_table(lake, spark, table)
    expected = [("1.parquet", True)]
    assert [(aside.name, aside.is_quarantined) for aside in outcome.set_aside] == expected
    assert "Spark cannot read it to its end" in outcome.set_aside[0].why
    ids = [id_ for (id_,) in rows_in(lake, table.key, "id")]
    assert sorted(ids) == [*range(300), *range(600, 900)]
    assert write_table(lake, spark, table).files_read == 0


@pytest.mark.parametrize("format_name", ["parquet", pytest.param("csv", marks=pytest.mark.long)])
@pytest.mark.usefixtures("all_by_spark")
def test_a_killed_load_is_repeated_once_and_a_file_that_changed_meanwhile_is_loaded_as_it_is(
    lake: Lake, spark: SparkSession, format_name: str
) -> None:
    table, whole, other = declared("orders"), as_parquet(ROWS), as_parquet(ROWS[::-1])
    written, quarantined = 5, 5
    if format_name == "csv":
        table = test_text.declared("orders")
        whole, other = map(test_text.content_of, (test_text.LINES, test_text.LINES[::-1]))
        written, quarantined = 4, 10
    file = f"landing/orders/a.{format_name}"
    lake.store.put(file, whole)
    for when in ("before", "after"):
        with killed_at(PlannedBatches, "plan", when):
            write_table(lake, spark, table)
    with killed_at(frames, "write_frame", "after"):  # of the quarantine
        write_table(lake, spark, table)
    lake.store.put(file, other)
    outcome = write_table(lake, spark, table)
    assert outcome.rows_written == written
    assert "was changed while" in outcome.set_aside[0].why
    lines = [line for (line,) in rows_in(lake, f"quarantine/{table.key}", "line") if line]
    assert len(lines) == quarantined  # those of the earlier content are gone
    lake.store.put(file, other)  # copied over with the same content
    again = write_table(lake, spark, table)
    assert (again.rows_written, [aside.is_quarantined for aside in again.set_aside]) == (0, [False])


@pytest.mark.long
@pytest.mark.usefixtures("all_by_spark")
def test_a_file_above_the_limit_loads_if_spark_reads_it(lake: Lake, spark: SparkSession) -> None:
    table = declared("orders", max_file_bytes=100, new_columns="add")
    lake.store.put("landing/orders/a.parquet", as_parquet(ROWS[:4]))
    nested = pa.table({"id": [1], "town": [["x"]]})
    lake.store.put("landing/orders/b.parquet", file_of(nested))
    outcome = write_table(lake, spark, table)
    assert (outcome.files_read, outcome.rows_written) == (1, 4)
    assert [aside.name for aside in outcome.set_aside] == ["b.parquet"]
    assert "only Spark may read it, and a column is nested" in outcome.set_aside[0].why
    expected = [(1, None, None), (2, None, None), (3, None, None), (4, 'the "x"', "7")]
    assert sorted(rows_in(lake, table.key, "id", "note", "count"), key=repr) == expected


@pytest.mark.long
@pytest.mark.parametrize("format_name", ["csv", "parquet"])
@pytest.mark.usefixtures("all_by_spark")
def test_a_full_load_and_changes_of_dms_are_applied_in_their_order(
    lake: Lake, spark: SparkSession, format_name: Any
) -> None:
    """CSV has no header."""
    changes = [
        {"Op": "U", "id": 1, "v": "changed", "seq": 1},
        {"Op": "D", "id": 2, "v": None, "seq": 2},
        {"Op": "?", "id": 3, "v": "x", "seq": 3},
    ]
    files = {
        "LOAD00000001": [{"id": id_, "v": "loaded", "seq": 0} for id_ in (1, 2, 3)],
        "20130102-000000001": changes,
    }
    for name, rows in files.items():
        lines = [",".join(str(value) for value in row.values()) for row in rows]
        text = "\n".join(lines).replace("None", "NULL")
        content = file_of(rows) if format_name == "parquet" else text.encode()
        lake.store.put(f"landing/orders/{name}.{format_name}", content)
    source = Landing(
        prefix="landing/orders/",
        format=format_name,
        schema="Op STRING, id BIGINT, v STRING, seq INT",
        null_value="NULL" if format_name == "csv" else None,
        changes=Dms(position=("seq",)),
    )
    table = Table(key="bronze/orders", source=source, write=Merge(keys=("id",)))
    assert write_table(lake, spark, table).rows_quarantined == 1
    assert rows_of(spark, lake, table.key, "id", "v") == [(1, "changed"), (3, "loaded")]
    expected = [(3, "the operation ? is not one of I, U, D")]
    assert rows_in(lake, f"quarantine/{table.key}", "line", "reason") == expected


@pytest.mark.parametrize(
    ("keys", "second"),
    [
        (("id",), []),
        pytest.param(("v", "id"), [{"id": 1, "v": "other"}], marks=pytest.mark.long),
        pytest.param(("v",), [], marks=pytest.mark.long),
        (("id",), [{"id": 1, "v": "again"}]),
        pytest.param(("id",), [{"Op": "D", "id": 1, "v": "gone"}], marks=pytest.mark.long),
        (("id",), [{"Op": "U", "id": 7, "v": "moved", "BI_id": 2}]),
        pytest.param(("id",), [{"id": None, "v": "no key"}], marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("all_by_spark")
def test_a_large_full_load_of_dms_gives_the_same_table_as_a_small_one(
    lake: Lake,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
    second: list[dict[str, Any]],
) -> None:
    """Rows with keys of their own are appended. Other rows are compared first."""
    first = [{"id": id_, "v": f"row {id_}"} for id_ in (-65, -64, -1, 0, 1, 2, 63, 64, 2**40)]
    for name, rows in (("LOAD0000000A", first[:5]), ("LOAD0000000B", first[5:] + second)):
        lake.store.put(f"landing/people/{name}.parquet", file_of(rows))
    source = Landing(
        prefix="landing/people/",
        format="parquet",
        schema="Op STRING, id BIGINT, v STRING, BI_id BIGINT",
        changes=Dms(),
    )
    outcomes = list[WriteOutcome]()
    contents = list[Any]()
    for key, least_bytes in (("bronze/large", 1), ("bronze/small", 2**40)):
        monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", least_bytes)
        table = Table(key=key, source=source, write=Merge(keys=keys))
        outcomes.append(write_table(lake, spark, table))
        loaded_rows = DeltaTable(lake.settings.table_uri(key)).to_pyarrow_table()
        contents.append((loaded_rows.schema, sorted(loaded_rows.to_pylist(), key=repr)))
    assert contents[0] == contents[1]
    large, small = outcomes
    expected = (small.rows_written, small.rows_quarantined, small.rows_superseded)
    assert (large.rows_written, large.rows_quarantined, large.rows_superseded) == expected


def landed_rows(
    lake: Lake, spark: SparkSession, files: dict[str, bytes], **words: Any
) -> tuple[list[Any], list[Any]]:
    """The rows of small files with their columns, and the quarantined ones with the reasons."""
    source = Landing(prefix="landing/x/", format=next(iter(files)).partition(".")[2], **words)
    table = Table(key="bronze/x", source=source, write=Append())
    for name, data in files.items():
        lake.store.put(f"landing/x/{name}", data)
    outcome = write_table(lake, spark, table)
    names = list(source.column_names) + (["_rescued"] if outcome.rows_rescued else [])
    loaded_rows = DeltaTable(lake.settings.table_uri(table.key)).to_pyarrow_table().select(names)
    rows = sorted((tuple(row.values()) for row in loaded_rows.to_pylist()), key=repr)
    if not lake.store.list("quarantine/bronze/x/"):
        return rows, []
    refused = rows_in(lake, "quarantine/bronze/x", "source_file", "line", "reason")
    return rows, sorted(refused, key=repr)


def test_a_value_of_another_type_is_read_as_its_text(lake: Lake, spark: SparkSession) -> None:
    noon = datetime(2024, 1, 15, 12, tzinfo=UTC)
    nested = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.decimal128(10, 2)))])
    columns: dict[str, tuple[str, pa.DataType, list[Any]]] = {
        "price": ("DECIMAL(8, 2)", pa.float64(), [1.5, 0.1, float("nan")]),
        "n": ("BIGINT", pa.string(), ["7", None, "7.5"]),
        "day": ("DATE", pa.timestamp("us"), [datetime(2024, 1, 15), None, noon.replace(tzinfo=None)]),
        "at": ("TIMESTAMP", pa.string(), ["2024-01-15T12:00:00Z", None, "10:30"]),
        "text": ("STRING", pa.timestamp("us", "UTC"), [noon, None, noon]),
        "key": ("STRING", pa.binary(), [b"\xff\x00", None, b""]),
        "json": ("STRING", nested, [{"a": 1, "b": [Decimal("1.50")]}, None, None]),
        "in": ("STRUCT<b: ARRAY<DOUBLE>, c: STRING>", nested, [{"a": 1, "b": [Decimal("1.50")]}, None, None]),
        "not": ("BIGINT", pa.list_(pa.int64()), [None, None, [1]]),
    }  # fmt: skip
    landed = pa.table({name: pa.array(values, kind) for name, (_, kind, values) in columns.items()})
    schema = ", ".join(f"`{name}` {type_}" for name, (type_, _, _) in columns.items())
    for name in ("price", "n", "day", "at", "not"):
        bad = landed.slice(2, 1).select([name])
        lake.store.put(f"landing/x/bad-{name}.parquet", file_of(bad))
    files = {"a.parquet": file_of(landed.slice(0, 2))}
    rows, refused = landed_rows(lake, spark, files, schema=schema)
    assert rows == [
        (
            Decimal("0.10"), *[None] * 8, None,
        ),
        (
            Decimal("1.50"), 7, date(2024, 1, 15), noon, "2024-01-15T12:00:00.000000Z", "/wA=",
            '{"a":1,"b":[1.50]}', {"b": [1.5], "c": None}, None, '{"in.a":1}',
        ),
    ]  # fmt: skip
    assert [row[1:] for row in refused] == [(1, "a field does not fit the schema")] * 5


def test_undeclared_members_of_a_struct_can_be_refused(lake: Lake, spark: SparkSession) -> None:
    files = {"a.parquet": file_of([{"s": {"a": 1, "b": None}}, {"s": {"a": 1, "b": 2}}])}
    schema = "s STRUCT<a: BIGINT>"
    rows, refused = landed_rows(lake, spark, files, schema=schema, new_columns="refuse")
    assert rows == [({"a": 1},)]
    assert refused == [("landing/x/a.parquet", 2, "the schema does not name s.b")]


@pytest.mark.parametrize("is_gregorian", [True, False])
def test_an_old_date_is_loaded_if_its_file_shows_that_it_uses_the_gregorian_calendar(
    lake: Lake, spark: SparkSession, is_gregorian: bool
) -> None:
    days = [-719_162, -141_428, 19_737, -719_163, 2_932_897]  # 0001, 1582-10-14, 2024, 0000, 10000
    day = pa.array(days, pa.int32()).cast(pa.date32())
    at = pa.array([each * 86_400_000_000 for each in days], pa.timestamp("us", "UTC"))
    table = pa.table(
        {"id": range(5), "day": day, "at": at, "many": pa.array([[each] for each in day])}
    )
    files = dict[str, bytes]()
    version = "3.5.1" if is_gregorian else "2.4.8"
    metadata = {"org.apache.spark.version": version}
    for name in ("day", "at", "many"):
        columns = table.select(["id", name]).replace_schema_metadata(metadata)
        files[f"{name}.parquet"] = file_of(columns)
    schema = "id BIGINT, day DATE, at TIMESTAMP, many ARRAY<DATE>"
    rows, refused = landed_rows(lake, spark, files, schema=schema)
    good = 3 if is_gregorian else 1
    assert (len(rows), len(refused)) == (3 * good, 3 * (5 - good))
    assert all(("does not show" in reason) != is_gregorian for _, _, reason in refused)
    if is_gregorian:
        found = {row[1] for row in rows if row[1]}
        assert found == {date(1, 1, 1), date(1582, 10, 14), date(2024, 1, 15)}
