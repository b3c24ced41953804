"""Compaction strategies: which mechanism keeps a table's files large, and when it runs."""

from dataclasses import dataclass

from lakehouse.core.declaration.windows_and_cron import read_cron
from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedWrite:
    """Delta shuffles each batch so that it writes fewer files.

    Sets `delta.autoOptimize.optimizeWrite`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterWrite:
    """The run that writes the table also compacts it afterwards, unless the table is on hold.

    The plan decides whether there is anything to merge. No number of files must be reached.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A Dagster schedule compacts at these times (`cron`, UTC), whatever the file counts are."""

    cron: str

    def __post_init__(self) -> None:
        read_cron(self.cron, name="Scheduled.cron")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCompaction:
    """Delta compacts after a commit, based on its own count of files.

    Sets `delta.autoOptimize.autoCompact`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class BySensor:
    """The compaction sensor ranks all tables and requests the compactions that are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Selects optimized write, compaction after each write, or the sensor, by the wanted latency.

    `latency_seconds` is the longest acceptable time from the arrival of a batch until its rows are
    in large files.
    """

    latency_seconds: float

    def __post_init__(self) -> None:
        if not self.latency_seconds > 0:
            raise Refused(
                f"Chosen.latency_seconds is {self.latency_seconds}. Use a number above 0."
            )


Strategy = OptimizedWrite | AfterWrite | Scheduled | AutoCompaction | BySensor | Chosen
