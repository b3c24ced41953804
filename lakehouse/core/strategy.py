"""Who keeps a table's files large, and when: the strategies, one value each.

Source: what the field compares is none, optimized write, after each write, scheduled, automatic; sensor-driven is this program's own.
"""

import re
from dataclasses import dataclass

from lakehouse.core.errors import Refused

# Minute, hour, day of the month, month, day of the week (0 and 7 are Sunday), as Dagster's own parser takes them.
_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCompaction:
    """Nobody; the plan can still be seen, and a person can still ask for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedWrite:
    """Delta shuffles each batch before it writes it, so that fewer files are written (`delta.autoOptimize.optimizeWrite`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterWrite:
    """The writer's own run compacts after every commit, where the plan finds something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A Dagster schedule at these times (`cron`, UTC), whatever the counts are."""

    cron: str

    def __post_init__(self) -> None:
        cron_fields = self.cron.split()
        if len(cron_fields) != 5 or not all(map(_is_cron_field, cron_fields, _CRON_RANGES)):
            raise Refused(
                f"Scheduled.cron is {self.cron!r}; accepted: five fields of numbers, *, ranges, lists and steps, like '0 3 * * *' or "
                "'*/20 6-22 * * 1,3'"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCompaction:
    """Delta compacts in the writer's commit (`delta.autoOptimize.autoCompact`), by its own count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BySensor:
    """The sensor weighs all tables, and asks for the compactions that are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Before or after the write, chosen from batch size, arrival rate and the latency that readers wish for.

    `latency_seconds` counts from a batch's arrival until readers should find its rows, in files that read fast.
    """

    latency_seconds: float

    def __post_init__(self) -> None:
        if not self.latency_seconds > 0:
            raise Refused(f"Chosen.latency_seconds is {self.latency_seconds}; accepted: more than 0")


type_of_strategy = NoCompaction | OptimizedWrite | AfterWrite | Scheduled | AutoCompaction | BySensor | Chosen


def _is_cron_field(text: str, within: tuple[int, int]) -> bool:
    least, most = within
    for part in text.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None:
            return False
        first, last, step = (None if number is None else int(number) for number in match.groups())
        # A step after a single number is taken by some parsers only.
        if step == 0 or (step is not None and first is not None and last is None):
            return False
        bounds = [number for number in (first, last) if number is not None]
        if bounds != sorted(bounds) or any(not least <= number <= most for number in bounds):
            return False
    return True
