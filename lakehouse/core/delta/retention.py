"""The time for which a table keeps removed files, by its properties."""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from lakehouse.core.units import DAY_MS, HOUR_MS, MINUTE_MS

_UNITS_MS = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": HOUR_MS,
    "minute": MINUTE_MS,
    "second": 1_000,
    "millisecond": 1,
    "microsecond": Fraction(1, 1_000),
}
_SPAN = re.compile(r"(\d+)\s+([a-z]+?)s?(?=\s|$)")
_INTERVAL = re.compile(r"(?:interval\s+)?(?:\d+\s+[a-z]+(?:\s+|$))+")
# The property of a table that says how long removed files are kept. Source: PROTOCOL.md, and Delta's default.
RETENTION, _DEFAULT_RETENTION = "delta.deletedFileRetentionDuration", "interval 1 week"


def retention_ms_of(properties: Mapping[str, str]) -> int | None:
    """The time (ms) for which removed files are kept, by the table's property; `None` where it is spelled in a way unknown here."""
    return span_ms_of(properties.get(RETENTION, _DEFAULT_RETENTION))


def span_ms_of(interval: str) -> int | None:
    """The length of `interval 30 days`, a begun millisecond as a whole one; `None` for a spelling unknown here."""
    text = interval.strip().lower()
    if not _INTERVAL.fullmatch(text):
        return None
    spans = [(int(count), _UNITS_MS.get(unit)) for count, unit in _SPAN.findall(text)]
    return (
        None
        if not spans or any(ms is None for _, ms in spans)
        else ceil(sum(count * (ms or 0) for count, ms in spans))
    )
