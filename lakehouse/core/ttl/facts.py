"""The bounds of a table's time column in each data file, from the log.

Delta truncates the times in statistics to milliseconds, so minimum and maximum are up to a
millisecond too early. The time of each row is less than the maximum plus one millisecond. Source:
delta-io/delta v4.4.0, `StatisticsCollection.scala`, truncation of times.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, cast

from lakehouse.core.delta.partition_values import typed_partition
from lakehouse.core.delta.snapshot import Column, DataFile, Snapshot
from lakehouse.core.units import DAY_MS

_EPOCH = datetime(1970, 1, 1)  # naive, like all times that are read from a log here; they are UTC
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The bounds of the time column in one file; `None` means unknown.

    `is_tight`: rows with the minimum and the maximum still exist. Otherwise, a deletion vector may
    hide them.
    """

    min_ms: int | None = None
    max_ms: int | None = None
    null_count: int | None = None
    is_tight: bool = False


UNKNOWN = TimeBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlFacts:
    """A table's snapshot, and the bounds of its time column by the path of each file."""

    snapshot: Snapshot
    bounds: Mapping[str, TimeBounds]

    def bounds_of(self, file: DataFile) -> TimeBounds:
        """The bounds of a file's times; unknown if the log does not have them."""
        return self.bounds.get(file.path, UNKNOWN)


def bounds_of_partition(file: DataFile, column: Column) -> TimeBounds:
    """The bounds in a file of a table that is partitioned by its time column."""
    time_ms = time_ms_of(dict(file.partition)[column.name], column)
    if time_ms is None:
        return TimeBounds(null_count=file.row_count, is_tight=True)
    return TimeBounds(min_ms=time_ms, max_ms=time_ms, null_count=0, is_tight=True)


def bounds_in_statistics(text: str | None, column: Column) -> TimeBounds:
    """The bounds in a file's statistics (JSON); unknown if they lack the column."""
    try:
        statistics = cast("dict[str, Any]", json.loads(text or ""))
        nulls = statistics.get("nullCount", {}).get(column.name)
        return TimeBounds(
            min_ms=time_ms_of(statistics.get("minValues", {}).get(column.name), column),
            max_ms=time_ms_of(statistics.get("maxValues", {}).get(column.name), column),
            null_count=nulls if isinstance(nulls, int) else None,
            is_tight=statistics.get("tightBounds") is not False,
        )
    except (ValueError, AttributeError, RecursionError):
        return UNKNOWN


def time_ms_of(text: Any, column: Column) -> int | None:
    """A date or a time in the log as milliseconds, rounded down; `None` if it cannot be read."""
    if not isinstance(text, str):
        return None
    [value] = typed_partition(((column.name, text),), {column.name: column})
    match value:
        case datetime():
            return (value - _EPOCH) // _MILLISECOND
        case date():
            return (value - _EPOCH.date()).days * DAY_MS
        case _:
            return None
