"""The rows of a landed Parquet file, decoded in small batches, and the types of its columns."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.ingest.records import NOT_UTF_8, Unreadable, too_large
from lakehouse.core.text import count_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.ingest.dates_to_iso import DateTexts, TextOf, file_calendars

# The number of rows in a decoded batch. It is small, because a value that the file's dictionary
# stores once takes memory in each decoded row.
_ROWS_AT_ONCE = 100
# The SQL types of Arrow's plain types, by name. What is not here is read as a text.
SQL_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "halffloat": "FLOAT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date32[day]": "DATE",
    "date64[ms]": "DATE",
    "binary": "BINARY",
    "large_binary": "BINARY",
    "binary_view": "BINARY",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# The greatest precision of a decimal in Spark.
_MOST_DIGITS = 38


def parquet_batches(data: bytes, limit: int) -> Iterator[pa.RecordBatch]:
    """The decoded rows of a Parquet file in small batches, with dates and timestamps as integers.

    Raises:
        Unreadable: two columns have the same name, or the rows take more than `limit` bytes.
    """
    with _open_file(data) as file:
        counts = Counter(file.schema_arrow.names)
        duplicates = [name for name, count in counts.items() if count > 1]
        if duplicates:
            occur = "occurs" if len(duplicates) == 1 else "occur"
            raise Unreadable(
                f"{count_of(len(duplicates), 'column name')} {occur} more than once, first "
                f"{duplicates[0]!r}. Land the file with one name per column"
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


def decoded_rows(batch: pa.RecordBatch) -> list[tuple[dict[str, Any], str | None]]:
    """The rows of a batch, each with a problem if it lacks a value that cannot be decoded."""
    try:
        return [(row, None) for row in batch.to_pylist(maps_as_pydicts="strict")]
    except Exception:  # the values decide what is raised
        return [_decoded_row(batch.slice(index, 1)) for index in range(batch.num_rows)]


def parquet_dates(data: bytes) -> DateTexts:
    """The converter of a file's dates and timestamps to texts, with a function for each column.

    The functions take the integers that `parquet_batches` gives for dates and timestamps.
    """
    with _open_file(data) as file:
        metadata = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in (file.metadata.metadata or {}).items()
        }
        dates = DateTexts(file_calendars(metadata, file.metadata.created_by or None))
        leaves = [file.schema.column(index) for index in range(file.metadata.num_columns)]
        int96_paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        of_columns = dict[str, TextOf]()
        for field in file.schema_arrow:
            # A column with an INT96 member counts as INT96 as a whole.
            is_int96 = any(f"{path}.".startswith(f"{field.name}.") for path in int96_paths)
            text = _text_of(field.type, dates, is_int96=is_int96)
            if text is not None:
                of_columns[field.name] = text
    dates.of_columns = of_columns
    return dates


def parquet_types(data: bytes) -> dict[str, str]:
    """For each column of a Parquet file, the SQL type that stores its values without loss."""
    with _open_file(data) as file:
        leaves = [file.schema.column(index) for index in range(file.metadata.num_columns)]
        # INT96 is an instant, which Arrow reads as a time without a zone.
        instants = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
        return {
            field.name: _sql_type(field.type, is_int96=field.name in instants)
            for field in file.schema_arrow
        }


def decimal_type(precision: int, scale: int) -> str:
    """The SQL type of a decimal, or `STRING` if Spark does not support it."""
    is_valid = 0 <= scale <= precision <= _MOST_DIGITS
    return f"DECIMAL({precision},{scale})" if is_valid else "STRING"


def _open_file(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(data),
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )


def _decoded_row(batch: pa.RecordBatch) -> tuple[dict[str, Any], str | None]:
    row = dict[str, Any]()
    problem = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[0].as_py(maps_as_pydicts="strict")
        except UnicodeDecodeError:
            problem = problem or f"{name} is {NOT_UTF_8}"
        except Exception as error:  # the values decide what is raised
            why = str(error).strip("'\"")
            problem = problem or f"{name} cannot be read ({type(error).__name__}: {why})"
    return row, problem


def _check_footer(metadata: pq.FileMetaData, limit: int) -> None:
    """Raises `Unreadable` if a file, by its footer, unpacks to more than `limit` bytes."""
    size = 0
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(group.num_columns):
            chunk = group.column(column_index)
            # A repeated value may take no bytes in the file, but at least one in memory.
            size += max(chunk.total_uncompressed_size, chunk.num_values)
    if size > limit:
        raise too_large(limit)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, and with integers instead of dates and timestamps.

    These are read as integers, because a file may have years that Python's `datetime` does not
    support.
    """
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if is_a.is_date32(kind):
        return pa.int32()
    if is_a.is_date64(kind) or is_a.is_timestamp(kind):
        return pa.int64()
    if is_a.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([member.with_type(_plain_type(member.type)) for member in members])
    if is_a.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if is_a.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if is_a.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if is_a.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowNotImplementedError:
        return column  # Arrow cannot cast some lists and string views; they keep their type


def _text_of(kind: pa.DataType, dates: DateTexts, *, is_int96: bool) -> TextOf | None:
    """The function that converts all dates and timestamps in a value to texts.

    `None` if the type has neither.
    """
    is_a = pa.types
    inner = partial(_text_of, dates=dates, is_int96=is_int96)
    if is_a.is_date32(kind):
        return _of_integer(dates.date_text)
    if is_a.is_date64(kind):
        return _of_integer(lambda ms: dates.date_text(ms // DAY_MS))
    if is_a.is_timestamp(kind):
        zoned = kind.tz is not None
        return _of_integer(partial(dates.time_text, unit=kind.unit, zoned=zoned, int96=is_int96))
    if is_a.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        texts = {member.name: inner(member.type) for member in members}
        return _of_struct(texts) if any(texts.values()) else None
    if is_a.is_map(kind):
        key = inner(kind.key_type)
        item = inner(kind.item_type)
        return _of_map(key, item) if key or item else None
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        element_text = inner(kind.value_type)
        return None if element_text is None else _of_list(element_text)
    return None


def _of_integer(text: Callable[[int], str]) -> TextOf:
    """A function that converts integers to texts, and returns any other value unchanged."""
    return lambda value: text(value) if isinstance(value, int) else value


def _of_list(element_text: TextOf) -> TextOf:
    return lambda value: value and [element_text(each) for each in value]


def _of_struct(texts: Mapping[str, TextOf | None]) -> TextOf:
    def replaced(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name: text(value[name]) if text else value[name] for name, text in texts.items()}

    return replaced


def _of_map(key: TextOf | None, item: TextOf | None) -> TextOf:
    def replaced(value: dict[Any, Any] | None) -> dict[Any, Any] | None:
        if value is None:
            return None
        return {
            (key(name) if key else name): (item(each) if item else each)
            for name, each in value.items()
        }

    return replaced


def _sql_type(kind: pa.DataType, *, is_int96: bool) -> str:
    is_a = pa.types
    inner = partial(_sql_type, is_int96=is_int96)
    if is_a.is_dictionary(kind):
        return inner(kind.value_type)
    if is_a.is_decimal(kind):
        return decimal_type(kind.precision, kind.scale)
    if is_a.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz or is_int96 else "TIMESTAMP_NTZ"
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return f"ARRAY<{inner(kind.value_type)}>"
    if is_a.is_map(kind):
        # Spark reads the key of a JSON object only as a text, or as a number.
        is_nested = is_a.is_nested(kind.key_type)
        return "STRING" if is_nested else f"MAP<{inner(kind.key_type)}, {inner(kind.item_type)}>"
    if is_a.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        names = {member.name.lower() for member in members}
        if not members or len(names) < len(members):
            return "STRING"
        texts = [f"{_quoted(member.name)}: {inner(member.type)}" for member in members]
        return f"STRUCT<{', '.join(texts)}>"
    return SQL_TYPES.get(str(kind), "STRING")


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
