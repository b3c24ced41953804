"""The range of the keys of rows that are merged into a table, by which a MERGE leaves out files.

A MERGE by equal keys reads the keys of the whole table, and so does the look for rows that are no news. Delta's statistics of a file have
the least and the greatest value of its first columns: with the range as a condition, files that hold no key of the rows are not opened.

**Safety properties** (tests in `test_key_range.py`)
- The merged rows are exactly those that the range was computed from: they are kept, and not
  computed a second time.
- A key that is null somewhere, or of a type whose order may differ from that of Delta's statistics,
  gives no bound.
- A text with a non-ASCII character at an end of the range gives no bound either: statistics show
  bytes that are not UTF-8 as another character.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import between, quote, type_of_end

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A condition of a longer text costs more than it saves.
_LONGEST_TEXT = 200
# For each type of a key an end of its range as a value that reaches the client unchanged, whatever the time zones of both and the bytes
# of a text; and the end that this value stands for, `None` where a literal cannot say it.
_ENDS: Mapping[str, tuple[Callable[["Column"], "Column"], Callable[[Any], type_of_end | None]]] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "int", "bigint"), (lambda end: end, lambda value: value)
    ),
    "date": (lambda end: F.unix_date(end), lambda days: _EPOCH.date() + timedelta(days=days)),
    "timestamp": (
        lambda end: F.unix_micros(end),
        lambda micros: _EPOCH + timedelta(microseconds=micros),
    ),
    "string": (
        lambda end: end.cast("binary"),
        lambda value: bytes(value).decode("ascii") if len(value) <= _LONGEST_TEXT else None,
    ),
}


def with_key_range(rows: "DataFrame", keys: Sequence[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """The rows, kept by the server, and conditions that hold for every one of them by its keys, and so for what it meets in a table."""
    kept = checkpointed(rows)
    types = {field.name: field.dataType.simpleString() for field in kept.schema.fields}
    told = [key for key in keys if types[key] in _ENDS]
    if not told:
        return kept, ()
    columns = [(F.col(quote(key)), _ENDS[types[key]][0]) for key in told]
    ends = [
        F.struct(as_told(F.min(key)), as_told(F.max(key)), F.count_if(key.isNull()))
        for key, as_told in columns
    ]
    found = zip(told, kept.select(*ends).collect()[0], strict=True)
    ranges = [
        (key, _end(least, types[key]), _end(most, types[key]))
        for key, (least, most, nulls) in found
        if not nulls
    ]
    return kept, tuple(
        between(key, least, most)
        for key, least, most in ranges
        if least is not None and most is not None
    )


def checkpointed(rows: "DataFrame") -> "DataFrame":
    """The rows, computed once. Over Connect PySpark binds them to the active session, which may be another.

    Source: PySpark 4.2.0, sql/connect/conversion.py, proto_to_remote_cached_dataframe
    """
    kept: Any = rows.localCheckpoint()
    if kept.sparkSession is not rows.sparkSession:
        kept._session = kept._plan._spark_session = rows.sparkSession  # not public
    return kept


def _end(value: Any, type_: str) -> type_of_end | None:
    """One end of a range; `None` where there is none, or it is beyond what a literal can say."""
    try:
        return None if value is None else _ENDS[type_][1](value)
    except (OverflowError, UnicodeDecodeError):
        return None
