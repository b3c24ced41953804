"""When each partition of a table starts. All times are UTC.

The values of these partition columns give the time:

- columns `year`, `month`, `day`, `hour`, or only the first one, two or three of them;
- one DATE or TIMESTAMP column, or one STRING column with values such as `2026-01-31` or `2026-01`;
- next to such a column, a column with the hour.
"""

import re
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime
from itertools import takewhile

from lakehouse.base.errors import Refused
from lakehouse.delta.partition_values import TypedPartition
from lakehouse.delta.snapshot import Snapshot

_CALENDAR = ("year", "month", "day", "hour")
_FIRST = (1, 1, 1, 0)
_ISO_TEXT = re.compile(r"\d{4}-\d{2}(-\d{2})?")


def partition_starts(
    snapshot: Snapshot, partitions: Collection[TypedPartition]
) -> dict[TypedPartition, int | None]:
    """The start of each partition in ms; `None` if its values give no time.

    Raises:
        Refused: several partition columns give a time.
    """
    places = _time_columns(snapshot, partitions)
    return {each: _start_ms([each[place] for place in places]) for each in partitions}


def _time_columns(snapshot: Snapshot, partitions: Collection[TypedPartition]) -> list[int]:
    """The positions of the partition columns that give the time: a date or a year comes first."""
    names = [name.lower() for name in snapshot.partition_columns]
    if "year" in names:
        return [names.index(unit) for unit in takewhile(names.__contains__, _CALENDAR)]
    dated = [
        place for place in range(len(names)) if any(_date_of(each[place]) for each in partitions)
    ]
    hours = [
        place for place, name in enumerate(names) if place not in dated and name.endswith("hour")
    ]
    if len(dated) > 1 or len(hours) > 1:
        raise Refused(
            f"archive of {snapshot.table}: several of the partition columns"
            f" {', '.join(snapshot.partition_columns)} give a time. Use one DATE column, one STRING"
            " column with values such as 2026-01-31 or 2026-01, or columns named year, month, day,"
            " hour"
        )
    return [*dated, *hours] if dated else []


def _date_of(value: object) -> datetime | None:
    """The time of a date, a timestamp, or a text such as `2026-01-31` or `2026-01`."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, str) or not _ISO_TEXT.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(f"{value}-01"[:10]).replace(tzinfo=UTC)
    except ValueError:
        return None


def _start_ms(values: Sequence[object]) -> int | None:
    """The start by a date and perhaps an hour, or by a year and perhaps smaller units."""
    if not values:
        return None
    start = _date_of(values[0])
    try:
        numbers = [int(str(value)) for value in (values if start is None else values[1:])]
        if start is None:
            year, month, day, hour = [*numbers, *_FIRST[len(numbers) :]]
            start = datetime(year, month, day, hour, tzinfo=UTC)
        elif numbers:
            start = start.replace(hour=numbers[0])
    except ValueError:
        return None
    return round(start.timestamp() * 1000)
