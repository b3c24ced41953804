"""The times (UTC) of cron expressions."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

from lakehouse.base.errors import Refused

# Minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as in Dagster.
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
# A step after a single number is not valid, since only some parsers accept it.
_PART = re.compile(r"(\d{1,2})|(?:\*|(\d{1,2})-(\d{1,2}))(?:/(0[1-9]|[1-9]\d?))?", re.ASCII)


def cron_times(cron: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """All times of `cron` after `after_ms` and before `until_ms`, in order.

    Raises:
        Refused: the expression is not valid.
    """
    minutes, hours, days, months, weekdays = read_cron(cron)
    _, _, day_field, _, weekday_field = cron.split()
    # In cron, if both the day of the month and the day of the week are given, either is enough.
    needs_both = "*" in (day_field, weekday_field)
    day = datetime.fromtimestamp(after_ms / 1000, tz=UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    while (start := int(day.timestamp() * 1000)) < until_ms:
        fits_day = day.day in days
        fits_weekday = not weekdays.isdisjoint((day.isoweekday() % 7, day.isoweekday()))
        fits = all((fits_day, fits_weekday)) if needs_both else any((fits_day, fits_weekday))
        if day.month in months and fits:
            for hour, minute in product(sorted(hours), sorted(minutes)):
                time_ms = start + (hour * 60 + minute) * 60_000
                if after_ms < time_ms < until_ms:
                    yield time_ms
        day += timedelta(days=1)


def read_cron(cron: str, *, name: str = "cron") -> list[set[int]]:
    """The numbers of each of the five fields. Refusals call the expression `name`.

    Raises:
        Refused: there are not five fields, or a field has something other than numbers in its
            range, `*`, lists, ranges and steps.
    """
    words = cron.split()
    fields = [_numbers(word, low, high) for word, (low, high) in zip(words, _RANGES, strict=False)]
    if len(words) != len(_RANGES) or not all(fields):
        raise Refused(
            f"{name} is {cron!r}. Use five fields of numbers, *, ranges, lists and steps, like"
            " '*/20 6-22 * * 1,3'."
        )
    return fields


def _numbers(word: str, low: int, high: int) -> set[int]:
    """The numbers of one field; empty if it is not valid."""
    numbers: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return set()
        single, first, last, step = match.groups()
        start = int(single or first or low)
        end = int(single or last or high)
        if not low <= start <= end <= high:
            return set()
        numbers.update(range(start, end + 1, int(step or 1)))
    return numbers
