"""When a cron expression comes round, in UTC; no library, since nothing but five fields is accepted."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from lakehouse.core.errors import Refused

# Minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as Dagster's own parser takes them.
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?", re.ASCII)


def cron_times(cron: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """Every time of `cron` after `after_ms` and before `until_ms`, in order.

    Raises:
        Refused: as `read_cron`.
    """
    words, fields = cron.split(), read_cron(cron)
    minutes, hours = fields[0], fields[1]
    day = datetime.fromtimestamp(after_ms / 1000, tz=UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while (start := int(day.timestamp() * 1000)) < until_ms:
        if _is_day(day, words, fields):
            times = (start + (hour * 60 + minute) * 60_000 for hour in sorted(hours) for minute in sorted(minutes))
            yield from (time for time in times if after_ms < time < until_ms)
        day += timedelta(days=1)


def read_cron(cron: str, *, name: str = "cron") -> list[set[int]]:
    """The numbers of each of the five fields of `cron`; a refusal calls the expression `name`.

    Raises:
        Refused: something other than numbers, `*`, lists, ranges and steps.
    """
    words = cron.split()
    fields = [_numbers(word, low, high) for word, (low, high) in zip(words, _RANGES, strict=False)]
    if len(words) != len(_RANGES) or not all(fields):
        raise Refused(
            f"{name} is {cron!r}; accepted: five fields of numbers, *, ranges, lists and steps, like '0 3 * * *' or '*/20 6-22 * * 1,3'"
        )
    return fields


def _is_day(day: datetime, words: list[str], fields: list[set[int]]) -> bool:
    """As cron has it: where both the day of the month and that of the week are given, either will do."""
    of_month, of_week = day.day in fields[2], bool({day.isoweekday() % 7, day.isoweekday()} & fields[4])
    either = words[2] != "*" and words[4] != "*"
    return day.month in fields[3] and (of_month or of_week if either else of_month and of_week)


def _numbers(word: str, low: int, high: int) -> set[int]:
    """The numbers of one field; empty where a part of it is none."""
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            return set()
        first, last, step = (None if number is None else int(number) for number in match.groups())
        # A step after a single number is taken by some parsers only.
        if step == 0 or (step is not None and first is not None and last is None):
            return set()
        start = low if first is None else first
        end = high if first is None else start if last is None else last
        if not low <= start <= end <= high:
            return set()
        found.update(range(start, end + 1, step or 1))
    return found
