"""Maintenance windows: the hours of a week, UTC, in which a table may be compacted."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from lakehouse.core.errors import Refused

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `start` to `end` (`HH:MM`, UTC) on the days on which it starts; it goes past midnight where `end` is not after `start`."""

    start: str
    end: str
    days: tuple[str, ...] = DAYS

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("end", self.end)):
            if not _TIME.fullmatch(value):
                raise Refused(f"Window.{name} is {value!r}; accepted: HH:MM from 00:00 to 23:59")
        if not self.days or set(self.days) - set(DAYS):
            raise Refused(f"Window.days is {self.days!r}; accepted: some of {', '.join(DAYS)}")


def is_open(windows: Iterable[Window], now_ms: int) -> bool:
    """Whether one of the windows is open at `now_ms`; without any window, always."""
    windows = tuple(windows)
    return not windows or any(_holds(window, datetime.fromtimestamp(now_ms / 1000, tz=UTC)) for window in windows)


def next_opening(windows: Iterable[Window], now_ms: int) -> int:
    """When the next of the windows starts after `now_ms`; ValueError without any window."""
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    days = [now.date() + timedelta(days=ahead) for ahead in range(8)]
    starts = [
        datetime.combine(day, time.fromisoformat(window.start), tzinfo=UTC)
        for window in windows
        for day in days
        if DAYS[day.weekday()] in window.days
    ]
    return int(min(start for start in starts if start > now).timestamp() * 1000)


def windows_text(windows: Iterable[Window]) -> str:
    """`22:00-04:00 UTC on sat, sun`, and so on."""
    days = {window: "daily" if set(window.days) == set(DAYS) else f"on {', '.join(window.days)}" for window in windows}
    return "; ".join(f"{window.start}-{window.end} UTC {said}" for window, said in days.items())


def _holds(window: Window, now: datetime) -> bool:
    time, today, yesterday = f"{now:%H:%M}", DAYS[now.weekday()], DAYS[now.weekday() - 1]
    if window.start < window.end:
        return today in window.days and window.start <= time < window.end
    return (today in window.days and time >= window.start) or (yesterday in window.days and time < window.end)
