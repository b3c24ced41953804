"""Files as people's tools write them: no file stops a table, and no value loads as another one."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Csv, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.decode import files_schema
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import rows_in

PREFIX = "landing/x/"
KEY = "bronze/x"
CSV_SCHEMA = "id BIGINT, amount DECIMAL(10,2), note STRING"


def load(
    lake: Lake, spark: SparkSession, files: Mapping[str, bytes], *columns: str, **declared: Any
) -> list[tuple[Any, ...]]:
    """The rows after a load of the files: of these columns, or of all declared ones."""
    source = Landing(prefix=PREFIX, **declared)
    for name, data in files.items():
        lake.store.put(f"{PREFIX}{name}", data)
    write_table(lake, spark, Table(key=KEY, source=source, write=Append()))
    rows = rows_in(lake, KEY, *(columns or source.column_names))
    return sorted(rows, key=lambda row: row[0])


def quarantined(lake: Lake) -> list[tuple[object, ...]]:
    """File, line and reason of what was set aside."""
    key = f"quarantine/{KEY}"
    if not lake.store.list(f"{key}/"):
        return []
    found = rows_in(lake, key, "source_file", "line", "reason")
    return [(str(file).removeprefix(PREFIX), line, why) for file, line, why in found]


def parquet(ids: list[int], **columns: pa.Array) -> bytes:
    arrays = {"id": pa.array(ids, pa.int64()), **columns}
    file = BytesIO()
    pq.write_table(pa.Table.from_arrays([*arrays.values()], names=[*arrays]), file)
    return file.getvalue()


def texts(*values: bytes) -> pa.Array:
    """Texts of any bytes, as writers that do not check them write."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


def test_a_text_that_is_not_utf_8_stops_no_file(lake: Lake, spark: SparkSession) -> None:
    files = {
        "1.parquet": parquet([1, 2], region=texts(b"a", b"b")),
        "2.parquet": parquet([3, 4, 5], region=texts(b"c", b"\xff\xfe", b"d")),
        "3.parquet": parquet([6], region=texts(b"e")),
    }
    rows = load(lake, spark, files, format="parquet", schema="id BIGINT, region STRING")
    aside = quarantined(lake)
    assert [row[0] for row in rows] == [1, 2, 3, 5, 6]
    assert [place[:2] for place in aside] == [("2.parquet", 2)]
    assert "not UTF-8" in str(aside[0][2])


def test_a_map_with_a_key_twice_stands_alone(lake: Lake, spark: SparkSession) -> None:
    maps = [[("a", "1"), ("a", "2")], [("b", "1"), ("b", "2")]]
    column = pa.array(maps, pa.map_(pa.string(), pa.string()))
    other = pa.array([None], column.type)
    files = {"1.parquet": parquet([1, 2], nested=column), "2.parquet": parquet([3], nested=other)}
    schema = "id BIGINT, nested MAP<STRING, STRING>"
    loaded = {row[0] for row in load(lake, spark, files, "id", format="parquet", schema=schema)}
    aside = {(file, line) for file, line, _ in quarantined(lake)}
    whole_file = {("1.parquet", None)}
    rows_alone = {("1.parquet", 1), ("1.parquet", 2)}
    if loaded == {3}:
        assert aside in (whole_file, rows_alone)
    else:
        assert (loaded, aside) == ({1, 2, 3}, set())


ZONES = {
    1: "2024-07-01 12:00:00 BST",
    2: "2024-07-01 12:00:00 IST",
    3: "2024-07-01 12:00:00 PST",
    4: "2024-07-01 12:00:00AST",
    5: "2024-07-01T12:00 CST",
    6: "2024-07-01 12:00:00 UTC",
    7: "2024-07-01T12:00:00+0530",
    8: "2024-07-01T12:00:00Z",
    9: "2024-07-01 14:00:00 Europe/Berlin",
    10: "2024-07-01 12:00:00 GMT",
    11: "2024-07-01 12:00:00 EST5EDT",
    12: "2024-07-01 13:00:00.5 UTC+01:00",
    13: "2024-07-01",
}


def test_a_time_with_the_letters_of_a_zone_is_no_time(lake: Lake, spark: SparkSession) -> None:
    lines = [f'{{"id": {number}, "at": "{text}"}}' for number, text in ZONES.items()]
    files = {"1.json": "\n".join(lines).encode()}
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    assert load(lake, spark, files, format="json", schema="id BIGINT, at TIMESTAMP") == [
        (6, noon),
        (7, noon.replace(hour=6, minute=30)),
        (8, noon),
        (9, noon),
        (10, noon),
        (12, noon.replace(microsecond=500_000)),
        (13, noon.replace(hour=0)),
    ]
    assert len(quarantined(lake)) == 6


TWO_ROWS = [(1, Decimal("9.50"), "a"), (2, Decimal("1.25"), "b")]
AS_TOOLS_WRITE = {
    "pandas": (b",id,amount,note\n0,1,9.50,a\n1,2,1.25,b\n", {}, TWO_ROWS),
    "R": (
        b'"","id","amount","note"\n"1",1,9.50,"a"\n"2",2,NA,"b"\n',
        {"null_value": "NA"},
        [TWO_ROWS[0], (2, None, "b")],
    ),
    "Excel in German": (
        b'\xef\xbb\xbfid;amount;note\r\n1;1.009,50;a\r\n2;1,25;"b;c"\r\n3;1.25;d\r\n',
        {"csv": Csv(delimiter=";", decimal=",")},
        [(1, Decimal("1009.50"), "a"), (2, Decimal("1.25"), "b;c")],
    ),
}


@pytest.mark.parametrize(
    "tool", ["pandas", pytest.param("R", marks=pytest.mark.long), "Excel in German"]
)
def test_csv_loads_as_tools_write_it(lake: Lake, spark: SparkSession, tool: str) -> None:
    data, declared, rows = AS_TOOLS_WRITE[tool]
    assert load(lake, spark, {"1.csv": data}, format="csv", schema=CSV_SCHEMA, **declared) == rows
    # 1.25 has a point although `decimal` is a comma.
    assert [place[1] for place in quarantined(lake)] == ([4] if ";" in str(data) else [])
    if tool == "pandas":
        assert rows_in(lake, KEY, "_rescued") == [('{"_c0":"0"}',), ('{"_c0":"1"}',)]


def test_a_csv_header_may_have_any_other_name(lake: Lake, spark: SparkSession) -> None:
    """Excel exports cells with line breaks."""
    data = b'id,"amount\n(EUR)",amount,${x},_lakehouse_end,note\n1,8.00,9.50,y,z,a\n'
    rows = load(lake, spark, {"1.csv": data}, format="csv", schema=CSV_SCHEMA)
    assert rows == TWO_ROWS[:1]
    [(others,)] = rows_in(lake, KEY, "_rescued")
    assert json.loads(others) == {"amount\n(EUR)": "8.00", "${x}": "y", "_lakehouse_end": "z"}


@pytest.mark.parametrize("least_bytes", [1, 2**40])
def test_a_csv_record_that_spark_would_misread_stands_alone(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    """Java's `(char) reader.read()` is U+FFFF at the end of a text."""
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", least_bytes)
    lines = ["id,amount,note", "1,9.50,a", "5,1.50,x\uffffy", "2,1.25,b", "\uffff6,1,x"]
    lines.append("7,1.00," + "1 2," * 30_000)  # the points of a polygon, without quotes
    data = "\n".join(lines).encode()
    rows = load(lake, spark, {"1.csv": data}, format="csv", schema=CSV_SCHEMA)
    assert rows == TWO_ROWS
    why = "it has the character U+FFFF, which Spark's CSV reader misreads"
    why_wide = "it has more or fewer fields than the 3 declared"
    assert quarantined(lake) == [("1.csv", 3, why), ("1.csv", 5, why), ("1.csv", 6, why_wide)]


@pytest.mark.long
def test_blanks_around_values_but_texts_do_not_count(lake: Lake, spark: SparkSession) -> None:
    schema = "id INT, is_new BOOLEAN, ratio DOUBLE, day DATE, at TIMESTAMP, note STRING"
    data = (
        b"id, is_new ,ratio,day,at,note\n 1 , true,\t0.5, 2024-01-15 , 2024-01-15 05:00:00 , x \n"
        b"2, , ,,,\n"
    )
    at = datetime(2024, 1, 15, 5, tzinfo=UTC)
    expected = [(1, True, 0.5, at.date(), at, " x "), (2, *[None] * 5)]
    assert load(lake, spark, {"1.csv": data}, format="csv", schema=schema) == expected


def test_json_that_begins_with_a_bracket_is_an_array(lake: Lake, spark: SparkSession) -> None:
    array = (
        b'\n[\n {"id": 1,\n  "amount": 9.50, "note": "a"},\n {"id": 2, "note": "[b, {\\n}]"}, 5 ]\n'
    )
    files = {
        "1.json": array,
        "2.json": b'[{"id": 3}]',
        "3.json": b'[{"id": 4}, {"id": 5]',
        "4.json": b"[]",
        "5.json": b'[{"id": 6}]\n{"id": 7}',
    }
    rows = load(lake, spark, files, format="json", schema=CSV_SCHEMA)
    assert rows == [(1, Decimal("9.50"), "a"), (2, None, "[b, {\n}]"), (3, None, None)]
    lines = {row[1]: row[0] for row in rows_in(lake, KEY, "_source_line", "id")}
    assert lines == {1: 3, 2: 5, 3: 1}
    expected = [("1.json", 5), ("3.json", None), ("5.json", None)]
    assert [place[:2] for place in quarantined(lake)] == expected


OF_TYPES: dict[str, tuple[pa.DataType, object]] = {
    "small": (pa.uint8(), 255),
    "large": (pa.uint64(), 2**64 - 1),
    "x": (pa.float32(), 0.5),
    "bytes": (pa.binary(), b"\xff\x00"),
    "day": (pa.date32(), date(2024, 1, 15)),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 1, 15, 5, tzinfo=UTC)),
    "wall": (pa.timestamp("us"), datetime(2024, 1, 15, 5)),
    "price": (pa.decimal128(10, 2), Decimal("1.50")),
    "list": (
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.binary())])),
        [{"a": 1, "b": b"\x01"}],
    ),
    "by": (pa.map_(pa.string(), pa.float64()), [("k", 0.25)]),
}


def test_the_schema_of_a_parquet_file_holds_its_values(lake: Lake, spark: SparkSession) -> None:
    columns = {name: pa.array([value, None], kind) for name, (kind, value) in OF_TYPES.items()}
    data = parquet([1, 2], **columns)
    schema = files_schema({"x.parquet": data})
    assert schema.left_out == ()
    declared = {"format": "parquet", "schema": schema.ddl}
    rows = load(lake, spark, {"1.parquet": data}, "id", *OF_TYPES, **declared)
    assert rows[0][1:] == tuple(value for _, value in OF_TYPES.values())
    assert rows[1] == (2, *[None] * len(OF_TYPES))
