"""The strategies, one value each: who keeps a table's files large, and when."""

from dataclasses import dataclass

from lakehouse.core.declaration.cron import read_cron
from lakehouse.core.errors import Refused


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
        read_cron(self.cron, name="Scheduled.cron")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCompaction:
    """Delta compacts in the writer's commit (`delta.autoOptimize.autoCompact`), by its own count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BySensor:
    """The sensor weighs all tables, and asks for the compactions that are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Before or after the write, by the wished latency: seconds from a batch's arrival until its rows lie in files that read fast."""

    latency_seconds: float

    def __post_init__(self) -> None:
        if not self.latency_seconds > 0:
            raise Refused(
                f"Chosen.latency_seconds is {self.latency_seconds}; accepted: more than 0"
            )


type_of_strategy = OptimizedWrite | AfterWrite | Scheduled | AutoCompaction | BySensor | Chosen
