"""Totals of each table's operations, for counters that never decrease.

Logs and the journal forget old operations. Therefore, the operations of past days are added to
stored totals. Only newer operations are counted from the logs and the journal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

from lakehouse.core.costs.operations import UpkeepOperation


class CountedSeries(NamedTuple):
    """The key of operations that are counted together. `reason` is the plan's reason, or empty."""

    kind: str
    reason: str
    is_ok: bool


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over operations; unknown durations and costs are left out.

    `timed_count` is the number of operations with a known duration.
    """

    count: int = 0
    timed_count: int = 0
    seconds: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """The totals of a table's operations that ended before `until_ms`."""

    until_ms: int
    totals: Mapping[CountedSeries, Total] = field(default_factory=dict[CountedSeries, Total])

    def through(self, operations: Iterable[UpkeepOperation], until_ms: int) -> "TableTotals":
        """The totals before a later time. `operations` include all operations in between."""
        totals = dict(self.totals)
        for each in operations:
            if self.until_ms <= each.ended_ms < until_ms:
                series = CountedSeries(each.kind, each.reason, each.is_ok)
                totals[series] = _with(totals.get(series, Total()), each)
        return replace(self, until_ms=max(self.until_ms, until_ms), totals=totals)


def encode_totals(tables: Mapping[str, TableTotals]) -> dict[str, Any]:
    """The JSON document with the totals of all tables."""
    return {
        key: {
            "until_ms": each.until_ms,
            "totals": [[*series, *astuple(total)] for series, total in each.totals.items()],
        }
        for key, each in tables.items()
    }


def decode_totals(document: Mapping[str, Any]) -> dict[str, TableTotals]:
    """The totals in a document. Values that a later version appended to a row are ignored.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the document is damaged.
    """
    tables = dict[str, TableTotals]()
    for key, entry in document.items():
        totals = dict[CountedSeries, Total]()
        for kind, reason, is_ok, count, timed_count, seconds, usd, *_ in entry["totals"]:
            series = CountedSeries(str(kind), str(reason), bool(is_ok))
            totals[series] = Total(int(count), int(timed_count), float(seconds), float(usd))
        tables[key] = TableTotals(until_ms=int(entry["until_ms"]), totals=totals)
    return tables


def _with(total: Total, operation: UpkeepOperation) -> Total:
    seconds = operation.seconds
    return Total(
        count=total.count + 1,
        timed_count=total.timed_count + (seconds is not None),
        seconds=total.seconds + (seconds or 0.0),
        usd=total.usd + (operation.usd or 0.0),
    )
