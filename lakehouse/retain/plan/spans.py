"""The span of time that each partition of a table covers. All times are UTC.

How long a partition is must be known, because a partition that is still written must not move:

- columns `year`, `month`, `day`, `hour`, or only the first one, two or three of them: the last one;
- a date, or a string like `2026-01-31`: a day, or an hour if another partition column is an hour;
- a string like `2026-01`: a month;
- anything else, such as a timestamp or a date that begins a week, must be declared
  (`Archive(span=…)`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from lakehouse.base.errors import Refused
from lakehouse.delta.partition_values import by_name, typed_partition
from lakehouse.delta.snapshot import Column, PartitionValues

_CALENDAR = ("year", "month", "day", "hour")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# No month, quarter or year is longer, so a partition never leaves before its end.
_LENGTHS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=31),
    "quarter": timedelta(days=92),
    "year": timedelta(days=366),
}
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_ISO_MONTH = re.compile(r"\d{4}-\d{2}")
_TIMES = ("timestamp", "timestamp_ntz")


class Span(NamedTuple):
    """A span of time. `end_ms` is exclusive."""

    start_ms: int
    end_ms: int


class PartitionSpans(NamedTuple):
    """The span of each partition, by its typed values; `None` if its values give no time.

    `doubt` says why the length of the spans is only assumed; empty if it is known.
    """

    of: Mapping[tuple[object, ...], Span | None]
    doubt: str


def partition_spans(
    table: str,
    columns: Sequence[Column],
    partitions: Iterable[PartitionValues],
    declared: str | None,
) -> PartitionSpans:
    """The spans of a table's partitions. `declared` is `Archive.span`.

    Raises:
        Refused: the partition columns give no time, or more than one, or the length must be
            declared.
    """
    types = by_name(columns)
    values = {
        typed_partition(each, types): dict(
            zip((name for name, _ in each), typed_partition(each, types), strict=True)
        )
        for each in partitions
    }
    if not values:
        return PartitionSpans({}, "")
    names = [*next(iter(values.values()))]
    start_of, unit = _reading(table, names, types, [*values.values()], declared)
    starts = {typed: start_of(row) for typed, row in values.items()}
    spans = {typed: _span(start, unit) for typed, start in starts.items()}
    days = sorted({start.date() for start in starts.values() if start is not None})
    has_neighbours = any(later - day == timedelta(days=1) for day, later in pairwise(days))
    is_assumed = unit == "day" and declared is None and "year" not in map(str.lower, names)
    doubt = ""
    if is_assumed and not has_neighbours:
        doubt = (
            "no two of its partitions are consecutive days, so a partition may be longer than a day"
        )
    return PartitionSpans(spans, doubt)


def _reading(
    table: str,
    names: Sequence[str],
    types: Mapping[str, Column],
    rows: Sequence[Mapping[str, object]],
    declared: str | None,
) -> tuple[Callable[[Mapping[str, object]], datetime | None], str]:
    """How a partition's start is read from its values, and the length of a partition."""
    by_lower = {name.lower(): name for name in names}
    if "year" in by_lower:
        calendar = list[str]()
        for unit in _CALENDAR:
            if unit not in by_lower:
                break
            calendar.append(by_lower[unit])
        length = declared or _CALENDAR[len(calendar) - 1]
        return (lambda row: _calendar_start([row[name] for name in calendar])), length
    kinds = {name: types[name].type if name in types else "string" for name in names}
    timed = [name for name in names if kinds[name] in ("date", *_TIMES)]
    timed = timed or [
        name
        for name in names
        if kinds[name] == "string" and any(_start(row[name]) is not None for row in rows)
    ]
    hours = [name for name in names if name not in timed and name.lower().endswith("hour")]
    if len(timed) != 1 or len(hours) > 1:
        raise Refused(
            f"archive of {table}: the table is partitioned by {', '.join(names)}, and"
            f" {len(timed) or 'none'} of them give a time. Use one DATE column, one STRING column"
            " with values such as 2026-01-31 or 2026-01, or columns named year, month, day, hour"
        )
    column = timed[0]
    if hours:
        return (lambda row: _with_hour(_start(row[column]), row[hours[0]])), declared or "hour"
    texts = [text for row in rows if isinstance(text := row[column], str)]
    length = declared
    if length is None and kinds[column] == "date":
        length = "day"
    for form, unit in ((_ISO_DAY, "day"), (_ISO_MONTH, "month")):
        if length is None and texts and all(map(form.fullmatch, texts)):
            length = unit
    if length is None:
        raise Refused(
            f"archive of {table}: how long a partition of {column} ({kinds[column]}) is cannot be"
            ' known. Use Archive(span="hour"), "day", "week", "month", "quarter" or "year"'
        )
    return (lambda row: _start(row[column])), length


def _calendar_start(values: Sequence[object]) -> datetime | None:
    numbers = [_number(value) for value in values]
    first = (1, 1, 1, 0)
    try:
        year, month, day, hour = (*numbers, *first[len(numbers) :])
        return datetime(year, month, day, hour, tzinfo=UTC)  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError):
        return None


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(value) if isinstance(value, str) and is_digits else None


def _start(value: object) -> datetime | None:
    match value:
        case datetime():
            return value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str() if _ISO_DAY.fullmatch(value) or _ISO_MONTH.fullmatch(value):
            try:
                return datetime.fromisoformat(value if len(value) > 7 else f"{value}-01").replace(
                    tzinfo=UTC
                )
            except ValueError:
                return None
        case _:
            return None


def _with_hour(start: datetime | None, value: object) -> datetime | None:
    hour = _number(value)
    if start is None or hour is None or not 0 <= hour < 24:
        return None
    return start.replace(hour=hour, minute=0, second=0, microsecond=0)


def _span(start: datetime | None, unit: str) -> Span | None:
    """The span of this length; `None` without a start, or if the end is after the year 9999."""
    try:
        return None if start is None else Span(_ms(start), _ms(start + _LENGTHS[unit]))
    except OverflowError:
        return None


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
