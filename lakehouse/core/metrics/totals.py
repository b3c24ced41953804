"""Totals of each table's operations, for counters that never go back.

Logs and journal forget old operations. So the operations of a day that is over are added to totals
that are kept, and only newer ones are counted from logs and journal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

from lakehouse.core.costs.operations import UpkeepOperation


class CountedSeries(NamedTuple):
    """What is counted together. `reason` is that of the plan, or empty."""

    kind: str
    reason: str
    is_ok: bool


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over operations. Seconds and costs that are unknown are not part of them."""

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
        """The totals up to a later time; `operations` are all that ended in between."""
        totals = dict(self.totals)
        for each in operations:
            if self.until_ms <= each.ended_ms < until_ms:
                series = CountedSeries(each.kind, each.reason, each.is_ok)
                totals[series] = _with(totals.get(series, Total()), each)
        return replace(self, until_ms=max(self.until_ms, until_ms), totals=totals)


def encode_totals(tables: Mapping[str, TableTotals]) -> dict[str, Any]:
    """The document of the totals of all tables."""
    return {
        key: {
            "until_ms": each.until_ms,
            "totals": [[*series, *astuple(total)] for series, total in each.totals.items()],
        }
        for key, each in tables.items()
    }


def decode_totals(document: Mapping[str, Any]) -> dict[str, TableTotals]:
    """The totals in a document.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the document is damaged.
    """
    found = dict[str, TableTotals]()
    for key, entry in document.items():
        totals = dict[CountedSeries, Total]()
        for kind, reason, is_ok, count, timed_count, seconds, usd in entry["totals"]:
            series = CountedSeries(str(kind), str(reason), bool(is_ok))
            totals[series] = Total(int(count), int(timed_count), float(seconds), float(usd))
        found[key] = TableTotals(until_ms=int(entry["until_ms"]), totals=totals)
    return found


def _with(total: Total, operation: UpkeepOperation) -> Total:
    seconds = operation.seconds
    return Total(
        count=total.count + 1,
        timed_count=total.timed_count + (seconds is not None),
        seconds=total.seconds + (seconds or 0.0),
        usd=total.usd + (operation.usd or 0.0),
    )
