"""Rows of Parquet and Avro become Arrow columns that Spark reads; what is damaged gives none."""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.land.decode import ZSTD, decoded_file, file_types, is_gregorian
from lakehouse.land.plan.file_text import read_records
from lakehouse.land.plan.records import Unreadable
from lakehouse_tests.land.plan.test_file_text import JSON

LIMIT = 10_000_000
ROWS: list[dict[str, Any]] = [
    {"id": number, "text": f"é{number}", "x": number / 7} for number in range(3_000)
]


def schema_of(**types: Any) -> dict[str, Any]:
    """The schema of records with these fields."""
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return {"type": "record", "name": "row", "fields": fields}


SCHEMA = schema_of(id="long", text="string", x=["null", "double"])


def parquet(rows: list[dict[str, Any]] | pa.Table = ROWS, **options: Any) -> bytes:
    file = BytesIO()
    pq.write_table(
        rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), file, **options
    )
    return file.getvalue()


def avro(
    rows: list[dict[str, Any]] = ROWS,
    schema: Mapping[str, Any] | str = SCHEMA,
    codec: str = "deflate",
) -> bytes:
    file = BytesIO()
    fastavro.writer(file, schema, rows, codec=codec)
    return file.getvalue()


def values(data: bytes, format: str) -> list[Any]:
    decoded = decoded_file(data, format, LIMIT)
    tables = [pa.table([*columns], names=[*decoded.shape.names]) for columns in decoded.batches]
    return pa.concat_tables(tables).to_pylist()


def test_a_row_that_is_nested_too_deep_makes_its_file_unreadable() -> None:
    node = schema_of(id="long", next=["null", "row"])
    deep: dict[str, Any] = {"id": 0, "next": None}
    for number in range(2_000):
        # The name of the branch saves fastavro a search through all depths at each one.
        deep = {"id": number, "next": ("row", deep)}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        data = avro([deep], node)
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(Unreadable, match="RecursionError"):
        values(data, "avro")
    expected = [{"id": 1, "next": '{"id": 2, "next": null}'}]
    assert values(avro([{"id": 1, "next": {"id": 2, "next": None}}], node), "avro") == expected


def test_a_file_tells_the_types_that_hold_its_values() -> None:
    types: dict[str, tuple[pa.DataType, str]] = {
        "flag": (pa.bool_(), "BOOLEAN"),
        "small": (pa.int8(), "TINYINT"),
        "large": (pa.uint64(), "DECIMAL(20,0)"),
        "x": (pa.float32(), "FLOAT"),
        "price": (pa.decimal128(10, 2), "DECIMAL(10,2)"),
        "wide": (pa.decimal256(50, 2), "STRING"),
        "day": (pa.date32(), "DATE"),
        "at": (pa.timestamp("ns", "Europe/Paris"), "TIMESTAMP"),
        "wall": (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        "time": (pa.time64("us"), "STRING"),
        "bytes": (pa.binary(), "BINARY"),
        "list": (pa.list_(pa.int64()), "ARRAY<BIGINT>"),
        "by": (pa.map_(pa.string(), pa.uint16()), "MAP<STRING, INT>"),
        "members": (
            pa.struct([("a b", pa.uint64()), ("c", pa.list_(pa.date32()))]),
            "STRUCT<`a b`: DECIMAL(20,0), c: ARRAY<DATE>>",
        ),
        "twice": (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "STRING"),
        "by_list": (pa.map_(pa.list_(pa.int8()), pa.int8()), "STRING"),
        "tiny": (pa.uint8(), "SMALLINT"),
        "text": (pa.dictionary(pa.int32(), pa.string()), "STRING"),
    }
    table = pa.schema([(name, arrow) for name, (arrow, _) in types.items()]).empty_table()
    expected = {name: type_ for name, (_, type_) in types.items()}
    assert file_types(parquet(table), "parquet") == expected
    fields: dict[str, tuple[Any, str]] = {
        "flag": ("boolean", "BOOLEAN"),
        "number": (["null", "int"], "INT"),
        "several": (["int", "string"], "STRING"),
        "x": ("float", "FLOAT"),
        "price": (
            ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            "DECIMAL(10,2)",
        ),
        "day": ({"type": "int", "logicalType": "date"}, "DATE"),
        "at": ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        "wall": ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        "time": ({"type": "int", "logicalType": "time-millis"}, "STRING"),
        "list": ({"type": "array", "items": "int"}, "ARRAY<INT>"),
    }
    schema = schema_of(**{name: found for name, (found, _) in fields.items()})
    expected = {name: type_ for name, (_, type_) in fields.items()}
    assert file_types(avro([], schema), "avro") == expected


def test_values_are_staged_with_types_that_spark_reads() -> None:
    at = datetime(2026, 11, 22, 8, 44, 1, 234567, tzinfo=UTC)
    columns: dict[str, tuple[object, pa.DataType, object]] = {
        "n": (2**64 - 1, pa.uint64(), Decimal(2**64 - 1)),
        "wide": (Decimal("1.50"), pa.decimal256(50, 2), "1.50"),
        "at": (at, pa.timestamp("ms", "UTC"), at.replace(microsecond=234000)),
        "ns": (
            1_763_801_041_234_567_891,
            pa.timestamp("ns"),
            datetime(2025, 11, 22, 8, 44, 1, 234567),
        ),
        "time": (time(1, 2, 3, 4), pa.time64("us"), "01:02:03.000004"),
        "uuid": (UUID(int=7).bytes, pa.uuid(), str(UUID(int=7))),
        "none": (None, pa.null(), None),
        "text": ("é", pa.dictionary(pa.int32(), pa.large_string()), "é"),
        "in": (
            {"a": 1, "b": [2]},
            pa.struct([("a", pa.uint64()), ("b", pa.large_list(pa.int8()))]),
            {"a": Decimal(1), "b": [2]},
        ),
        "twice": (
            {"a": 1, "A": 2},
            pa.struct([("a", pa.int8()), ("A", pa.int8())]),
            '{"a": 1, "A": 2}',
        ),
        "by_bytes": ([(b"\x00\xff", 1)], pa.map_(pa.binary(), pa.int64()), '[["AP8=", 1]]'),
        "pair": ([1, 2], pa.list_(pa.int64(), 2), [1, 2]),
    }
    table = pa.table(
        {name: pa.array([value, None], kind) for name, (value, kind, _) in columns.items()}
    )
    first, second = values(parquet(table), "parquet")
    assert first == {name: staged for name, (_, _, staged) in columns.items()}
    assert second == dict.fromkeys(columns)
    kinds: dict[str, tuple[object, object, object]] = {
        "n": (7, "int", 7),
        "union": ([1, "x"], {"type": "array", "items": ["int", "string"]}, '[1, "x"]'),
        "price": (
            Decimal("1.50"),
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            Decimal("1.50"),
        ),
        "at": (at, {"type": "long", "logicalType": "timestamp-micros"}, at),
        "time": (time(1, 2, 3), {"type": "int", "logicalType": "time-millis"}, "01:02:03.000000"),
        "uuid": (UUID(int=7), {"type": "string", "logicalType": "uuid"}, str(UUID(int=7))),
        "by": ({"k": 0.5}, {"type": "map", "values": "double"}, [("k", 0.5)]),
        "word": ("a", {"type": "enum", "name": "words", "symbols": ["a", "b"]}, "a"),
        "plain": (7, {"type": "long", "logicalType": "date"}, 7),
    }
    schema = schema_of(**{name: ["null", kind] for name, (_, kind, _) in kinds.items()})
    row = {name: value for name, (value, _, _) in kinds.items()}
    data = avro([row, {}], schema)
    expected = [{name: staged for name, (_, _, staged) in kinds.items()}, dict.fromkeys(kinds)]
    assert values(data, "avro") == expected


def test_a_time_too_far_away_for_microseconds_makes_its_file_unreadable() -> None:
    times = pa.array([2**63 - 1, 0], pa.timestamp("ms", "UTC"))
    with pytest.raises(Unreadable, match=r"out of bounds|overflow"):
        values(parquet(pa.table({"id": [1, 2], "at": times})), "parquet")


def test_a_column_name_that_stands_twice_makes_a_file_unreadable() -> None:
    twice = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "n", "id"])
    message = (
        r"1 column name occurs more than once, first 'id'\. Land the file with one name per column"
    )
    with pytest.raises(Unreadable, match=message):
        values(parquet(twice), "parquet")


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_a_file_with_flipped_bytes_is_read_or_refused_and_raises_nothing_else(format: str) -> None:
    random = Random(2026)
    whole = parquet(ROWS[:200]) if format == "parquet" else avro(ROWS[:200], codec="snappy")
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(3):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        try:
            decoded = decoded_file(bytes(data), format, LIMIT)
        except Unreadable:
            continue
        assert all(len(columns) == len(decoded.shape.names) for columns in decoded.batches)


def test_a_file_whose_rows_have_no_named_fields_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="the top-level Avro schema is not a record"):
        decoded_file(avro([7], "long"), "avro", LIMIT)  # type: ignore[list-item]
    empty = avro([{}], schema_of(), "null")
    with pytest.raises(Unreadable, match="it has no columns"):
        decoded_file(empty, "avro", LIMIT)


def test_zstd_of_several_frames_is_one_file_and_damage_gives_no_record() -> None:
    packed = pa.compress(b'{"a": 1}\n{"b"', "zstd", asbytes=True) + pa.compress(
        b": 2}\n", "zstd", asbytes=True
    )
    records = read_records(packed, JSON, compression=ZSTD, max_content_bytes=LIMIT)
    assert [record.content for record in records] == [b'{"a": 1}', b'{"b": 2}']
    whole = pa.compress(b'{"id": 1}\n' * 100_000, "zstd", asbytes=True)
    for data in (b"", b"{}", whole[:-5], whole[:40], whole + b"more"):
        with pytest.raises(Unreadable, match=r"zstd .*land it again"):
            list(read_records(data, JSON, compression=ZSTD, max_content_bytes=LIMIT))
    with pytest.raises(Unreadable, match="it unpacks to more than 5000 bytes"):
        list(read_records(whole, JSON, compression=ZSTD, max_content_bytes=5_000))


LONG, COUNT = "x" * 10_000, 1_000
ONE_VALUE = pa.DictionaryArray.from_arrays(pa.array([0] * COUNT, pa.int32()), pa.array([LONG]))
# Files of a few kilobytes that decode to 10 MB.
BOMBS: dict[str, Callable[[], bytes]] = {
    "a repeated value": lambda: parquet(
        pa.table({"text": ONE_VALUE.cast(pa.string())}), compression="zstd"
    ),
    "a dictionary in Arrow, too": lambda: parquet(pa.table({"text": ONE_VALUE})),
    "differences": lambda: parquet(
        pa.table({"text": ONE_VALUE.cast(pa.string())}),
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    ),
    "a codec": lambda: parquet(
        pa.table({"text": ONE_VALUE.cast(pa.string())}), compression="zstd", use_dictionary=False
    ),
    "numbers of one list": lambda: parquet(
        pa.table({"l": pa.array([[7] * 1_000_000], pa.list_(pa.int64()))})
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_that_decodes_to_more_than_the_limit_gives_no_record(kind: str) -> None:
    data, limit = BOMBS[kind](), 1_000_000
    assert len(data) < 20_000
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        message = f"it unpacks to more than {limit} bytes; land its records in"
        with pytest.raises(Unreadable, match=message):
            decoded_file(data, "parquet", limit)
    finally:
        pa.set_memory_pool(default)
    # A single row is decoded whole before it is refused.
    assert kind == "numbers of one list" or pool.max_memory() < 4 * limit


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_avro_of_several_blocks_is_read_up_to_the_limit(codec: str) -> None:
    assert values(avro(codec=codec), "avro") == ROWS
    message = "it unpacks to more than 20000 bytes; land its records in"
    with pytest.raises(Unreadable, match=message):
        decoded_file(avro(codec=codec), "avro", 20_000)


SPARK_3 = {"org.apache.spark.version": "3.5.1"}
SPARK_2 = {"org.apache.spark.version": "2.4.8"}
LEGACY = {**SPARK_3, "org.apache.spark.legacyDateTime": "", "org.apache.spark.legacyINT96": ""}
# The metadata, the library, and whether its dates are Gregorian, without and with INT96 times.
CALENDARS: dict[str, tuple[dict[str, str], str, bool, bool]] = {
    "Spark 2.4.8": (SPARK_2, "parquet-mr version 1.10.1", False, False),
    "Spark 3.0": ({"org.apache.spark.version": "3.0.3"}, "", True, False),
    "Spark 4": ({"org.apache.spark.version": "4.2.0"}, "", True, True),
    "an early Spark 2": (
        {"org.apache.spark.sql.parquet.row.metadata": "{}"},
        "parquet-mr version 1.8.1",
        False,
        False,
    ),
    "Hive 2": ({}, "parquet-mr version 1.8.1", False, False),
    "Hive 4": ({"writer.date.proleptic": "true"}, "parquet-mr version", True, False),
    "Trino": ({}, "parquet-mr compatible Trino version 435", True, True),
    "DuckDB": ({}, "DuckDB version v1.1.3", True, True),
    "an unknown library": ({}, "", False, False),
}


@pytest.mark.parametrize("name", CALENDARS)
def test_a_files_metadata_shows_its_calendar(name: str) -> None:
    metadata, created_by, *expected = CALENDARS[name]
    found = [
        is_gregorian(metadata, created_by=created_by, has_int96=has_int96)
        for has_int96 in (False, True)
    ]
    assert found == expected


def test_the_calendar_of_a_file_is_that_of_its_footer() -> None:
    for metadata, expected in (({}, True), (SPARK_3, True), (SPARK_2, False), (LEGACY, False)):
        table = pa.table({"day": [1]}).replace_schema_metadata(metadata)
        assert decoded_file(parquet(table), "parquet", LIMIT).shape.is_gregorian == expected
    for metadata, expected in (({}, False), (SPARK_3, True), (SPARK_2, False)):
        file = BytesIO()
        fastavro.writer(file, SCHEMA, ROWS[:1], metadata={**metadata})
        assert decoded_file(file.getvalue(), "avro", LIMIT).shape.is_gregorian == expected
