"""An Avro file of a few kilobytes that unpacks to hundreds of megabytes is refused, and not unpacked."""

from typing import Any

import pytest

from lakehouse.core.ingest.records import Unreadable
from lakehouse.engine.ingest.landed_rows import read_rows
from lakehouse.engine.ingest.unpacked_size import avro as avro_size
from lakehouse_tests.engine.ingest.test_landed_rows import LANDING, ROWS, avro, values

LIMIT = 1_000_000


def avro_of_blocks(codec: str, blocks: int) -> bytes:
    rows: list[dict[str, Any]] = [{"id": number, "text": "x" * 600_000, "x": None} for number in range(blocks)]
    return avro(rows, codec=codec)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz"])
def test_an_avro_block_is_not_unpacked_beyond_the_limit(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, unpacked, count_bytes = avro_of_blocks(codec, 2), list[int](), avro_size._block_bytes

    def counted(*of: Any) -> int:
        unpacked.append(count_bytes(*of))
        return unpacked[-1]

    monkeypatch.setattr(avro_size, "_block_bytes", counted)
    monkeypatch.setattr(avro_size, "_CHUNK_BYTES", 50_000)
    with pytest.raises(
        Unreadable, match=f"it unpacks to more than {LIMIT} bytes; land it in smaller files, or raise Landing.max_file_bytes"
    ):
        next(read_rows(data, LANDING["avro"], max_content_bytes=LIMIT))
    assert unpacked[0] > 600_000
    assert sum(unpacked) <= LIMIT + 50_000 or codec == "snappy"


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_avro_of_several_blocks_is_read_where_it_fits(codec: str) -> None:
    assert [row["id"] for row in values(avro_of_blocks(codec, 1) if codec != "null" else avro(codec=codec), "avro")][:1] == [0]
    assert values(avro(codec=codec), "avro") == ROWS


def test_avro_rows_and_items_of_no_bytes_are_not_made_by_the_million() -> None:
    """Source: Apache Avro 1.11, "Object Container Files": a block tells how many rows it has."""
    empty = avro([{}], {"type": "record", "name": "row", "fields": []}, "null")
    many = empty[:-18] + bytes([0x80, 0x80, 0x80, 0x04]) + empty[-17:]
    with pytest.raises(Unreadable, match="it unpacks to more than"):
        next(read_rows(many, LANDING["avro"], max_content_bytes=LIMIT))
    node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}, {"name": "none", "type": "null"}]}
    for items, is_refused in (("null", True), ({"type": "record", "name": "e", "fields": []}, True), (node, False), ("boolean", False)):
        fields = [{"name": "a", "type": {"type": "map", "values": {"type": "array", "items": items}}}]
        data = avro([{"a": {}}], {"type": "record", "name": "row", "fields": fields})
        if is_refused:
            with pytest.raises(Unreadable, match="an array whose items take no bytes"):
                values(data, "avro")
        else:
            assert values(data, "avro") == [{"a": {}}]
