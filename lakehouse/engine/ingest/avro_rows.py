"""The rows of a landed Avro file, decoded block by block, and the types of its fields."""

import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from io import BytesIO
from typing import Any, cast

from lakehouse.core.ingest.records import Unreadable, too_large
from lakehouse.engine.ingest.dates_to_iso import BeyondPython, DateTexts, file_calendars
from lakehouse.engine.ingest.parquet_rows import decimal_type

_CODECS = ("null", "deflate", "snappy")
# The maximum size of a deflated block after decompression. Avro writers fill blocks of 16 KB to
# 64 KB by default, and of a few MB at most in practice.
_MOST_BLOCK_BYTES = 64 * 1024 * 1024
_SQL_TYPES = {
    "boolean": "BOOLEAN",
    "int": "BIGINT",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
}


def avro_rows(data: bytes, limit: int) -> Iterator[Any]:
    """The rows of an Avro file.

    Raises:
        Unreadable: its codec is not supported, its blocks unpack to more than `limit` bytes, or
            a deflated block unpacks to more than `_MOST_BLOCK_BYTES`.
        Exception: the file is damaged.
    """
    from fastavro import block_reader

    _prepare_fastavro()
    blocks: Any = block_reader(BytesIO(data))
    if blocks.codec not in _CODECS:
        raise Unreadable(
            f"the codec is {blocks.codec!r}. Land the file again with one of {', '.join(_CODECS)}"
        )
    decoded_bytes = 0
    for block in blocks:
        # A row without fields takes no bytes in the file, but takes memory once it is read.
        decoded_bytes += max(block.num_records, block.bytes_.getbuffer().nbytes)
        if decoded_bytes > limit:
            raise too_large(limit)
        yield from block


def avro_dates(data: bytes) -> DateTexts:
    """A converter from the dates and times in `avro_rows` to texts."""
    from fastavro import block_reader

    file: Any = block_reader(BytesIO(data))
    return DateTexts(file_calendars(file.metadata, None))


def avro_types(data: bytes) -> dict[str, str]:
    """The fields of an Avro file, with SQL types that can store their values.

    Empty if the top-level schema is not a record.
    """
    from fastavro import block_reader

    schema: Any = block_reader(BytesIO(data)).writer_schema
    if not isinstance(schema, dict) or schema["type"] != "record":
        return {}
    return {field["name"]: _sql_type(field["type"]) for field in schema["fields"]}


@cache
def _prepare_fastavro() -> None:
    """Replaces two parts of fastavro, once per process.

    Deflated blocks are decompressed up to a limit. Dates and times that Python cannot represent are
    read as `BeyondPython`; fastavro would stop reading the file with an error.
    """
    from fastavro.read import BLOCK_READERS, LOGICAL_READERS

    BLOCK_READERS["deflate"] = _deflated_block
    units = {"int-date": "D"}
    for name, unit in (("millis", "ms"), ("micros", "us")):
        units[f"long-timestamp-{name}"] = unit
        units[f"long-local-timestamp-{name}"] = unit
    for name, unit in units.items():
        LOGICAL_READERS[name] = partial(_or_beyond, LOGICAL_READERS[name], unit)


def _deflated_block(decoder: BytesIO) -> BytesIO:
    """The content of a deflated Avro block, decompressed up to a limit."""
    from fastavro import schemaless_reader

    packed: Any = schemaless_reader(decoder, "bytes", None)
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    content = decompressor.decompress(packed, _MOST_BLOCK_BYTES)
    if decompressor.unconsumed_tail:
        raise Unreadable(
            f"a block of the file unpacks to more than {_MOST_BLOCK_BYTES} bytes. Land the file "
            "with smaller blocks"
        )
    return BytesIO(content)


def _or_beyond(read: Callable[..., Any], unit: str, count: int, *schemas: Any) -> Any:
    """The date or time that fastavro's `read` returns, or else a `BeyondPython`."""
    try:
        return read(count, *schemas)
    except (OverflowError, ValueError):
        return BeyondPython(count, unit)


def _sql_type(kind: Any) -> str:
    """The SQL type of an Avro type; a union with null has the type of its other member.

    Source: Apache Avro 1.11, "Logical Types".
    """
    if isinstance(kind, list):
        others = [each for each in cast("list[Any]", kind) if each != "null"]
        return _sql_type(others[0]) if len(others) == 1 else "STRING"
    if not isinstance(kind, dict):
        return _SQL_TYPES.get(kind, "STRING")
    named = cast("dict[str, Any]", kind)
    logical = named.get("logicalType", named["type"])
    if logical == "decimal":
        return decimal_type(named["precision"], named.get("scale", 0))
    return _SQL_TYPES.get(str(logical), "STRING")
