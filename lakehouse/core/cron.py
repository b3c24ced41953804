"""When a cron expression comes round, in UTC; no library, since nothing but five fields is accepted."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from lakehouse.core.errors import Refused

# Minute, hour, day of the month, month, day of the week (0 and 7 are Sunday).
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def cron_times(cron: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """Every time of `cron` after `after_ms` and before `until_ms`, in order.

    Raises:
        Refused: something other than numbers, `*`, lists, ranges and steps.
    """
    words = cron.split()
    if len(words) != len(_RANGES):
        raise Refused(f"cron {cron!r} has {len(words)} fields; accepted: five, like '0 3 * * *'")
    fields = [_numbers(word, low, high, cron) for word, (low, high) in zip(words, _RANGES, strict=True)]
    minutes, hours = fields[0], fields[1]
    day = datetime.fromtimestamp(after_ms / 1000, tz=UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while (start := int(day.timestamp() * 1000)) < until_ms:
        if _is_day(day, words, fields):
            times = (start + (hour * 60 + minute) * 60_000 for hour in sorted(hours) for minute in sorted(minutes))
            yield from (time for time in times if after_ms < time < until_ms)
        day += timedelta(days=1)


def _is_day(day: datetime, words: list[str], fields: list[set[int]]) -> bool:
    """As cron has it: where both the day of the month and that of the week are given, either will do."""
    of_month, of_week = day.day in fields[2], bool({day.isoweekday() % 7, day.isoweekday()} & fields[4])
    either = words[2] != "*" and words[4] != "*"
    return day.month in fields[3] and (of_month or of_week if either else of_month and of_week)


def _numbers(word: str, low: int, high: int, cron: str) -> set[int]:
    found: set[int] = set()
    try:
        for part in word.split(","):
            span, _, step = part.partition("/")
            first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
            upto = last or (str(high) if step else first)
            found.update(range(int(first), int(upto) + 1, int(step or 1)))
    except ValueError as error:
        raise Refused(f"cron {cron!r}: {word!r} is not understood; accepted: numbers, *, lists, ranges, steps") from error
    if not found or min(found) < low or max(found) > high:
        raise Refused(f"cron {cron!r}: {word!r} is out of range; accepted: {low} to {high}")
    return found
