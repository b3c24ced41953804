"""Plans which rows of a table have expired.

The cutoff is `Ttl.days` before now, or before the newest row. One DELETE with a condition on the
time column deletes the rows before it, and no other row, whatever is committed meanwhile. By the
statistics in the log, a file is expired if all its rows are before the cutoff, and straddles the
cutoff if some may be. Files with unknown times never count as expired, and never determine the
newest row; neither does a time more than a day in the future.

Delta truncates the times in statistics to milliseconds, so a maximum may be a millisecond early.
Source: delta-io/delta v4.4.0, `StatisticsCollection.scala`, truncation of times.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import DAY_MS, EARLIEST_MS, count_of, size_text
from lakehouse.declare.policies import Ttl
from lakehouse.declare.table import Table
from lakehouse.delta.partition_values import typed_partition
from lakehouse.delta.snapshot import Column, DataFile, Snapshot, live_rows

TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_CLOCK_AHEAD_MS = DAY_MS
# Spark's rewriting of files that straddle the cutoff, and the statement itself; measured.
_REWRITTEN_BYTES_PER_SECOND = 10 * 1024 * 1024
_STATEMENT_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1)  # naive, like all times that are read from a log here; they are UTC


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


@frozen
class TtlPlan(Explained):
    """The rows before `cutoff_ms` that one DELETE deletes; nothing if `is_idle`.

    - `cutoff_ms`: `None` if `clock="newest_row"` and the time of no row is known.
    - `row_count`: the number of rows to delete; `None` if the log does not determine it.
    """

    table: str
    version: int
    cutoff_ms: int | None
    expired_files: int
    expired_bytes: int
    straddling_files: int
    straddling_bytes: int
    row_count: int | None
    seconds: float
    usd: float

    @property
    def size_bytes(self) -> int:
        """The bytes of all files that are deleted or written again."""
        return self.expired_bytes + self.straddling_bytes

    @property
    def is_idle(self) -> bool:
        """Whether no row has expired."""
        return not self.expired_files and not self.straddling_files


def time_column(table: Table, ttl: Ttl, snapshot: Snapshot) -> Column:
    """The time column of a table's TTL. Raises `Refused` if there is none of this name and type."""
    for column in snapshot.columns:
        if column.name.lower() == ttl.column.lower() and column.type in TIME_TYPES:
            return column
    names = ", ".join(column.name for column in snapshot.columns if column.type in TIME_TYPES)
    raise Refused(
        f"ttl of {table.key}: there is no date or timestamp column {ttl.column}. Use one of:"
        f" {names or 'none'}"
    )


def plan_ttl(
    table: Table, ttl: Ttl, snapshot: Snapshot, bounds: Mapping[str, TimeBounds], *, now_ms: int
) -> TtlPlan:
    """The plan of a run now. `bounds` are those of the time column, by the path of each file.

    Raises:
        Refused: the table does not allow deletions, or as `time_column`.
    """
    column = time_column(table, ttl, snapshot)
    if snapshot.properties.get("delta.appendOnly", "false").lower() == "true":
        raise Refused(
            f"ttl of {table.key}: delta.appendOnly forbids deletions. Set it to false, or remove"
            " ttl= from the declaration"
        )
    clock_ms = now_ms if ttl.clock == "now" else _newest_ms(snapshot, bounds, now_ms)
    cutoff_ms = None
    if clock_ms is not None:
        cutoff_ms = max(clock_ms - ttl.days * DAY_MS, EARLIEST_MS)
    if cutoff_ms is not None and column.type == "date":
        cutoff_ms -= cutoff_ms % DAY_MS  # the day of the cutoff is kept whole
    expired, straddling = _expired_files(snapshot, bounds, column, cutoff_ms)
    row_count = None if straddling else live_rows(expired)
    straddling_bytes = total_bytes(straddling)
    seconds = 0.0
    if expired or straddling:
        seconds = _STATEMENT_SECONDS + straddling_bytes / _REWRITTEN_BYTES_PER_SECOND
    return TtlPlan(
        explanation=_explanation(ttl, cutoff_ms, expired, straddling),
        table=table.key,
        version=snapshot.version,
        cutoff_ms=cutoff_ms,
        expired_files=len(expired),
        expired_bytes=total_bytes(expired),
        straddling_files=len(straddling),
        straddling_bytes=straddling_bytes,
        row_count=row_count,
        seconds=seconds,
        usd=table.prices.run_usd(seconds=seconds),
    )


def _expired_files(
    snapshot: Snapshot, bounds: Mapping[str, TimeBounds], column: Column, cutoff_ms: int | None
) -> tuple[list[DataFile], list[DataFile]]:
    """Files whose rows have all expired, and files that may have such rows."""
    expired = list[DataFile]()
    straddling = list[DataFile]()
    if cutoff_ms is None:
        return expired, straddling
    is_partition = column.name in snapshot.partition_columns
    for file in snapshot.files:
        known = bounds.get(file.path, UNKNOWN)
        may_have_old_rows = known.null_count is None or known.null_count != file.row_count
        if known.min_ms is not None:
            may_have_old_rows = known.min_ms < cutoff_ms
        if known.max_ms is not None and known.max_ms < cutoff_ms and known.null_count == 0:
            expired.append(file)
        elif may_have_old_rows and not is_partition:
            straddling.append(file)
    return expired, straddling


def _newest_ms(snapshot: Snapshot, bounds: Mapping[str, TimeBounds], now_ms: int) -> int | None:
    """The newest known time of a row, at most now; `None` if no time is known.

    The minimum of a file is used if its maximum is too far in the future, or if the rows with the
    maximum may be deleted. A file whose minimum is too far in the future is ignored.
    """
    latest_ms = now_ms + _CLOCK_AHEAD_MS
    times = list[int]()
    for file in snapshot.files:
        known = bounds.get(file.path, UNKNOWN)
        time_ms = known.max_ms if known.is_tight else None
        if time_ms is None or time_ms > latest_ms:
            time_ms = known.min_ms
        if time_ms is not None and time_ms <= latest_ms:
            times.append(min(time_ms, now_ms))
    return max(times, default=None)


def _explanation(
    ttl: Ttl, cutoff_ms: int | None, expired: list[DataFile], straddling: list[DataFile]
) -> Explanation:
    if cutoff_ms is None:
        why = f"the log records no time of {ttl.column}, so the newest row is unknown"
        return Reason.PLAN_REFUSED.explain(why=why)
    clock = "now" if ttl.clock == "now" else "the newest row"
    age = f", {count_of(ttl.days, 'day')} before {clock}"
    if not expired and not straddling:
        return Explanation(
            Reason.NOTHING_PAST_THE_CUTOFF, {"what": "row", "cutoff": cutoff_ms}, age
        )
    parts = list[str]()
    for files, said in ((expired, "all rows of"), (straddling, "some rows of up to")):
        if files:
            sizes = size_text(total_bytes(files))
            parts.append(f"{said} {count_of(len(files), 'file')} ({sizes})")
    return Explanation(
        Reason.PAST_THE_CUTOFF, {"what": " and ".join(parts), "cutoff": cutoff_ms}, age
    )


def bounds_of_partition(file: DataFile, column: Column) -> TimeBounds:
    """The bounds in a file of a table that is partitioned by its time column."""
    time_ms = time_ms_of(dict(file.partition)[column.name], column)
    null_count = file.row_count if time_ms is None else 0
    return TimeBounds(min_ms=time_ms, max_ms=time_ms, null_count=null_count, is_tight=True)


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
    [value] = typed_partition(((column.name, text),), {column.name: column.type})
    match value:
        case datetime():
            return (value - _EPOCH) // timedelta(milliseconds=1)
        case date():
            return (value - _EPOCH.date()).days * DAY_MS
        case _:
            return None
