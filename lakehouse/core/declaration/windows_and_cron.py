"""The times (UTC) at which upkeep may start: windows of the week, and cron expressions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import product

from lakehouse.core.errors import Refused

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
# Minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as in Dagster.
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
# A step after a single number is not valid, since only some parsers accept it.
_PART = re.compile(r"(\d{1,2})|(?:\*|(\d{1,2})-(\d{1,2}))(?:/(0[1-9]|[1-9]\d?))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time from `start` until just before `end` (`HH:MM`, UTC), on each of the `days`.

    If `end` is not after `start`, the window starts on one of the `days` and ends on the next day.
    """

    start: str
    end: str
    days: tuple[str, ...] = DAYS

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.end)):
            if not _TIME.fullmatch(value):
                raise Refused(f"Window.{name} is {value!r}. Use HH:MM, from 00:00 to 23:59.")
        if not self.days or set(self.days) - set(DAYS):
            raise Refused(f"Window.days is {self.days!r}. Use some of {', '.join(DAYS)}.")


def is_open(windows: Sequence[Window], now_ms: int) -> bool:
    """Whether one of the windows is open at `now_ms`. Always true if there are no windows."""
    return not windows or any(start <= now_ms < end for start, end in _openings(windows, now_ms))


def next_opening(windows: Sequence[Window], now_ms: int) -> int:
    """The start of the next window after `now_ms`. `windows` must not be empty."""
    return min(start for start, _ in _openings(windows, now_ms) if start > now_ms)


def windows_text(windows: Sequence[Window]) -> str:
    """The windows as text, like `22:00-04:00 UTC on sat, sun`."""
    texts: list[str] = []
    for window in windows:
        is_daily = set(window.days) == set(DAYS)
        days = "daily" if is_daily else f"on {', '.join(window.days)}"
        texts.append(f"{window.start}-{window.end} UTC {days}")
    return "; ".join(texts)


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


def _openings(windows: Sequence[Window], now_ms: int) -> Iterator[tuple[int, int]]:
    """When each window opens and closes, from the day before `now_ms` to a week after it."""
    yesterday = datetime.fromtimestamp(now_ms / 1000, tz=UTC).date() - timedelta(days=1)
    for day in (yesterday + timedelta(days=ahead) for ahead in range(9)):
        for window in windows:
            if DAYS[day.weekday()] not in window.days:
                continue
            start = datetime.combine(day, time.fromisoformat(window.start), tzinfo=UTC)
            end = datetime.combine(day, time.fromisoformat(window.end), tzinfo=UTC)
            if start >= end:
                end += timedelta(days=1)
            yield int(start.timestamp() * 1000), int(end.timestamp() * 1000)


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
