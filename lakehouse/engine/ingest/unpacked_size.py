"""The bytes that landed Parquet and Avro take when they are unpacked, counted before memory holds them.

A dictionary tells a value once and each row refers to it, and a codec makes gigabytes of zeros into kilobytes: a file of 5 KB may unpack to
hundreds of gigabytes.

**Safety properties** (tests in `test_unpacked_size.py`)
- No part of an accepted Parquet file needs more memory than the limit, if its footer is true.
- No Avro block is unpacked beyond the limit.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.core.ingest.records import Unreadable, too_large

_CHUNK_BYTES = 4 * 1024 * 1024
_SYNC_BYTES = 16
_ROWS_AT_ONCE = 5_000
_PART_BYTES = 64 * 1024 * 1024
# Bytes of a value in memory; of BYTE_ARRAY the offset alone.
_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "FLOAT": 4,
    "INT64": 8,
    "DOUBLE": 8,
    "INT96": 8,
    "BYTE_ARRAY": 4,
}
# Source: Arrow, parquet/arrow/schema_internal.cc: only texts and binary values are read as dictionaries.
_READ_AS_DICTIONARY = {"NONE", "STRING", "ENUM"}
# Only these encodings have values that take more bytes than their chunk has for them. Source: Parquet, Encodings.md
_DICTIONARY, _PREFIXES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}, "DELTA_BYTE_ARRAY"


def plan_parquet(file: pq.ParquetFile, limit: int) -> tuple[list[str], int]:
    """The columns that stay dictionaries until their bytes are counted, and how many rows `limit` bytes hold at once.

    A value of a column whose bytes repeat and that cannot stay a dictionary counts as its column chunk, which it does not exceed.

    Raises:
        Unreadable: the footer tells more than `limit` bytes.
    """
    metadata, content_bytes, row_bytes, dictionaries = file.metadata, 0, 0, list[str]()
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    for place in range(metadata.num_columns):
        column, chunks = file.schema.column(place), [group.column(place) for group in groups]
        width = _WIDTHS.get(column.physical_type) or column.length or 0
        content_bytes += sum(
            max(chunk.total_uncompressed_size, chunk.num_values * width) for chunk in chunks
        )
        encodings = {encoding for chunk in chunks for encoding in chunk.encodings}
        is_repeated = not _DICTIONARY.isdisjoint(encodings)
        if column.physical_type != "BYTE_ARRAY" or column.logical_type.type == "DECIMAL":
            row_bytes += width
        elif _PREFIXES in encodings or (
            is_repeated and column.logical_type.type not in _READ_AS_DICTIONARY
        ):
            row_bytes += max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        elif is_repeated:
            dictionaries.append(column.path)
    if content_bytes > limit:
        raise too_large(limit)
    return dictionaries, max(1, min(_ROWS_AT_ONCE, limit // max(row_bytes, 1)))


def unpacked_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of a batch when each of its values stands for itself; each has one at least."""
    return max(batch.num_rows, sum(map(_array_bytes, batch.columns)))


def in_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, in parts of a bounded number of unpacked bytes, or of one row."""
    if batch.num_rows <= 1 or unpacked_bytes(batch) <= _PART_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from in_parts(batch.slice(0, middle))
    yield from in_parts(batch.slice(middle))


def check_avro(data: bytes, limit: int) -> None:
    """Passes for an Avro file whose blocks unpack to `limit` bytes; a row of no bytes counts as one.

    Raises:
        Unreadable: they unpack to more, or an array of its schema may have any number of items in no bytes, or its codec is unknown.
    """
    from fastavro import block_reader, schemaless_reader

    stream = BytesIO(data)
    file: Any = block_reader(stream)
    _takes_no_bytes(file.writer_schema, {})
    size = 0
    while stream.tell() < len(data):
        row_count: Any = schemaless_reader(stream, "long", None)
        packed: Any = schemaless_reader(stream, "bytes", None)
        stream.seek(_SYNC_BYTES, 1)
        size += max(row_count, _block_bytes(file.codec, packed, limit - size))
        if size > limit:
            raise too_large(limit)


def _array_bytes(array: Any) -> int:
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths: Any = pc.call_function("binary_length", [array.dictionary])
        return array.indices.nbytes + (
            pc.call_function("sum", [lengths.take(array.indices)]).as_py() or 0
        )
    if pa.types.is_map(kind):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return len(array) + sum(
            _array_bytes(each.slice(begin, end - begin)) for each in (array.keys, array.items)
        )
    if pa.types.is_struct(kind):
        return max(len(array), sum(map(_array_bytes, array.flatten())))
    if pa.types.is_nested(kind):  # a list of some kind
        return len(array) + _array_bytes(array.flatten())
    return max(len(array), array.nbytes)


def _block_bytes(codec: str, packed: bytes, limit: int) -> int:
    """The bytes of an Avro block, counted until they are more than `limit`."""
    if codec == "null":
        return len(packed)
    if codec == "snappy":
        import cramjam

        return cramjam.snappy.decompress_raw_len(
            packed
        )  # as the block itself tells; the reader makes room for so much
    if codec not in _CODECS:
        raise Unreadable(
            f"its codec is {codec!r}; accepted: null, snappy, {', '.join(_CODECS)}; land it again in one of them"
        )
    size = 0
    for chunk in _CODECS[codec](packed):
        size += len(chunk)
        if size > limit:
            break
    return size


def _deflate(packed: bytes) -> Iterator[bytes]:
    unpack = zlib.decompressobj(-zlib.MAX_WBITS)
    while chunk := unpack.decompress(packed, _CHUNK_BYTES):
        yield chunk
        packed = unpack.unconsumed_tail


def _chunks(open_file: Callable[[BytesIO], IO[bytes]], packed: bytes) -> Iterator[bytes]:
    with open_file(BytesIO(packed)) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


_CODECS = {
    "deflate": _deflate,
    "bzip2": partial(_chunks, bz2.BZ2File),
    "xz": partial(_chunks, lzma.LZMAFile),
}


def _takes_no_bytes(kind: Any, named: dict[str, bool]) -> bool:
    """Whether a value of an Avro type takes no bytes, of which an array could tell billions; `named` are the types that were seen."""
    match kind:
        case str():
            return kind == "null" or named.get(kind, False)
        case list():
            for each in kind:  # pyright: ignore[reportUnknownVariableType]
                _takes_no_bytes(each, named)
            return False
        case {"type": "array", "items": items}:
            if _takes_no_bytes(items, named):
                raise Unreadable(
                    "its schema has an array whose items take no bytes; land it with items that hold something"
                )
            return False
        case {"type": "map", "values": values}:
            _takes_no_bytes(values, named)
            return False
        case {"type": "record" | "error", "name": name, "fields": fields}:
            named[name] = False  # until its fields are known
            empty = [_takes_no_bytes(field["type"], named) for field in fields]  # each is looked at
            named[name] = all(empty)
            return named[name]
        case {"type": "fixed", "name": name, "size": size}:
            named[name] = size == 0
            return named[name]
        case _:
            return _takes_no_bytes(kind["type"], named)
