"""The span of time that each partition of a table covers.

A partition gets its time from one of:

- the columns `year`, `month`, `day`, `hour`, or the first one, two or three of them;
- one DATE column, or a text column with dates such as `2026-01-31`, optionally with a column whose
  name ends in `hour`;
- one TIMESTAMP column.

All times are UTC. The value of a DATE or TIMESTAMP column shows only the start of a partition. Its
length is the longest unit (hour, day, month, year) such that all partitions of the table start at
the beginning of a unit. So no partition counts as old too early.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import Column, PartitionValues
from lakehouse.core.errors import Refused

_PARTS = ("year", "month", "day", "hour")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")


class Span(NamedTuple):
    """A span of time. `end_ms` is exclusive."""

    start_ms: int
    end_ms: int


def partition_spans(
    table: str, columns: Sequence[Column], partitions: Iterable[PartitionValues]
) -> Mapping[PartitionValues, Span | None]:
    """The span of each of a table's partitions; `None` if a value is not a time, such as null.

    Raises:
        Refused: the partition columns give no time, or more than one time.
    """
    values = {each: dict(_values(each, columns)) for each in partitions}
    if not values:
        return {}
    names = [*next(iter(values.values()))]
    parts = _calendar_columns(names)
    if parts:
        unit = _PARTS[len(parts) - 1]
        starts = {
            each: _from_parts([typed[name] for name in parts]) for each, typed in values.items()
        }
        return {each: _span(start, unit) for each, start in starts.items()}
    time = _time_column(table, values.values(), names, by_name(columns))
    hour = _hour_column(table, [name for name in names if name != time])
    starts = {each: _start(typed[time]) for each, typed in values.items()}
    if hour is not None:
        starts = {each: _with_hour(start, values[each][hour]) for each, start in starts.items()}
    unit = "hour" if hour is not None else _longest_unit(starts.values())
    return {each: _span(start, unit) for each, start in starts.items()}


def _values(partition: PartitionValues, columns: Sequence[Column]) -> Iterable[tuple[str, object]]:
    typed = typed_partition(partition, by_name(columns))
    return ((name, value) for (name, _), value in zip(partition, typed, strict=True))


def _calendar_columns(names: Sequence[str]) -> list[str]:
    """The columns year, month, day and hour, up to the first of them that is missing."""
    by_lower = {name.lower(): name for name in names}
    columns = list[str]()
    for part in _PARTS:
        if part not in by_lower:
            break
        columns.append(by_lower[part])
    return columns


def _time_column(
    table: str,
    partitions: Iterable[Mapping[str, object]],
    names: Sequence[str],
    columns: Mapping[str, Column],
) -> str:
    types = {name: columns[name].type if name in columns else "string" for name in names}
    candidates = [name for name in names if types[name] in _TIMES]
    if not candidates:
        rows = [*partitions]
        texts = [name for name in names if types[name] == "string"]
        candidates = [name for name in texts if any(_start(row[name]) is not None for row in rows)]
    if len(candidates) == 1:
        return candidates[0]
    count = len(candidates)
    what = f"{count} of them give a time" if candidates else "none of them gives a time"
    raise Refused(
        f"archive of {table}: the table is partitioned by {', '.join(names)}, and {what}. Use one"
        " DATE column, one TIMESTAMP column, one text column with dates such as 2026-01-31, or"
        " columns named year, month, day, hour"
    )


def _hour_column(table: str, names: Sequence[str]) -> str | None:
    hours = [name for name in names if name.lower().endswith("hour")]
    if len(hours) > 1:
        raise Refused(
            f"archive of {table}: the table is partitioned by {', '.join(hours)}, and each of them"
            " counts as an hour. Use only one such partition column"
        )
    return hours[0] if hours else None


def _from_parts(values: Sequence[object]) -> datetime | None:
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        return None
    year, month, day, hour = (*numbers, *(1, 1, 1, 0)[len(numbers) :])
    try:
        return datetime(year or 0, month or 0, day or 0, hour or 0, tzinfo=UTC)
    except ValueError:
        return None


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(str(value)) if is_digits else None


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
    """The longest unit at whose beginning every partition starts; empty if there is none."""
    known = [start for start in starts if start is not None]
    for unit in _PARTS:
        if all(_begins(start, unit) for start in known):
            return unit
    return ""


def _begins(start: datetime, unit: str) -> bool:
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
