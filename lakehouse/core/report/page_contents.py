"""The morning page as one value: what it shows, and in which order."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from lakehouse.core.costs.operations import UpkeepOperation, UpkeepSum, sums_by_kind
from lakehouse.core.reasons import Reason
from lakehouse.core.report.money import DearTable, Money
from lakehouse.core.report.retention import RetainedTable
from lakehouse.core.report.values import (
    Attention,
    Concern,
    RecordsSize,
    ReportedTable,
    StoredBytes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything that the page shows. Tables are in the order in which they would be compacted.

    `runs` are the operations since `since_ms`, the newest first.
    """

    lake: str
    created_ms: int
    since_ms: int = 0
    attention: tuple[Attention, ...] = ()
    tables: tuple[ReportedTable, ...] = ()
    runs: tuple[UpkeepOperation, ...] = ()
    money: Money | None = None
    retained: tuple[RetainedTable, ...] = ()
    stored: StoredBytes = field(default_factory=StoredBytes)
    records: RecordsSize | None = None

    @property
    def worst_first(self) -> list[ReportedTable]:
        """The tables: unreadable ones, then by ascending score, then those without a score."""
        return sorted(self.tables, key=_health_rank)

    @property
    def run_sums(self) -> list[UpkeepSum]:
        """The sums of the operations by kind."""
        return sums_by_kind(self.runs)

    @property
    def busy_runs(self) -> list[UpkeepOperation]:
        """The operations that did something, or failed."""
        return [run for run in self.runs if not run.is_ok or run.reason != Reason.NOTHING_PAST.name]

    @property
    def idle_count(self) -> int:
        """The number of vacuums that found nothing to delete."""
        return len(self.runs) - len(self.busy_runs)

    @property
    def dearest_table(self) -> DearTable | None:
        """The table that costs most; `None` if no cost of a table is known."""
        dearest = () if self.money is None else self.money.dearest
        return next((each for each in dearest if not each.is_outside), None)

    @property
    def due(self) -> list[ReportedTable]:
        """The tables that would be compacted now."""
        return [each for each in self.tables if each.is_due]

    @property
    def waiting(self) -> dict[str, list[ReportedTable]]:
        """The tables that would not be compacted now, by the name of the reason."""
        groups = dict[str, list[ReportedTable]]()
        for each in self.tables:
            if each.reason and not each.is_due:
                groups.setdefault(each.reason, []).append(each)
        return dict(sorted(groups.items(), key=lambda group: _reason_rank(group[0])))

    @property
    def concerns(self) -> dict[Concern, list[Attention]]:
        """What needs attention, by concern, the most urgent first."""
        found = {
            concern: [each for each in self.attention if each.concern is concern]
            for concern in Concern
        }
        return {concern: group for concern, group in found.items() if group}

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `lakehouse report --json`."""
        return asdict(self, dict_factory=_document)


def _document(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.name if isinstance(value, Enum) else value for name, value in pairs}


def _health_rank(table: ReportedTable) -> tuple[int, float]:
    if table.problem:
        return (0, 0.0)
    return (2, 0.0) if table.score is None else (1, table.score)


def _reason_rank(name: str) -> int:
    names = [each.name for each in Reason]
    return names.index(name) if name in names else len(names)
