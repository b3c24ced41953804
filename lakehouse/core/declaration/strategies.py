"""Compaction strategies: when a table is compacted, and by which run.

Delta's own auto compaction and optimized write are no strategies. They are table properties, which
work next to any strategy: `Table(properties={"delta.autoOptimize.optimizeWrite": "true"})`.
"""

from dataclasses import dataclass

from lakehouse.core.declaration.cron import read_cron


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
class BySensor:
    """The compaction sensor ranks all tables and requests the compactions that are due."""


Strategy = AfterWrite | Scheduled | BySensor
