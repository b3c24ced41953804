"""Computes the span of time that each partition of a table covers.

A partition gets its time from the first of these that the table has:

- the columns `year`, `month`, `day`, `hour`, or only the first one, two or three of them;
- one DATE or TIMESTAMP column, optionally with a column whose name ends in `hour`;
- one STRING column with dates such as `2026-01-31`, optionally with such an hour column.

All times are UTC. The last calendar column is also the length of a partition, and an hour column
next to a date makes it an hour. Otherwise, a date or timestamp gives only the start, and all
partitions of the table get the same length: a year if each starts at the beginning of a year, or
else a month, a day or an hour by the same rule, or else a millisecond. Thus a partition that holds
a month does not count as old after its first day.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import Column, PartitionValues
from lakehouse.core.errors import Refused

# The units of a partition's length, longest first, and the names of calendar columns.
_UNITS = ("year", "month", "day", "hour")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")


class Span(NamedTuple):
    """A span of time. `end_ms` is exclusive."""

    start_ms: int
    end_ms: int


def partition_spans(
    table: str, columns: Sequence[Column], partitions: Iterable[PartitionValues]
) -> Mapping[PartitionValues, Span | None]:
    """The span of each of a table's partitions; `None` if a value gives no time, for example null.

    Raises:
        Refused: without a column `year`, the partition columns give no time, or more than one.
    """
    values = {each: dict(_values(each, columns)) for each in partitions}
    if not values:
        return {}
    names = [*next(iter(values.values()))]
    starts = dict[PartitionValues, datetime | None]()
    calendar_columns = _calendar_columns(names)
    if calendar_columns:
        unit = _UNITS[len(calendar_columns) - 1]
        for partition, typed in values.items():
            starts[partition] = _calendar_start([typed[name] for name in calendar_columns])
        return {each: _span(start, unit) for each, start in starts.items()}
    time_column = _time_column(table, values.values(), names, by_name(columns))
    hour_column = _hour_column(table, [name for name in names if name != time_column])
    for partition, typed in values.items():
        start = _start(typed[time_column])
        starts[partition] = start if hour_column is None else _with_hour(start, typed[hour_column])
    unit = "hour" if hour_column is not None else _longest_unit(starts.values())
    return {each: _span(start, unit) for each, start in starts.items()}


def _values(partition: PartitionValues, columns: Sequence[Column]) -> Iterable[tuple[str, object]]:
    typed = typed_partition(partition, by_name(columns))
    return ((name, value) for (name, _), value in zip(partition, typed, strict=True))


def _calendar_columns(names: Sequence[str]) -> list[str]:
    """The columns year, month, day and hour, in this order, up to the first missing column."""
    by_lower = {name.lower(): name for name in names}
    columns = list[str]()
    for unit in _UNITS:
        if unit not in by_lower:
            break
        columns.append(by_lower[unit])
    return columns


def _time_column(
    table: str,
    partitions: Iterable[Mapping[str, object]],
    names: Sequence[str],
    columns: Mapping[str, Column],
) -> str:
    """The only DATE or TIMESTAMP column, or else the only STRING column that contains a date."""
    types = {name: columns[name].type if name in columns else "string" for name in names}
    candidates = [name for name in names if types[name] in _TIMES]
    if not candidates:
        rows = [*partitions]
        texts = [name for name in names if types[name] == "string"]
        candidates = [name for name in texts if any(_start(row[name]) is not None for row in rows)]
    if len(candidates) == 1:
        return candidates[0]
    count = len(candidates)
    problem = f"{count} of them give a time" if candidates else "none of them gives a time"
    raise Refused(
        f"archive of {table}: the table is partitioned by {', '.join(names)}, and {problem}. Use"
        " one DATE column, one TIMESTAMP column, one STRING column with dates such as 2026-01-31,"
        " or columns named year, month, day, hour"
    )


def _hour_column(table: str, names: Sequence[str]) -> str | None:
    hours = [name for name in names if name.lower().endswith("hour")]
    if len(hours) > 1:
        raise Refused(
            f"archive of {table}: the table is partitioned by {', '.join(hours)}, and each of them"
            " counts as an hour. Use only one such partition column"
        )
    return hours[0] if hours else None


def _calendar_start(values: Sequence[object]) -> datetime | None:
    """The start of a partition, given its year, or its year and month, and so on."""
    numbers = list[int]()
    for value in values:
        number = _number(value)
        if number is None:
            return None
        numbers.append(number)
    first = (1, 1, 1, 0)
    year, month, day, hour = (*numbers, *first[len(numbers) :])
    try:
        return datetime(year, month, day, hour, tzinfo=UTC)
    except ValueError:
        return None


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return None


def _start(value: object) -> datetime | None:
    match value:
        case datetime():
            return value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str() if _ISO_DATE.fullmatch(value):
            try:
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            except ValueError:
                return None
        case _:
            return None


def _with_hour(start: datetime | None, value: object) -> datetime | None:
    hour = _number(value)
    if start is None or hour is None or not 0 <= hour < 24:
        return None
    return start.replace(hour=hour, minute=0, second=0, microsecond=0)


def _longest_unit(starts: Iterable[datetime | None]) -> str:
    """The longest unit such that every start is the beginning of a unit; empty without one."""
    known = [start for start in starts if start is not None]
    for unit in _UNITS:
        if all(_is_beginning(start, unit) for start in known):
            return unit
    return ""


def _is_beginning(start: datetime, unit: str) -> bool:
    """Whether `start` is the beginning of a year, month, day or hour."""
    if start.minute or start.second or start.microsecond:
        return False
    match unit:
        case "year":
            return (start.month, start.day, start.hour) == (1, 1, 0)
        case "month":
            return (start.day, start.hour) == (1, 0)
        case "day":
            return start.hour == 0
        case _:
            return True


def _span(start: datetime | None, unit: str) -> Span | None:
    """The span of this length; `None` without a start, or if the end is after the year 9999."""
    if start is None:
        return None
    try:
        match unit:
            case "year":
                end = start.replace(year=start.year + 1)
            case "month":
                end = (start.replace(day=1) + timedelta(days=32)).replace(day=1)
            case "day":
                end = start + timedelta(days=1)
            case "hour":
                end = start + timedelta(hours=1)
            case _:
                end = start + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
    return Span(_ms(start), _ms(end))


def _ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
