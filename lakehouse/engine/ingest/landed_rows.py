"""Landed Parquet and Avro as records: each row becomes the JSON object that it would be as a line of a JSON file.

So whatever format a file has, its rows are staged, parsed, counted, required and refused in one way. Numbers keep their digits: decimals
are texts, which Spark reads as decimals. Binary values are Base64, and times are ISO 8601, in UTC where they have a zone.

**Safety properties**
- A file is decoded to its end before its first record is given: either all of its rows are known,
  or none (`test_landed_rows.py`).
- A file that decodes to more bytes than the limit gives no record. Memory holds the file, one
  decompressed page per Parquet column or one Avro block of bounded size, and 100 decoded rows
  (`test_landed_rows.py`).
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cache, partial
from io import BytesIO
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.content_format import detect_format
from lakehouse.core.ingest.file_text import Compression
from lakehouse.core.ingest.records import MAX_RECORD_BYTES, TOO_DEEP, Record, Unreadable, too_large
from lakehouse.core.ingest.undeclared import others_in_row
from lakehouse.core.units import DAY_MS
from lakehouse.engine.ingest.calendars import BeyondPython, Times, file_calendars

_CHUNK_BYTES = 4 * 1024 * 1024
_SHOWN = 1_000
_MOST_DIGITS = 38  # of a decimal of Spark's
# Few rows at once bound the memory that repeated dictionary values can take.
_ROWS_AT_ONCE = 100
# Avro writers fill blocks of 16 KB to 64 KB by default, and of some MB at most.
_MOST_BLOCK_BYTES = 64 * 1024 * 1024
_AVRO_CODECS = ("null", "deflate", "snappy")
_AVRO_TYPES = {
    "boolean": "BOOLEAN",
    "int": "BIGINT",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "date": "DATE",
}
_AVRO_TYPES |= {"timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP"}

_TextOf = Callable[[Any], Any]


class _Texts(NamedTuple):
    """What makes the texts of a file's dates and times; `of_columns` of those that are read as counts."""

    times: Times
    of_columns: Mapping[str, _TextOf]


def read_rows(data: bytes, landing: Landing, *, max_content_bytes: int) -> Iterator[Record]:
    """The rows of a Parquet or Avro file, in order, numbered from 1.

    Raises:
        Unreadable: before the first row: the file is damaged or cut short, or its rows take more than `max_content_bytes`.
    """
    is_parquet = landing.format == "parquet"
    fields = dict(field_types(landing.schema))
    try:
        if is_parquet:
            for _ in _parquet_batches(data, max_content_bytes):
                pass
            texts = _parquet_texts(data)
        else:
            for _ in _avro_rows(data, max_content_bytes):
                pass
            texts = _avro_texts(data)
    except Unreadable:
        raise
    except Exception as error:  # the readers raise whatever they stumble over in damaged bytes
        content = detect_format(data)
        is_other = content is not None and content.lower() != landing.format
        found = f"{content}" if is_other else f"{type(error).__name__}: {str(error)[:_SHOWN]}"
        raise Unreadable(
            f"it is no {landing.format} file that can be read to its end ({found}); land it again"
        ) from error
    if is_parquet:
        batches = _parquet_batches(data, max_content_bytes)
        rows = chain.from_iterable(batch.to_pylist(maps_as_pydicts="strict") for batch in batches)
    else:
        rows = _avro_rows(data, max_content_bytes)
    for number, row in enumerate(rows, start=1):
        yield _record(number, row, texts, fields, by_path=landing.new_columns == "refuse")


def own_types(data: bytes, format: str) -> dict[str, str]:
    """The columns of a Parquet or Avro file with the types that hold their values as they are read; none of a damaged file."""
    try:
        if format == "parquet":
            return {
                field.name: _parquet_type(field.type)
                for field in pq.read_schema(pa.BufferReader(data))
            }
        from fastavro import block_reader

        schema: Any = block_reader(BytesIO(data)).writer_schema
        return (
            {field["name"]: _avro_type(field["type"]) for field in schema["fields"]}
            if schema["type"] == "record"
            else {}
        )
    except Exception:  # as in `read_rows`, which tells what is wrong
        return {}


def unzstd(data: bytes) -> Iterator[bytes]:
    """The content of zstd bytes, of one frame or several."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


ZSTD = Compression("zstd", unzstd)


def _parquet_batches(data: bytes, limit: int) -> Iterator[pa.RecordBatch]:
    """The decoded rows of a Parquet file, some at a time.

    Raises:
        Unreadable: two columns have the same name, or the rows take more than `limit` bytes.
    """
    with _opened(data) as file:
        counts = Counter(file.schema_arrow.names)
        duplicates = [name for name, count in counts.items() if count > 1]
        if duplicates:
            raise Unreadable(
                f"it has {len(duplicates)} column name(s) more than once, first "
                f"{duplicates[0]!r}; land it with a name for each column"
            )
        _check_footer(file.metadata, limit)
        types = [_plain_type(field.type) for field in file.schema_arrow]
        decoded_bytes = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            columns = [
                _cast(column, type_) for column, type_ in zip(batch.columns, types, strict=True)
            ]
            plain = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            decoded_bytes += plain.nbytes
            if decoded_bytes > limit:
                raise too_large(limit)
            yield plain


def _check_footer(metadata: pq.FileMetaData, limit: int) -> None:
    """Raises `Unreadable` if a Parquet file, by its footer, unpacks to more than `limit` bytes."""
    size = 0
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(group.num_columns):
            chunk = group.column(column_index)
            # A repeated value may take no bytes in the file, but at least one in memory.
            size += max(chunk.total_uncompressed_size, chunk.num_values)
    if size > limit:
        raise too_large(limit)


def _opened(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, and with counts in place of dates and times.

    Python has no dates beyond the year 9999.
    """
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if is_a.is_date32(kind):
        return pa.int32()
    if is_a.is_date64(kind) or is_a.is_timestamp(kind):
        return pa.int64()
    if is_a.is_struct(kind):
        members = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([member.with_type(_plain_type(member.type)) for member in members])
    if is_a.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if is_a.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if is_a.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    return pa.list_(_plain_type(kind.value_type)) if is_a.is_list(kind) else kind


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowNotImplementedError:  # some lists, and views of texts
        return column


def _parquet_texts(data: bytes) -> _Texts:
    with _opened(data) as file:
        metadata = file.metadata.metadata or {}
        words = {
            key.decode(errors="replace"): metadata[key].decode(errors="replace") for key in metadata
        }
        times = Times(file_calendars(words, file.metadata.created_by or None))
        leaves = [file.schema.column(place) for place in range(file.metadata.num_columns)]
        int96 = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        found = {
            field.name: _text_of(
                field.type,
                times,
                is_int96=any(f"{path}.".startswith(f"{field.name}.") for path in int96),
            )
            for field in file.schema_arrow
        }
    return _Texts(times, {name: text for name, text in found.items() if text is not None})


def _text_of(kind: pa.DataType, times: Times, *, is_int96: bool) -> _TextOf | None:
    """What makes the texts of all dates and times in a value of `_plain_type`; `None` where there are none."""
    is_a = pa.types
    inner = partial(_text_of, times=times, is_int96=is_int96)
    if is_a.is_date32(kind):
        return _counted(times.date_text)
    if is_a.is_date64(kind):
        return _counted(lambda ms: times.date_text(ms // DAY_MS))
    if is_a.is_timestamp(kind):
        zoned = kind.tz is not None
        return _counted(partial(times.time_text, unit=kind.unit, zoned=zoned, int96=is_int96))
    if is_a.is_struct(kind):
        members = {
            kind.field(place).name: inner(kind.field(place).type)
            for place in range(kind.num_fields)
        }
        if not any(members.values()):
            return None
        return lambda value: (
            value
            and {
                name: text(value[name]) if (text := members[name]) else value[name]
                for name in value
            }
        )
    if is_a.is_map(kind):
        key, item = inner(kind.key_type), inner(kind.item_type)
        if key is None and item is None:
            return None
        return lambda value: (
            value
            and {
                (key(name) if key else name): (item(each) if item else each)
                for name, each in value.items()
            }
        )
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        each_text = inner(kind.value_type)
        return each_text and (lambda value: value and [each_text(each) for each in value])
    return None


def _counted(text: Callable[[int], str]) -> _TextOf:
    """`text` of a count; null, and what Python has as a date, stays as it is."""
    return lambda value: text(value) if isinstance(value, int) else value


def _parquet_type(found: pa.DataType) -> str:
    is_a = pa.types
    if is_a.is_decimal(found):
        return _decimal_type(found.precision, found.scale)
    if is_a.is_timestamp(found):
        return "TIMESTAMP" if found.tz else "STRING"
    kinds = {
        "BOOLEAN": is_a.is_boolean,
        "DOUBLE": is_a.is_floating,
        "DATE": is_a.is_date,
        "STRING": is_a.is_uint64,
        "BIGINT": is_a.is_integer,
    }
    return next((kind for kind, is_kind in kinds.items() if is_kind(found)), "STRING")


def _avro_type(found: Any) -> str:
    """Source: Apache Avro 1.11, "Logical Types"; a union with null alone is of its other type."""
    if isinstance(found, list):
        others = [each for each in cast("list[Any]", found) if each != "null"]
        return _avro_type(others[0]) if len(others) == 1 else "STRING"
    if not isinstance(found, dict):
        return _AVRO_TYPES.get(found, "STRING")
    named = cast("dict[str, Any]", found)
    logical = named.get("logicalType", named["type"])
    return (
        _decimal_type(named["precision"], named.get("scale", 0))
        if logical == "decimal"
        else _AVRO_TYPES.get(str(logical), "STRING")
    )


def _decimal_type(precision: int, scale: int) -> str:
    return f"DECIMAL({precision},{scale})" if 0 <= scale <= precision <= _MOST_DIGITS else "STRING"


def _avro_rows(data: bytes, limit: int) -> Iterator[Any]:
    """The rows of an Avro file.

    Raises:
        Unreadable: its codec is not read, or its blocks unpack to more than `limit` bytes.
    """
    from fastavro import block_reader

    _prepare_fastavro()
    blocks: Any = block_reader(BytesIO(data))
    if blocks.codec not in _AVRO_CODECS:
        raise Unreadable(
            f"its codec is {blocks.codec!r}; land it again with one of {', '.join(_AVRO_CODECS)}"
        )
    decoded_bytes = 0
    for block in blocks:
        # A row without fields takes no bytes in the file, but memory once it is read.
        decoded_bytes += max(block.num_records, block.bytes_.getbuffer().nbytes)
        if decoded_bytes > limit:
            raise too_large(limit)
        yield from block


def _deflated_block(decoder: BytesIO) -> BytesIO:
    """The content of a deflated Avro block, decompressed up to a limit."""
    from fastavro import schemaless_reader

    packed: Any = schemaless_reader(decoder, "bytes", None)
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    content = decompressor.decompress(packed, _MOST_BLOCK_BYTES)
    if decompressor.unconsumed_tail:
        raise Unreadable(
            f"a block of it unpacks to more than {_MOST_BLOCK_BYTES} bytes; land it in smaller blocks"
        )
    return BytesIO(content)


@cache
def _prepare_fastavro() -> None:
    """Replaces two parts of fastavro, once per process.

    Deflated blocks are decompressed up to a limit. Dates and times that Python cannot represent are
    read as `BeyondPython`, where fastavro would end the file with an error.
    """
    from fastavro.read import BLOCK_READERS, LOGICAL_READERS

    BLOCK_READERS["deflate"] = _deflated_block
    units = {"int-date": "D"}
    for name, unit in (("millis", "ms"), ("micros", "us")):
        units |= {f"long-timestamp-{name}": unit, f"long-local-timestamp-{name}": unit}
    for name, unit in units.items():
        LOGICAL_READERS[name] = partial(_or_beyond, LOGICAL_READERS[name], unit)


def _or_beyond(read: Callable[..., Any], unit: str, count: int, *schemas: Any) -> Any:
    try:
        return read(count, *schemas)
    except (OverflowError, ValueError):
        return BeyondPython(count, unit)


def _avro_texts(data: bytes) -> _Texts:
    from fastavro import block_reader

    file: Any = block_reader(BytesIO(data))
    return _Texts(Times(file_calendars(file.metadata, None)), {})


def _record(
    number: int, row: Any, texts: _Texts, fields: Mapping[str, str], *, by_path: bool
) -> Record:
    problem = None
    try:
        if isinstance(row, Mapping):
            plain, problem = _plain_row(cast("Mapping[str, Any]", row), texts)
        else:
            plain = _plain(row, texts.times)
        content = json.dumps(plain, ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "surrogatepass"
        )
        others = others_in_row(plain, fields, by_path=by_path) if isinstance(row, Mapping) else None
    except RecursionError:
        return Record(number, b"", TOO_DEEP)
    if len(content) > MAX_RECORD_BYTES:
        return Record(
            number, content[:_SHOWN], f"the row has more than {MAX_RECORD_BYTES} bytes, the limit"
        )
    if not isinstance(row, Mapping):
        return Record(number, content, "the row is no record with fields")
    return Record(number, content, problem, True, others)


def _plain_row(row: Mapping[str, Any], texts: _Texts) -> tuple[dict[str, Any], str | None]:
    """The row as JSON has it, and the first problem of its dates and times."""
    plain, problem = dict[str, Any](), None
    for name, value in row.items():
        texts.times.problems.clear()
        text = texts.of_columns.get(name)
        plain[name] = _plain(value if text is None else text(value), texts.times)
        if problem is None and texts.times.problems:
            problem = f"{name}: {texts.times.problems[0]}"
    return plain, problem


def _plain(value: Any, times: Times) -> Any:
    """The value as JSON has it; `times` gets the problems of its dates and times."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return (
                value
                if isfinite(value)
                else str(value).replace("inf", "Infinity").replace("nan", "NaN")
            )
        case Decimal() | UUID():
            return str(value)
        case BeyondPython() | date():
            return times.text(value)
        case time():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(_plain(name, times)): _plain(each, times) for name, each in value.items()}
        case _:
            return [_plain(each, times) for each in value]
