"""The bytes of a Parquet file's values, each counted as often as rows have it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.core.ingest.records import too_large

_ROWS_AT_ONCE = 5_000
_PART_BYTES = 64 * 1024 * 1024
# Bytes of a value in memory; of BYTE_ARRAY the offset alone.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8, "BYTE_ARRAY": 4}
# Source: Arrow, parquet/arrow/schema_internal.cc: only texts and binary values are read as dictionaries.
_READ_AS_DICTIONARY = {"NONE", "STRING", "ENUM"}
# Only these encodings have values that take more bytes than their chunk has for them. Source: Parquet, Encodings.md
_DICTIONARY, _PREFIXES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}, "DELTA_BYTE_ARRAY"


class ParquetReading(NamedTuple):
    """How a Parquet file is read: the columns that stay dictionaries until their bytes are counted, and how many rows at once."""

    dictionaries: tuple[str, ...]
    rows_at_once: int


def plan_parquet(file: pq.ParquetFile, limit: int) -> ParquetReading:
    """A reading that holds at most `limit` bytes at once.

    A value of a column whose bytes repeat and that cannot stay a dictionary is at most as large as its column chunk, so that fewer rows are
    read at once.

    Raises:
        Unreadable: the footer tells more than `limit` bytes.
    """
    metadata, content_bytes, row_bytes, dictionaries = file.metadata, 0, 0, list[str]()
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    for place in range(metadata.num_columns):
        column, chunks = file.schema.column(place), [group.column(place) for group in groups]
        width = _WIDTHS.get(column.physical_type) or column.length or 0
        content_bytes += sum(max(chunk.total_uncompressed_size, chunk.num_values * width) for chunk in chunks)
        encodings = {encoding for chunk in chunks for encoding in chunk.encodings}
        is_repeated = not _DICTIONARY.isdisjoint(encodings)
        if column.physical_type != "BYTE_ARRAY" or column.logical_type.type == "DECIMAL":
            row_bytes += width
        elif _PREFIXES in encodings or (is_repeated and column.logical_type.type not in _READ_AS_DICTIONARY):
            row_bytes += max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        elif is_repeated:
            dictionaries.append(column.path)
    if content_bytes > limit:
        raise too_large(limit)
    return ParquetReading(tuple(dictionaries), max(1, min(_ROWS_AT_ONCE, limit // max(row_bytes, 1))))


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


def _array_bytes(array: Any) -> int:
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths: Any = pc.call_function("binary_length", [array.dictionary])
        return array.indices.nbytes + (pc.call_function("sum", [lengths.take(array.indices)]).as_py() or 0)
    if pa.types.is_map(kind):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return len(array) + sum(_array_bytes(each.slice(begin, end - begin)) for each in (array.keys, array.items))
    if pa.types.is_struct(kind):
        return max(len(array), sum(map(_array_bytes, array.flatten())))
    if pa.types.is_nested(kind):  # a list of some kind
        return len(array) + _array_bytes(array.flatten())
    return max(len(array), array.nbytes)
