"""Maintenance windows: the hours of a week (UTC) in which a table may be compacted."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from lakehouse.core.errors import Refused

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `start` to `end` (`HH:MM`, UTC), on the days on which it starts.

    If `end` is not after `start`, the window ends on the following day.
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
    """Whether one of the windows is open at `now_ms`. Without windows, always."""
    return not windows or any(start <= now_ms < end for start, end in _openings(windows, now_ms))


def next_opening(windows: Sequence[Window], now_ms: int) -> int:
    """When the next window starts after `now_ms`. There must be a window."""
    return min(start for start, _ in _openings(windows, now_ms) if start > now_ms)


def windows_text(windows: Sequence[Window]) -> str:
    """The windows in words, like `22:00-04:00 UTC on sat, sun`."""
    texts: list[str] = []
    for window in windows:
        is_daily = set(window.days) == set(DAYS)
        days = "daily" if is_daily else f"on {', '.join(window.days)}"
        texts.append(f"{window.start}-{window.end} UTC {days}")
    return "; ".join(texts)


def _openings(windows: Sequence[Window], now_ms: int) -> Iterator[tuple[int, int]]:
    """When each window opens and closes, from the day before `now_ms` to a week after it."""
    yesterday = datetime.fromtimestamp(now_ms / 1000, tz=UTC).date() - timedelta(days=1)
    for day in (yesterday + timedelta(days=ahead) for ahead in range(9)):
        for window in windows:
            if DAYS[day.weekday()] in window.days:
                start, end = (
                    datetime.combine(day, time.fromisoformat(each), tzinfo=UTC)
                    for each in (window.start, window.end)
                )
                if start >= end:
                    end += timedelta(days=1)
                yield int(start.timestamp() * 1000), int(end.timestamp() * 1000)
