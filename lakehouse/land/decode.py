"""Decodes landed files: Parquet and Avro to Arrow columns with types that Spark reads.

It also finds the compression of text files, and suggests the declaration of any landed files, by
their own types or by their values (`files_schema`).

No Python code runs per row of a Parquet file. Columns of types that Arrow cannot convert (`UUID`, a
map whose keys are not texts or whole numbers) become texts, which Python writes.

Spark 2 and Hive count days in a hybrid calendar, which is Julian before 1582-10-15. Other writers
use the proleptic Gregorian calendar, so the same number may mean another date. The metadata of a
file may show which calendar it uses.

**Safety properties** (tests in `test_decode.py`)
- A file is decoded to its end before its first rows are returned. So either all rows are returned,
  or no row is.
- A file whose rows take more than a limit gives no row. Memory holds the file and, of its rows, at
  most 100 (Parquet) or one block (Avro).
- Values keep their exact value. Only nanoseconds are cut. A time too far away for microseconds
  in 64 bits makes its file unreadable.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.base.errors import Refused
from lakehouse.base.text import count_of, first_names
from lakehouse.land.plan.file_text import (
    BYTE_ORDER_MARK,
    GZIP,
    Compression,
    detect_format,
    other_mark,
    text_chunks,
)
from lakehouse.land.plan.records import MIB, Unreadable, too_large
from lakehouse.land.plan.schema_of_values import (
    FileSchema,
    csv_schema,
    json_objects,
    json_schema,
    quoted,
    schema_of_types,
)

# The number of rows in a decoded batch. It is small, because a value that the file's dictionary
# stores once takes memory in each decoded row.
_ROWS_AT_ONCE = 100
_SHOWN_CHARACTERS = 1_000
# The greatest precision of a decimal in Spark.
_MOST_DIGITS = 38
# Arrow's types that are staged as they are, by name, with the SQL types as which Spark reads them.
_SQL_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "binary": "BINARY",
    "string": "STRING",
}
# Arrow's types that are staged as another type.
_STAGED_AS = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20),
    "halffloat": pa.float32(),
    "date64[ms]": pa.date32(),
    **dict.fromkeys(("large_binary", "binary_view"), pa.binary()),
    **dict.fromkeys(("large_string", "string_view", "null"), pa.string()),
}
_KEY_TYPES = (pa.string(), pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Before these versions, Spark writes hybrid dates and INT96 times. Later versions mark such files
# with a key.
# Source: Spark 4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_SPARK_VERSION = "org.apache.spark.version"
_DATES_SINCE = "3.0.0"
_INT96_SINCE = "3.1.0"
_LEGACY_DATES = "org.apache.spark.legacyDateTime"
_LEGACY_INT96 = "org.apache.spark.legacyINT96"
# Source: Hive, DataWritableWriteSupport.java, WRITER_DATE_PROLEPTIC (HIVE-22405)
_HIVE_PROLEPTIC = "writer.date.proleptic"


class TableShape(NamedTuple):
    """The columns of a decoded file: names and Arrow types, and whether its dates are Gregorian."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    is_gregorian: bool


class DecodedFile(NamedTuple):
    """A file that can be decoded to its end. `batches` have the columns of `shape`."""

    shape: TableShape
    batches: Iterator[Sequence[pa.Array]]


def decoded_file(data: bytes, format: str, limit: int) -> DecodedFile:
    """The rows of a Parquet or Avro file, in order.

    Raises:
        Unreadable: the file is damaged or truncated, its rows take more than `limit` bytes, or two
            columns have the same name.
    """
    open_file = _parquet_file if format == "parquet" else _avro_file
    try:
        decoded = open_file(data, limit)
        for _ in decoded.batches:
            pass
    except Unreadable:
        raise
    except Exception as error:  # the readers raise arbitrary exceptions for damaged bytes
        content = detect_format(data)
        if content is not None and content.lower() != format:
            raise Unreadable(
                f"the file is {content}, but Landing.format is {format!r}. Land the file as "
                f"{format}, or change Landing.format"
            ) from error
        problem = f"{type(error).__name__}: {str(error)[:_SHOWN_CHARACTERS]}"
        raise Unreadable(
            f"the file cannot be read to its end as {format} ({problem}). Land an undamaged copy"
        ) from error
    return open_file(data, limit)


def file_types(data: bytes, format: str) -> dict[str, str]:
    """For each column of a file, the SQL type that stores its values without loss."""
    if format == "avro":
        schema = _avro_schema(_avro_blocks(data))
    else:
        with _open_parquet(data) as file:
            schema = _parquet_schema(file)
    return {field.name: sql_type(staged_type(field.type) or pa.string()) for field in schema}


def is_gregorian(metadata: Mapping[str, str], *, created_by: str, has_int96: bool) -> bool:
    """Whether a file's metadata shows that all its dates and times are Gregorian.

    `created_by` is the library that wrote a Parquet file; empty if unknown (always for Avro). The
    library parquet-mr does not show the calendar, because Spark 2, Hive and other programs use it.
    Other libraries write Gregorian dates, unless the metadata has a key of Spark.
    """
    version = metadata.get(_SPARK_VERSION)
    if version is not None:
        are_dates = version >= _DATES_SINCE and _LEGACY_DATES not in metadata
        are_int96 = version >= _INT96_SINCE and _LEGACY_INT96 not in metadata
        return are_dates and (are_int96 or not has_int96)
    hive_proleptic = metadata.get(_HIVE_PROLEPTIC)
    if hive_proleptic is not None:
        return hive_proleptic.lower() == "true" and not has_int96
    is_spark = any(key.startswith("org.apache.spark.") for key in metadata)
    return bool(created_by) and not created_by.startswith("parquet-mr version") and not is_spark


def staged_type(kind: pa.DataType) -> pa.DataType | None:
    """The type to which Arrow converts a column without loss; `None` if Python writes it as texts.

    Arrow itself writes times of day, and decimals that Spark does not support, as texts.
    """
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return staged_type(kind.value_type)
    if is_a.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if is_a.is_decimal(kind):
        is_in_spark = 0 <= kind.scale <= kind.precision <= _MOST_DIGITS
        return pa.decimal128(kind.precision, kind.scale) if is_in_spark else pa.string()
    if is_a.is_time(kind):
        return pa.string()
    if is_a.is_fixed_size_binary(kind):
        return pa.binary()
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        element = staged_type(kind.value_type)
        return element and pa.list_(element)
    if is_a.is_map(kind):
        key = staged_type(kind.key_type)
        item = staged_type(kind.item_type)
        return pa.map_(key, item) if key in _KEY_TYPES and item else None
    if is_a.is_struct(kind):
        types = {member.name: staged_type(member.type) for member in kind}
        # Spark does not distinguish upper and lower case.
        is_clear = 0 < kind.num_fields == len({name.lower() for name in types})
        return pa.struct(types) if is_clear and None not in types.values() else None
    return kind if str(kind) in _SQL_TYPES else _STAGED_AS.get(str(kind))


def sql_type(kind: pa.DataType) -> str:
    """The SQL type as which Spark reads a column of a staged type."""
    is_a = pa.types
    if is_a.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if is_a.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if is_a.is_list(kind):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if is_a.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if is_a.is_struct(kind):
        texts = [f"{quoted(member.name)}: {sql_type(member.type)}" for member in kind]
        return f"STRUCT<{', '.join(texts)}>"
    return _SQL_TYPES[str(kind)]


def _shape(schema: pa.Schema, is_gregorian: bool) -> TableShape:
    counts = Counter(schema.names)
    duplicates = [name for name, count in counts.items() if count > 1]
    if duplicates:
        occur = "occurs" if len(duplicates) == 1 else "occur"
        raise Unreadable(
            f"{count_of(len(duplicates), 'column name')} {occur} more than once, first "
            f"{duplicates[0]!r}. Land the file with one name per column"
        )
    if not schema.names:
        raise Unreadable("it has no columns. Land the file with named columns")
    types = [staged_type(field.type) or pa.string() for field in schema]
    return TableShape(tuple(schema.names), tuple(types), is_gregorian)


def _converted(columns: Sequence[pa.Array], shape: TableShape) -> list[pa.Array]:
    converted = list[pa.Array]()
    for column, type_ in zip(columns, shape.types, strict=True):
        if staged_type(column.type) is None:
            converted.append(_texts(column.to_pylist()))
            continue
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            # A cast alone would round up before 1970.
            floor = pc.RoundTemporalOptions(unit="microsecond")
            column = pc.call_function("floor_temporal", [column], floor)
        # Only nanoseconds may be lost.
        options = pc.CastOptions(type_, allow_time_truncate=True)
        converted.append(pc.cast(column, options=options))
    return converted


def _texts(values: Sequence[object]) -> pa.Array:
    texts = list[object]()
    for value in values:
        if isinstance(value, list | dict):
            value = json.dumps(value, ensure_ascii=False, default=_text)
        texts.append(None if value is None else _text(value))
    return pa.array(texts, pa.string())


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _open_parquet(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )


def _parquet_schema(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file. INT96 is an instant, which Arrow reads as a time without a zone."""
    instants = _int96_columns(file.metadata)
    schema = file.schema_arrow
    for place, field in enumerate(schema):
        if field.name in instants and pa.types.is_timestamp(field.type):
            schema = schema.set(place, field.with_type(pa.timestamp("us", "UTC")))
    return schema


def _int96_columns(metadata: pq.FileMetaData) -> set[str]:
    leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    return {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def parquet_is_gregorian(metadata: pq.FileMetaData) -> bool:
    """Whether a Parquet file's footer shows that all its dates and times are Gregorian."""
    texts = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (metadata.metadata or {}).items()
    }
    has_int96 = bool(_int96_columns(metadata))
    return is_gregorian(texts, created_by=metadata.created_by or "", has_int96=has_int96)


def _parquet_file(data: bytes, limit: int) -> DecodedFile:
    file = _open_parquet(data)
    metadata = file.metadata
    shape = _shape(_parquet_schema(file), parquet_is_gregorian(metadata))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    # A repeated value may take no bytes in the file, but at least one in memory.
    if sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in chunks) > limit:
        raise too_large(limit)

    def batches() -> Iterator[list[pa.Array]]:
        decoded_bytes = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            columns = _converted(batch.columns, shape)
            decoded_bytes += sum(column.nbytes for column in columns)
            if decoded_bytes > limit:
                raise too_large(limit)
            yield columns

    return DecodedFile(shape, batches())


# Source: Apache Avro 1.11, "Primitive Types" and "Logical Types"
_AVRO_TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "int-date": pa.date32(),
    "int-time-millis": pa.time64("us"),
    "long-time-micros": pa.time64("us"),
    "long-timestamp-millis": pa.timestamp("ms", "UTC"),
    "long-timestamp-micros": pa.timestamp("us", "UTC"),
    "long-local-timestamp-millis": pa.timestamp("ms"),
    "long-local-timestamp-micros": pa.timestamp("us"),
}
# fastavro reads these as Python's types, which do not have all years.
_READ_AS_STORED = (
    "int-date",
    "long-timestamp-millis",
    "long-timestamp-micros",
    "long-local-timestamp-millis",
    "long-local-timestamp-micros",
    "string-uuid",
)


def _avro_file(data: bytes, limit: int) -> DecodedFile:
    blocks = _avro_blocks(data)
    schema = _avro_schema(blocks)
    shape = _shape(schema, is_gregorian(blocks.metadata, created_by="", has_int96=False))

    def batches() -> Iterator[list[pa.Array]]:
        decoded_bytes = 0
        for block in blocks:
            # A row without fields takes no bytes in the file, but takes memory once it is read.
            decoded_bytes += max(block.num_records, block.bytes_.getbuffer().nbytes)
            if decoded_bytes > limit:
                raise too_large(limit)
            rows: list[dict[str, Any]] = [*block]
            columns = list[pa.Array]()
            for field in schema:
                values = [row[field.name] for row in rows]
                is_text = pa.types.is_null(field.type)
                columns.append(_texts(values) if is_text else pa.array(values, field.type))
            yield _converted(columns, shape)

    return DecodedFile(shape, batches())


def _avro_blocks(data: bytes) -> Any:
    from fastavro import block_reader

    _prepare_fastavro()
    return block_reader(BytesIO(data))


@cache
def _prepare_fastavro() -> None:
    """Makes fastavro read dates and times as they are stored, once per process."""
    from fastavro.read import LOGICAL_READERS

    for name in _READ_AS_STORED:
        LOGICAL_READERS[name] = lambda value, *_: value


def _avro_schema(blocks: Any) -> pa.Schema:
    """The fields of an Avro file. One whose values Python writes as texts has the type null."""
    from fastavro.schema import expand_schema

    schema: Any = expand_schema(blocks.writer_schema)
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise Unreadable(
            "its rows have no named fields: the top-level Avro schema is not a record. Land the "
            "file with a record schema"
        )
    types = {field["name"]: _avro_type(field["type"]) for field in schema["fields"]}
    return pa.schema([(name, type_ or pa.null()) for name, type_ in types.items()])


def _avro_type(kind: Any) -> pa.DataType | None:
    """The Arrow type of an Avro type; `None` if its values become texts.

    A union with null has the type of its other member. A recursive type is only a name.
    """
    if isinstance(kind, list):
        others = [each for each in cast("list[Any]", kind) if each != "null"]
        return _avro_type(others[0]) if len(others) == 1 else None
    if not isinstance(kind, dict):
        return _AVRO_TYPES.get(kind)
    named = cast("dict[str, Any]", kind)
    match named["type"]:
        case "array":
            element = _avro_type(named["items"])
            return element and pa.list_(element)
        case "map":
            item = _avro_type(named["values"])
            return item and pa.map_(pa.string(), item)
        case "record":
            types = {field["name"]: _avro_type(field["type"]) for field in named["fields"]}
            return None if None in types.values() else pa.struct([*types.items()])
        case physical:
            logical = named.get("logicalType")
            if logical == "decimal":
                precision = named["precision"]
                is_valid = 0 <= named.get("scale", 0) <= precision <= _MOST_DIGITS
                return pa.decimal128(precision, named.get("scale", 0)) if is_valid else None
            return _AVRO_TYPES.get(f"{physical}-{logical}") or _avro_type(physical)


# zstd is unpacked in pieces of this size.
_CHUNK_BYTES = 4 * MIB


def _unzstd(data: bytes) -> Iterator[bytes]:
    """Decompresses zstd bytes of one or more frames."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


ZSTD = Compression("zstd", _unzstd)
_BY_CONTENT = {"gzip": GZIP, "zstd": ZSTD}
_BY_ENDING = {"gz": GZIP, "zst": ZSTD}


def compression_of(name: str, data: bytes) -> Compression | None:
    """The compression of a file, by its content or else by its name."""
    by_content = _BY_CONTENT.get(detect_format(data) or "")
    return by_content or _BY_ENDING.get(name.rpartition(".")[2].lower())


# The values of this much text decide.
_READ_CHARACTERS = 32 * MIB


def files_schema(files: Mapping[str, bytes]) -> FileSchema:
    """The schema of the files of one table, by their names. If they differ, the last one decides.

    Raises:
        Refused: a file is damaged, has no record, or none of its fields can be a column.
    """
    names = first_names([*files])
    *_, last = files.values()
    format = (detect_format(last) or "").lower()
    try:
        if format in ("parquet", "avro"):
            types = dict[str, str]()
            for data in files.values():
                types |= file_types(data, format)
            found = schema_of_types(format, types)
        else:
            found = _text_schema(files)
    except Unreadable as error:
        raise Refused(f"schema {names}: {error}") from error
    except Exception as error:  # the readers raise arbitrary exceptions for damaged bytes
        raise Refused(
            f"schema {names}: it cannot be read ({type(error).__name__}: {error}). Use an undamaged"
            " JSON, CSV, Parquet or Avro file"
        ) from error
    if not found.types:
        left_out = first_names([repr(each[:80]) for each in found.left_out])
        raise Refused(
            f"schema {names}: no field of it can be a column{f': {left_out}' if left_out else ''}. "
            "Use another file, or other names"
        )
    return found


def _text_schema(files: Mapping[str, bytes]) -> FileSchema:
    """The schema of JSON or CSV files."""
    decoded = [_decoded(name, data) for name, data in files.items()]
    texts = [text for text, _ in decoded]
    encoding = next((encoding for _, encoding in decoded if encoding != "utf-8"), "utf-8")
    *others, last = texts
    if last.lstrip()[:1] in ("{", "["):
        schema = json_schema([row for text in texts for row in json_objects(text)])
        return replace(schema, encoding=encoding)
    header, _, _ = last.partition("\n")
    text = "\n".join([last, *(text.removeprefix(header) for text in others)])
    if len(text) > _READ_CHARACTERS:
        text = text[: text.rindex("\n", 0, _READ_CHARACTERS) + 1]
    return replace(csv_schema(text), encoding=encoding)


def _decoded(name: str, data: bytes) -> tuple[str, str]:
    """The text, and its encoding: by the byte order mark, else UTF-8, else Windows' Latin-1."""
    content = b"".join(text_chunks(data, compression_of(name, data)))
    if binary := detect_format(content):
        raise Unreadable(
            f"{name} is a {binary} file. Use JSON, CSV, Parquet or Avro; save an Excel sheet as CSV"
        )
    encoding = (other_mark(content) or "utf-8").lower()
    try:
        return content.decode(encoding).removeprefix("\ufeff"), encoding
    except UnicodeDecodeError:
        if encoding != "utf-8" or content.startswith(BYTE_ORDER_MARK):
            raise
        return content.decode("cp1252", "replace"), "cp1252"
