"""The rows of a landed Parquet or Avro file, decoded in small batches, and their types.

Spark 2 and Hive count days in a hybrid calendar, which is Julian before 1582-10-15. Other writers
use the proleptic Gregorian calendar, so the same number may mean another date. The metadata of a
file may show which calendar it uses.

**Safety properties** (tests in `test_dates_to_iso.py`)
- A date before 1582-10-15, or a time before 1582-10-16, is loaded only if the file shows that it
  uses the Gregorian calendar. (A time zone may shift a time by a day.)
- No date or time outside of the years 1 to 9999 is loaded.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from io import BytesIO
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.text import DAY_MS, count_of
from lakehouse.land.plan.records import NOT_UTF_8, Unreadable, too_large

# Replaces the dates and times in a value by texts.
TextOf = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
# The first Gregorian day, as days since 1970-01-01. Times are compared with the day after it.
_SWITCH_DAY = date(1582, 10, 15).toordinal() - _EPOCH_ORDINAL
_SWITCH_US = (_SWITCH_DAY + 1) * 86_400_000_000
_FIRST_DAY = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY = date.max.toordinal() - _EPOCH_ORDINAL
_FIRST_US = _FIRST_DAY * 86_400_000_000
_LAST_US = (_LAST_DAY + 1) * 86_400_000_000 - 1
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
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


class BeyondPython(NamedTuple):
    """A date or time that Python cannot represent: a count of its unit since 1970-01-01.

    The unit is `D`, `ms` or `us`.
    """

    count: int
    unit: str


_NOT_GREGORIAN = (
    ", and the file does not show that it uses the Gregorian calendar (Spark 2 and Hive write "
    "Julian dates). Write such values as text, and land these rows in a new file"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendars:
    """Whether a file's dates and times, and its INT96 times, are known to be Gregorian."""

    are_gregorian: bool
    are_int96_gregorian: bool


@dataclass(slots=True)
class DateTexts:
    """Converts dates and times of one file to texts.

    `problems` collects the reasons why values of the current row cannot be loaded. `of_columns` has
    a function for each column whose dates and times are read as counts.
    """

    calendars: Calendars
    problems: list[str] = field(default_factory=list[str])
    of_columns: Mapping[str, TextOf] = field(default_factory=dict[str, TextOf])

    def date_text(self, days: int) -> str:
        """The text of a date, given as days since 1970-01-01."""
        is_in_years = _FIRST_DAY <= days <= _LAST_DAY
        if is_in_years:
            text = date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
        else:
            text = _text(days, "D")
        if days < _SWITCH_DAY and not self.calendars.are_gregorian:
            self._refuse_calendar(f"the date {text} is before 1582-10-15")
        elif not is_in_years:
            self.problems.append(f"the date {text} is not in the years 1 to 9999")
        return text

    def time_text(self, count: int, unit: str, *, zoned: bool, int96: bool = False) -> str:
        """The text of a time, given as a count of `unit` since 1970-01-01.

        The time is rounded down to microseconds. `zoned` means UTC, so the text ends in `Z`.
        """
        microseconds = count * 1_000_000 // _UNITS_PER_SECOND[unit]
        is_in_years = _FIRST_US <= microseconds <= _LAST_US
        if is_in_years:
            text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
        else:
            text = _text(count, unit)
        calendars = self.calendars
        is_gregorian = calendars.are_int96_gregorian if int96 else calendars.are_gregorian
        if microseconds < _SWITCH_US and not is_gregorian:
            self._refuse_calendar(f"the time {text} is before 1582-10-16")
        elif not is_in_years:
            self.problems.append(f"the time {text} is not in the years 1 to 9999")
        return f"{text}Z" if zoned and is_in_years else text

    def text(self, value: BeyondPython | date) -> str:
        """The text of a date or time that was read from Avro."""
        match value:
            case BeyondPython(count=days, unit="D"):
                return self.date_text(days)
            case BeyondPython(count=count, unit=unit):
                return self.time_text(count, unit, zoned=True)
            case datetime():
                zoned = value.tzinfo is not None
                utc_value = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
                count = (utc_value - _EPOCH) // timedelta(microseconds=1)
                return self.time_text(count, "us", zoned=zoned)
            case date():
                return self.date_text(value.toordinal() - _EPOCH_ORDINAL)

    def _refuse_calendar(self, finding: str) -> None:
        self.problems.append(f"{finding}{_NOT_GREGORIAN}")


def not_gregorian(word: str, day: str) -> tuple[str, str]:
    """The text before and after a date or time (`word`) before `day`, as a reason to refuse it."""
    return f"the {word} ", f" is before {day}{_NOT_GREGORIAN}"


def file_calendars(metadata: Mapping[str, str], created_by: str | None) -> Calendars:
    """The calendars that a file's metadata shows.

    `created_by` is the library that wrote a Parquet file, or `None` if unknown (always for Avro).
    The library parquet-mr does not show the calendar, because Spark 2, Hive and other programs use
    it. Other libraries write Gregorian dates, unless the metadata has a key of Spark.
    """
    version = metadata.get(_SPARK_VERSION)
    if version is not None:
        return Calendars(
            are_gregorian=version >= _DATES_SINCE and _LEGACY_DATES not in metadata,
            are_int96_gregorian=version >= _INT96_SINCE and _LEGACY_INT96 not in metadata,
        )
    hive_proleptic = metadata.get(_HIVE_PROLEPTIC)
    if hive_proleptic is not None:
        return Calendars(are_gregorian=hive_proleptic.lower() == "true", are_int96_gregorian=False)
    is_spark = any(key.startswith("org.apache.spark.") for key in metadata)
    is_known = created_by is not None and not created_by.startswith("parquet-mr version")
    is_gregorian = is_known and not is_spark
    return Calendars(are_gregorian=is_gregorian, are_int96_gregorian=is_gregorian)


def _text(count: int, unit: str) -> str:
    """The text of a date or time in any year."""
    import numpy as np  # an installation without Spark has none, and lands nothing

    return str(np.array(count).astype(f"datetime64[{unit}]"))


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
    return {field["name"]: _avro_sql_type(field["type"]) for field in schema["fields"]}


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


def _avro_sql_type(kind: Any) -> str:
    """The SQL type of an Avro type; a union with null has the type of its other member.

    Source: Apache Avro 1.11, "Logical Types".
    """
    if isinstance(kind, list):
        others = [each for each in cast("list[Any]", kind) if each != "null"]
        return _avro_sql_type(others[0]) if len(others) == 1 else "STRING"
    if not isinstance(kind, dict):
        return _SQL_TYPES.get(kind, "STRING")
    named = cast("dict[str, Any]", kind)
    logical = named.get("logicalType", named["type"])
    if logical == "decimal":
        return decimal_type(named["precision"], named.get("scale", 0))
    return _SQL_TYPES.get(str(logical), "STRING")
