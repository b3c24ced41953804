"""Computes the key range of a MERGE's rows, so that Delta can skip files of the target table.

Without a key range, the MERGE reads the keys of the whole table, and so does the query that first
removes source rows which would change nothing. With the key range as a condition, Delta does not
open files that have no key in the range, because its statistics have the minimum and maximum of the
first columns of each file.

**Safety properties** (tests in `test_key_range.py`)
- The range is computed from exactly the rows that are merged: the server computes these rows once
  and stores them.
- A key column gives no condition if it has a null, or if Delta's statistics may order its type
  differently.
- A string column gives no condition if its minimum or maximum has a non-ASCII character. Delta's
  statistics replace bytes that are not UTF-8 by a non-ASCII character. Compared with ASCII text,
  this character sorts as the replaced bytes do. Compared with other text, it may not.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

# An end of a range; a datetime has a time zone.
RangeEnd = int | str | date | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A condition with a longer string costs more than it saves.
_LONGEST_TEXT = 200


class _EndCodec(NamedTuple):
    """Transfers an end of a range from the server to the client.

    `encode` gives a value that reaches the client unchanged, whatever the time zone, and whichever
    bytes a string has. `decode` returns `None` if the value cannot be used in a condition.
    """

    encode: "Callable[[SparkColumn], SparkColumn]"
    decode: Callable[[Any], RangeEnd | None]


def _decode_text(value: bytes) -> str | None:
    return bytes(value).decode("ascii") if len(value) <= _LONGEST_TEXT else None


_INTEGER = _EndCodec(lambda end: end, lambda value: value)
# By Spark's name of the key's type.
_CODECS = {
    "tinyint": _INTEGER,
    "smallint": _INTEGER,
    "int": _INTEGER,
    "bigint": _INTEGER,
    "date": _EndCodec(
        lambda end: F.unix_date(end), lambda days: _EPOCH.date() + timedelta(days=days)
    ),
    "timestamp": _EndCodec(
        lambda end: F.unix_micros(end), lambda micros: _EPOCH + timedelta(microseconds=micros)
    ),
    "string": _EndCodec(lambda end: end.cast("binary"), _decode_text),
}


def with_key_range(rows: "DataFrame", keys: Sequence[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """The rows, stored by the server, and SQL conditions that the keys of every row meet.

    There is at most one condition per key column (see the module's safety properties).
    """
    stored = checkpointed(rows)
    types = {field.name: field.dataType.simpleString() for field in stored.schema.fields}
    range_keys = [key for key in keys if types[key] in _CODECS]
    if not range_keys:
        return stored, ()
    ends: list[SparkColumn] = []
    for key in range_keys:
        column = F.col(quote(key))
        codec = _CODECS[types[key]]
        least = codec.encode(F.min(column))
        greatest = codec.encode(F.max(column))
        ends.append(F.struct(least, greatest, F.count_if(column.isNull())))
    bounds = stored.select(*ends).collect()[0]
    conditions = list[str]()
    for key, (least_value, greatest_value, null_count) in zip(range_keys, bounds, strict=True):
        least_end = _end(least_value, types[key])
        greatest_end = _end(greatest_value, types[key])
        if not null_count and least_end is not None and greatest_end is not None:
            conditions.append(between(key, least_end, greatest_end))
    return stored, tuple(conditions)


def checkpointed(rows: "DataFrame") -> "DataFrame":
    """The rows, computed once and stored by the server.

    Over Connect, PySpark binds the stored rows to the active session, which may differ from the
    session of `rows`. This function binds them to the session of `rows`.
    Source: PySpark 4.2.0, sql/connect/conversion.py, proto_to_remote_cached_dataframe
    """
    stored: Any = rows.localCheckpoint()
    if stored.sparkSession is not rows.sparkSession:
        # PySpark has no public method for this.
        stored._session = rows.sparkSession
        stored._plan._spark_session = rows.sparkSession
    return stored


def _end(value: Any, type_: str) -> RangeEnd | None:
    """One end of a range; `None` if all keys are null, or if no condition can use the end."""
    if value is None:
        return None
    try:
        return _CODECS[type_].decode(value)
    except (OverflowError, UnicodeDecodeError):
        return None


def between(column: str, least: RangeEnd, greatest: RangeEnd) -> str:
    """The SQL condition that a column is in a range, with both ends included."""
    return f"{quote(column)} BETWEEN {_constant(least)} AND {_constant(greatest)}"


def _constant(value: RangeEnd) -> str:
    match value:
        case str():
            return literal(value)
        case datetime():
            return f"TIMESTAMP'{value.astimezone(UTC).isoformat()}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case _:
            return str(int(value))
