"""Rows of Parquet and Avro, and what zstd packs, become records like those of a JSON file; what is damaged gives none."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Landing
from lakehouse.land.plan.file_text import read_records
from lakehouse.land.plan.records import Record, Unreadable, with_earlier_names
from lakehouse.land.read import contents as landed_rows
from lakehouse.land.read import parquet_and_avro as avro_rows
from lakehouse.land.read.contents import ZSTD, read_rows
from lakehouse.land.read.parquet_and_avro import avro_types, parquet_types
from lakehouse_tests.land.plan.test_file_text import JSON

LIMIT = 10_000_000
LANDING = {
    format: Landing(prefix="landing/x/", format=format, schema="id BIGINT, text STRING")
    for format in ("parquet", "avro")
}
ROWS: list[dict[str, Any]] = [
    {"id": number, "text": f"é{number}", "x": number / 7} for number in range(3_000)
]
SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "x", "type": ["null", "double"]},
    ],
}


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
    return [
        json.loads(record.content)
        for record in read_rows(data, LANDING[format], max_content_bytes=LIMIT)
    ]


@pytest.mark.parametrize("format", LANDING)
def test_members_that_a_declared_struct_does_not_name_are_kept(format: Any) -> None:
    landing = Landing(prefix="landing/x/", format=format, schema="id BIGINT, s STRUCT<a: BIGINT>")
    inner = {
        "type": "record",
        "name": "inner",
        "fields": [{"name": name, "type": "long"} for name in ("a", "b")],
    }
    fields = [
        {"name": "id", "type": "long"},
        {"name": "s", "type": inner},
        {"name": "extra", "type": "long"},
    ]
    rows = [{"id": 1, "s": {"a": 1, "b": 2}, "extra": 3}]
    data = (
        parquet(rows)
        if format == "parquet"
        else avro(rows, {"type": "record", "name": "row", "fields": fields})
    )
    for policy, found in (
        ("rescue", {"s": {"b": 2}, "extra": 3}),
        ("refuse", {"s.b": 2, "extra": 3}),
    ):
        [record] = read_rows(data, replace(landing, new_columns=policy), max_content_bytes=LIMIT)
        assert json.loads(record.undeclared or "") == found


def test_a_row_that_is_nested_too_deep_stands_in_quarantine_and_stops_nobody() -> None:
    node = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "row"]}],
    }
    deep: dict[str, Any] = {"id": 0, "next": None}
    for number in range(700):
        deep = {"id": number, "next": deep}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        data = avro([deep, {"id": 7, "next": None}], node)
    finally:
        sys.setrecursionlimit(limit)
    first, last = read_rows(data, LANDING["avro"], max_content_bytes=LIMIT)
    assert (first.problem, last.problem) == ("a value is nested too deeply", None)


def test_each_row_is_a_json_object_under_its_number() -> None:
    first, *_, last = read_rows(
        parquet(row_group_size=700), LANDING["parquet"], max_content_bytes=LIMIT
    )
    assert first == Record(1, '{"id": 0, "text": "é0", "x": 0.0}'.encode(), None, '{"x": 0.0}')
    assert (last.line, json.loads(last.content)) == (3_000, ROWS[-1])


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
    assert parquet_types(parquet(table)) == {name: type_ for name, (_, type_) in types.items()}
    fields: dict[str, tuple[Any, str]] = {
        "flag": ("boolean", "BOOLEAN"),
        "number": (["null", "int"], "BIGINT"),
        "several": (["int", "string"], "STRING"),
        "x": ("float", "DOUBLE"),
        "price": (
            ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            "DECIMAL(10,2)",
        ),
        "day": ({"type": "int", "logicalType": "date"}, "DATE"),
        "at": ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        "wall": ({"type": "long", "logicalType": "local-timestamp-millis"}, "STRING"),
        "time": ({"type": "int", "logicalType": "time-millis"}, "STRING"),
        "list": ({"type": "array", "items": "int"}, "STRING"),
    }
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": name, "type": found} for name, (found, _) in fields.items()],
    }
    assert avro_types(avro([], schema)) == {name: type_ for name, (_, type_) in fields.items()}
    assert avro_types(avro([], "int")) == {}


def test_what_json_has_no_word_for_is_written_so_that_spark_reads_it_back() -> None:
    row = {
        "n": Decimal("123456789012345678.90"),
        "at": datetime(2026, 11, 22, 8, 44, 1, 234567, tzinfo=UTC),
        "plain": datetime(2026, 11, 22, 8, 44),
        "day": date(2026, 11, 22),
        "raw": b"\x00\xff",
        "x": [1.5, float("nan"), float("inf"), float("-inf"), None],
        "in": {"a": True, "b": "x"},
    }
    table = pa.Table.from_pylist([row]).append_column(
        "map", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    )
    table = table.append_column(
        "by_bytes", pa.array([[(b"\x00\xff", 1)]], pa.map_(pa.binary(), pa.int64()))
    )
    nanoseconds = pa.array([1_763_801_041_234_567_891], pa.timestamp("ns"))
    assert values(parquet(table.append_column("ns", nanoseconds), version="2.6"), "parquet") == [
        {
            "n": "123456789012345678.90",
            "at": "2026-11-22T08:44:01.234567Z",
            "plain": "2026-11-22T08:44:00",
            "day": "2026-11-22",
            "raw": "AP8=",
            "x": [1.5, "NaN", "Infinity", "-Infinity", None],
            "in": {"a": True, "b": "x"},
            "map": {"k": 1},
            "by_bytes": {"AP8=": 1},
            "ns": "2025-11-22T08:44:01.234567",
        }
    ]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) * 2 // 3],
    "cut at the end": lambda data: data[:-3],
    "overwritten": lambda data: data[:-2_000] + b"\0" * 2_000,
    "empty": lambda data: b"",
    "another": lambda data: b"no such thing",
}


def test_times_far_away_are_themselves_or_their_row_has_a_problem() -> None:
    far = pa.table(
        {
            "id": [1, 2],
            "at": pa.array([datetime(9999, 12, 31), datetime(1, 1, 1)], pa.timestamp("us")),
        }
    )
    for options in ({"use_deprecated_int96_timestamps": True}, {}):
        assert [row["at"] for row in values(parquet(far, **options), "parquet")] == [
            "9999-12-31T00:00:00",
            "0001-01-01T00:00:00",
        ]
    times = pa.array([2**63 - 1, 0], pa.timestamp("ms", "UTC"))
    data = parquet(pa.table({"id": [1, 2], "at": times}))
    first, second = read_rows(data, LANDING["parquet"], max_content_bytes=LIMIT)
    assert (
        first.problem == "at: the time 292278994-08-17T07:12:55.807 is not in the years 1 to 9999"
    )
    assert (second.problem, json.loads(second.content)["at"]) == (None, "1970-01-01T00:00:00Z")


def test_a_column_name_that_stands_twice_makes_a_file_unreadable() -> None:
    twice = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "n", "id"])
    with pytest.raises(
        Unreadable,
        match=r"1 column name occurs more than once, first 'id'\. Land the file with one name per column",
    ):
        [*read_rows(parquet(twice), LANDING["parquet"], max_content_bytes=1_000)]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_a_damaged_file_gives_no_row_at_all(format: str, damage: Callable[[bytes], bytes]) -> None:
    data, given_before = damage(parquet() if format == "parquet" else avro()), list[Record]()
    with pytest.raises(
        Unreadable, match=f"the file cannot be read to its end as {format} .*. Land an undamaged"
    ):
        given_before.extend(read_rows(data, LANDING[format], max_content_bytes=LIMIT))
    assert given_before == []


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_a_file_with_flipped_bytes_is_read_or_refused_and_raises_nothing_else(format: str) -> None:
    random, whole = (
        Random(2026),
        parquet(ROWS[:200]) if format == "parquet" else avro(ROWS[:200], codec="snappy"),
    )
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(3):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        try:
            records = [*read_rows(bytes(data), LANDING[format], max_content_bytes=LIMIT)]
        except Unreadable:
            continue
        assert [record.line for record in records] == [*range(1, len(records) + 1)]


def test_a_row_over_the_limit_and_one_that_is_no_record_have_their_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [record] = read_rows(avro([7], "long"), LANDING["avro"], max_content_bytes=LIMIT)  # type: ignore[list-item]
    problem = (
        "the row has no named fields: the top-level Avro schema is not a record. Land the file with"
        " a record schema"
    )
    assert record == Record(1, b"7", problem)
    monkeypatch.setattr(landed_rows, "MAX_RECORD_BYTES", 40)
    long, short = read_rows(
        parquet([{"id": "x" * 50}, {"id": "y"}]), LANDING["parquet"], max_content_bytes=LIMIT
    )
    assert (long.problem, short.problem) == ("the row is larger than the limit of 40 bytes", None)


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
def test_a_small_parquet_file_that_decodes_to_more_than_the_limit_gives_no_record(
    kind: str,
) -> None:
    data, limit, given_before = BOMBS[kind](), 1_000_000, list[Record]()
    assert len(data) < 20_000
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(
            Unreadable, match=f"it unpacks to more than {limit} bytes; land its records in"
        ):
            given_before.extend(read_rows(data, LANDING["parquet"], max_content_bytes=limit))
    finally:
        pa.set_memory_pool(default)
    assert given_before == []
    # A single row is decoded whole before it is refused.
    assert kind == "numbers of one list" or pool.max_memory() < 4 * limit


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_avro_of_several_blocks_is_read_up_to_the_limit(codec: str) -> None:
    assert values(avro(codec=codec), "avro") == ROWS
    with pytest.raises(
        Unreadable, match="it unpacks to more than 20000 bytes; land its records in"
    ):
        next(read_rows(avro(codec=codec), LANDING["avro"], max_content_bytes=20_000))


def test_an_avro_block_is_not_decompressed_beyond_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(avro_rows, "_MOST_BLOCK_BYTES", 10_000)
    with pytest.raises(Unreadable, match="a block of the file unpacks to more than 10000 bytes"):
        next(read_rows(avro(), LANDING["avro"], max_content_bytes=LIMIT))


def test_an_avro_codec_without_a_bound_on_its_blocks_is_refused() -> None:
    with pytest.raises(
        Unreadable, match=r"the codec is 'bzip2'\. Land the file again with one of null, d"
    ):
        next(read_rows(avro(codec="bzip2"), LANDING["avro"], max_content_bytes=LIMIT))


def test_avro_rows_without_fields_are_not_made_by_the_million() -> None:
    """Source: Apache Avro 1.11, "Object Container Files": a block records its number of rows."""
    empty = avro([{}], {"type": "record", "name": "row", "fields": []}, "null")
    many = empty[:-18] + bytes([0x80, 0x80, 0x80, 0x04]) + empty[-17:]
    with pytest.raises(Unreadable, match="it unpacks to more than"):
        next(read_rows(many, LANDING["avro"], max_content_bytes=1_000_000))


@pytest.mark.parametrize(("format", "as_file"), [("parquet", parquet), ("avro", avro)])
def test_a_row_with_an_earlier_name_is_parsed_by_the_present_one_and_kept_as_it_was_sent(
    format: str, as_file: Callable[[list[dict[str, Any]]], bytes]
) -> None:
    """`x` is the earlier name of a column, `text` the present name of another one."""
    landing = replace(LANDING[format], schema="id BIGINT, ratio DOUBLE, text STRING")
    renamed = with_earlier_names(landing, {"x": "ratio", "note": "text"})
    rows: list[dict[str, Any]] = [
        {"id": 1, "text": "a", "x": 0.5},
        {"id": 2, "text": "", "x": None},
    ]
    found = [*read_rows(as_file(rows), renamed, max_content_bytes=LIMIT)]
    assert [json.loads(record.content) for record in found] == rows
    parsed = [{"id": row["id"], "text": row["text"], "ratio": row["x"]} for row in rows]
    assert [json.loads(record.event or "") for record in found] == parsed
    assert [(record.problem, record.undeclared) for record in found] == [(None, None)] * 2
    clash = with_earlier_names(landing, {"x": "text"})
    [record, _] = read_rows(as_file(rows), clash, max_content_bytes=LIMIT)
    assert record.problem == "different values under two names of a column: x and text"
