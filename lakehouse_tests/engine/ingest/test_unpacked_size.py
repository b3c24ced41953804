"""A few kilobytes that unpack to hundreds of megabytes are refused, not unpacked, and never in memory."""

from typing import Any

import pyarrow as pa
import pytest

from lakehouse.core.ingest.records import Record, Unreadable
from lakehouse.engine.ingest import unpacked_size
from lakehouse.engine.ingest.landed_rows import read_rows
from lakehouse_tests.engine.ingest.test_landed_rows import LANDING, ROWS, avro, parquet, values

LIMIT = 1_000_000
MOST_BYTES = 3 * LIMIT  # in memory while a file is read: the limit, and what a page or two take
LONG, COUNT = "x" * 10_000, 1_000
ONE_VALUE = pa.DictionaryArray.from_arrays(pa.array([0] * COUNT, pa.int32()), pa.array([LONG]))
OFFSETS = pa.array([0, COUNT], pa.int32())
REPEATED: dict[str, pa.Array] = {
    "texts": ONE_VALUE.cast(pa.string()),
    "texts that are a dictionary in Arrow, too": ONE_VALUE,
    "texts of a list": pa.ListArray.from_arrays(OFFSETS, ONE_VALUE),
    "texts of a struct": pa.StructArray.from_arrays([ONE_VALUE], names=["text"]),
    "texts of a map": pa.MapArray.from_arrays(OFFSETS, pa.array(map(str, range(COUNT))), ONE_VALUE),
    "binary values": ONE_VALUE.cast(pa.string()).cast(pa.binary()),
    "binary values of one width": ONE_VALUE.cast(pa.string()).cast(pa.binary(len(LONG))),
    "numbers of a list": pa.ListArray.from_arrays(
        pa.array([0, 1_000_000], pa.int32()), pa.array([7]).take(pa.array([0] * 1_000_000))
    ),
}


def assert_refused(data: bytes) -> None:
    given_before, default = list[Record](), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(
            Unreadable,
            match=f"it unpacks to more than {LIMIT} bytes; land it in smaller files, or raise Landing",
        ):
            given_before.extend(read_rows(data, LANDING["parquet"], max_content_bytes=LIMIT))
    finally:
        pa.set_memory_pool(default)
    assert given_before == []
    assert pool.max_memory() < MOST_BYTES


@pytest.mark.parametrize("kind", REPEATED)
def test_values_that_stand_once_in_a_parquet_file_count_as_often_as_rows_have_them(
    kind: str,
) -> None:
    data = parquet(pa.table({"text": REPEATED[kind]}), compression="zstd")
    assert len(data) < 20_000
    assert_refused(data)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "PLAIN"])
def test_so_do_values_that_only_tell_how_they_differ_and_those_that_a_codec_makes_small(
    encoding: str,
) -> None:
    table = pa.table({"text": ONE_VALUE.cast(pa.string())})
    data = parquet(
        table, compression="zstd", use_dictionary=False, column_encoding={"text": encoding}
    )
    assert len(data) < 20_000
    assert_refused(data)


def test_a_dictionary_counts_for_the_rows_that_refer_to_it_and_not_for_each_part_of_a_file() -> (
    None
):
    texts = pa.array([str(number % 500) * 100 for number in range(10_000)])
    table = pa.table(
        {
            "text": texts.dictionary_encode(),
            "list": pa.array([[text[:2]] for text in texts.to_pylist()]),
        }
    )
    data = parquet(table)
    size = sum(unpacked_size.unpacked_bytes(batch) for batch in table.to_batches(max_chunksize=500))
    assert 2_500_000 < size < 4_000_000
    assert values(data, "parquet") == table.to_pylist()


def test_rows_come_out_the_same_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {**row, "l": [row["text"], None], "s": {"a": row["text"], "b": []}} for row in ROWS[:70]
    ]
    rows += [{"id": None, "text": None, "x": None, "l": None, "s": None}] * 3
    maps = pa.array(
        [row["text"] and [(row["text"], "v")] for row in rows], pa.map_(pa.string(), pa.string())
    )
    data = parquet(pa.Table.from_pylist(rows).append_column("m", maps))
    whole = values(data, "parquet")
    assert len(whole) == 73
    monkeypatch.setattr(unpacked_size, "_PART_BYTES", 200)
    assert values(data, "parquet") == whole


def avro_of_blocks(codec: str, blocks: int) -> bytes:
    rows: list[dict[str, Any]] = [
        {"id": number, "text": "x" * 600_000, "x": None} for number in range(blocks)
    ]
    return avro(rows, codec=codec)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz"])
def test_an_avro_block_is_not_unpacked_beyond_the_limit(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, unpacked, count_bytes = avro_of_blocks(codec, 2), list[int](), unpacked_size._block_bytes

    def counted(*of: Any) -> int:
        unpacked.append(count_bytes(*of))
        return unpacked[-1]

    monkeypatch.setattr(unpacked_size, "_block_bytes", counted)
    monkeypatch.setattr(unpacked_size, "_CHUNK_BYTES", 50_000)
    with pytest.raises(
        Unreadable,
        match=f"it unpacks to more than {LIMIT} bytes; land it in smaller files, or raise Landing.max_file_bytes",
    ):
        next(read_rows(data, LANDING["avro"], max_content_bytes=LIMIT))
    assert unpacked[0] > 600_000
    assert sum(unpacked) <= LIMIT + 50_000 or codec == "snappy"


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_avro_of_several_blocks_is_read_where_it_fits(codec: str) -> None:
    assert [
        row["id"]
        for row in values(
            avro_of_blocks(codec, 1) if codec != "null" else avro(codec=codec), "avro"
        )
    ][:1] == [0]
    assert values(avro(codec=codec), "avro") == ROWS


def test_avro_rows_and_items_of_no_bytes_are_not_made_by_the_million() -> None:
    """Source: Apache Avro 1.11, "Object Container Files": a block tells how many rows it has."""
    empty = avro([{}], {"type": "record", "name": "row", "fields": []}, "null")
    many = empty[:-18] + bytes([0x80, 0x80, 0x80, 0x04]) + empty[-17:]
    with pytest.raises(Unreadable, match="it unpacks to more than"):
        next(read_rows(many, LANDING["avro"], max_content_bytes=LIMIT))
    node = {
        "type": "record",
        "name": "node",
        "fields": [{"name": "next", "type": ["null", "node"]}, {"name": "none", "type": "null"}],
    }
    for items, is_refused in (
        ("null", True),
        ({"type": "record", "name": "e", "fields": []}, True),
        (node, False),
        ("boolean", False),
    ):
        fields = [
            {"name": "a", "type": {"type": "map", "values": {"type": "array", "items": items}}}
        ]
        data = avro([{"a": {}}], {"type": "record", "name": "row", "fields": fields})
        if is_refused:
            with pytest.raises(Unreadable, match="an array whose items take no bytes"):
                values(data, "avro")
        else:
            assert values(data, "avro") == [{"a": {}}]
