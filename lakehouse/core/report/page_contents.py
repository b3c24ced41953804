"""The content of the morning page (`lakehouse report`), as one value in display order."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from lakehouse.core.costs.operations import UpkeepOperation, UpkeepSum, sums_by_kind
from lakehouse.core.reasons import Reason
from lakehouse.core.report.attention import Attention, Concern
from lakehouse.core.report.money import ExpensiveTable, Money
from lakehouse.core.report.values import RecordsSize, ReportedTable, StoredBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything that the page shows. Tables are in the order in which they would be compacted.

    `runs` are the upkeep operations since `since_ms`, the newest first.
    """

    lake: str
    created_ms: int
    since_ms: int = 0
    attention: tuple[Attention, ...] = ()
    tables: tuple[ReportedTable, ...] = ()
    runs: tuple[UpkeepOperation, ...] = ()
    money: Money | None = None
    stored: StoredBytes = field(default_factory=StoredBytes)
    records: RecordsSize | None = None

    @property
    def worst_first(self) -> list[ReportedTable]:
        """The unreadable tables, then scored tables by ascending score, then the other tables."""
        return sorted(self.tables, key=_health_rank)

    @property
    def operation_sums(self) -> list[UpkeepSum]:
        """The sums of the operations by kind."""
        return sums_by_kind(self.runs)

    @property
    def effective_operations(self) -> list[UpkeepOperation]:
        """The operations, without vacuums that planned no file and did not fail."""
        no_effect = Reason.NOTHING_PAST.name
        return [each for each in self.runs if not each.is_ok or each.reason != no_effect]

    @property
    def empty_vacuum_count(self) -> int:
        """The number of vacuums that planned no file and did not fail."""
        return len(self.runs) - len(self.effective_operations)

    @property
    def most_expensive_table(self) -> ExpensiveTable | None:
        """The table with the highest forecast cost; `None` if no table has a known cost."""
        tables = () if self.money is None else self.money.dearest
        return next((each for each in tables if not each.is_outside), None)

    @property
    def due(self) -> list[ReportedTable]:
        """The tables that would be compacted now."""
        return [each for each in self.tables if each.is_due]

    @property
    def waiting(self) -> dict[str, list[ReportedTable]]:
        """The tables that would not be compacted now, by the name of the reason.

        The reasons are in the order of `Reason`. Tables without a reason are left out.
        """
        groups = dict[str, list[ReportedTable]]()
        for each in self.tables:
            if each.reason and not each.is_due:
                groups.setdefault(each.reason, []).append(each)
        return dict(sorted(groups.items(), key=lambda group: _reason_rank(group[0])))

    @property
    def concerns(self) -> dict[Concern, list[Attention]]:
        """The problems that need attention, by concern, the most urgent concern first."""
        by_concern = dict[Concern, list[Attention]]()
        for concern in Concern:
            group = [each for each in self.attention if each.concern is concern]
            if group:
                by_concern[concern] = group
        return by_concern

    def as_json(self) -> dict[str, Any]:
        """The document of `lakehouse report --json`. An enum's member becomes its name."""
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
