"""Landed Parquet and Avro as records: each row becomes the JSON object that it would be as a line of a JSON file.

So whatever format a file has, its rows are staged, parsed, counted, required and refused in one way. Numbers keep their digits: decimals
are texts, which Spark reads as decimals. Binary values are Base64, and times are ISO 8601, in UTC where they have a zone.

**Safety properties**
- A file is decoded to its end before its first record is given: all of its rows are known or none.
- Memory holds the file and some thousand of its rows, and never more than the limit allows (`unpacked_size`).
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from itertools import chain
from math import isfinite
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.records import (
    MAX_RECORD_BYTES,
    TOO_DEEP,
    Compression,
    Record,
    Unreadable,
    too_large,
)
from lakehouse.core.ingest.undeclared import others_in_row
from lakehouse.engine.ingest.unpacked_size import check_avro, in_parts, plan_parquet, unpacked_bytes

_CHUNK_BYTES = 4 * 1024 * 1024
_SHOWN = 1_000
_MOST_DIGITS = 38  # of a decimal of Spark's
_AVRO_TYPES = {
    "boolean": "BOOLEAN",
    "int": "BIGINT",
    "long": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "date": "DATE",
}
_AVRO_TYPES |= {"timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP"}


def read_rows(data: bytes, landing: Landing, *, max_content_bytes: int) -> Iterator[Record]:
    """The rows of a Parquet or Avro file, in order, numbered from 1.

    Raises:
        Unreadable: before the first row: the file is damaged or cut short, or its rows take more than `max_content_bytes`.
    """
    format, fields = landing.format, dict(field_types(landing.schema))
    read = _parquet if format == "parquet" else _avro
    try:
        for _ in read(data, max_content_bytes):
            pass
    except Unreadable:
        raise
    except (
        Exception
    ) as error:  # the bytes are of anybody's make, and the readers raise whatever they stumble over
        found = f"{type(error).__name__}: {str(error)[:_SHOWN]}"
        raise Unreadable(
            f"it is no {format} file that can be read to its end ({found}); land it again"
        ) from error
    for number, row in enumerate(read(data, max_content_bytes), start=1):
        yield _record(number, row, fields, by_path=landing.new_columns == "refuse")


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


def _parquet(data: bytes, limit: int) -> Iterator[dict[str, Any]]:
    with _opened(data) as file:
        if twice := [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]:
            raise Unreadable(
                f"it has {len(twice)} column name(s) more than once, first {twice[0]!r}; land it with a name for each column"
            )
        (dictionaries, rows_at_once), schema, size = plan_parquet(file, limit), file.schema_arrow, 0
    with _opened(data, dictionaries) as file:
        # A reader of dictionaries keeps all values that it has seen, until it begins anew.
        groups = (
            file.iter_batches(batch_size=rows_at_once, row_groups=[group])
            for group in range(file.num_row_groups)
        )
        for batch in chain.from_iterable(groups):
            size += unpacked_bytes(batch)
            if size > limit:
                raise too_large(limit)
            for part in in_parts(batch):
                yield from _microseconds(_without_dictionaries(part, schema)).to_pylist(
                    maps_as_pydicts="strict"
                )


def _opened(data: bytes, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    source = pa.BufferReader(data)
    return pq.ParquetFile(
        source,
        read_dictionary=[*dictionaries],
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )


def _without_dictionaries(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows, which are quicker to take out."""
    try:
        return batch.cast(schema)
    except pa.ArrowNotImplementedError:  # some lists, and views of texts
        return batch


def _microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without nanoseconds, which neither Spark nor Python knows; a time beyond the years of microseconds is an error."""
    for place, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            wanted = pc.CastOptions(pa.timestamp("us", field.type.tz), allow_time_truncate=True)
            batch = batch.set_column(
                place, field.name, pc.cast(batch.column(place), options=wanted)
            )
    return batch


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


def _avro(data: bytes, limit: int) -> Iterator[Any]:
    from fastavro import reader

    check_avro(data, limit)
    yield from reader(BytesIO(data))


def _record(number: int, row: Any, fields: Mapping[str, str], *, by_path: bool) -> Record:
    try:
        plain = _plain(row)
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
    return Record(number, content, is_object=True, undeclared=others)


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
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
        case datetime():
            return (
                value.isoformat()
                if value.tzinfo is None
                else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
            )
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(_plain(name)): _plain(each) for name, each in value.items()}
        case _:
            return [_plain(each) for each in value]
