"""The range of the keys of rows that are merged into a table, by which a MERGE leaves out files.

A MERGE by equal keys reads the keys of the whole table, and so does the look for rows that are no news. Delta's statistics of a file have
the least and the greatest value of its first columns: with the range as a condition, files that hold no key of the rows are not opened.

**Safety properties**
- The rows that are merged are those that the range was taken of: they are kept, and not computed a second time.
- A key that is null somewhere, or of a type whose order Delta's statistics may not have, bounds nothing.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse.engine.spark.statements import between, quote, type_of_end

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = ("tinyint", "smallint", "int", "bigint")
# A condition of a longer text costs more than it saves.
_LONGEST_TEXT = 200


def with_key_range(rows: "DataFrame", keys: Sequence[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """The rows, kept by the server, and conditions that hold for every one of them by its keys, and so for what it meets in a table."""
    from pyspark.sql import functions as F  # noqa: N812

    kept = rows.localCheckpoint()
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    told = [key for key in keys if types[key] in (*_WHOLE, "string", "date", "timestamp")]
    if not told:
        return kept, ()
    ends = [F.struct(F.min(column), F.max(column), F.count_if(column.isNull())) for column in (_as_told(key, types) for key in told)]
    found = zip(told, kept.select(*ends).collect()[0], strict=True)
    ranges = [(key, _end(least, types[key]), _end(most, types[key])) for key, (least, most, nulls) in found if not nulls]
    return kept, tuple(between(key, least, most) for key, least, most in ranges if least is not None and most is not None)


def _as_told(key: str, types: dict[str, str]) -> "Column":
    """A key as a value that reaches the client unchanged, whatever the time zones of both."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quote(key))
    return F.unix_micros(column) if types[key] == "timestamp" else F.unix_date(column) if types[key] == "date" else column


def _end(value: Any, type_: str) -> type_of_end | None:
    """One end of a range; `None` where there is none, or it is beyond what a literal can say."""
    try:
        match type_:
            case "timestamp":
                return None if value is None else _EPOCH + timedelta(microseconds=value)
            case "date":
                return None if value is None else date(1970, 1, 1) + timedelta(days=value)
            case "string":
                return value if value is not None and len(value) <= _LONGEST_TEXT else None
            case _:
                return value
    except OverflowError:
        return None
