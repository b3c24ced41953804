"""What an operation would do to a table now: the value that each plan gives `lakehouse plan`."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lakehouse.base.text import span_text, usd_text

PRICE_HEADS = ("costs USD", "pays back in")
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class NetBenefit:
    """The benefit of an operation per day, and its cost, both in USD.

    A compaction saves the opening of files: the number of reads per day, times the openings saved
    per read, times the price of an opening. A deletion saves the storage of the deleted bytes.
    """

    benefit_usd_per_day: float
    cost_usd: float

    @property
    def ratio(self) -> float:
        """Benefit per day for each USD of cost; 0 if the cost is 0."""
        return self.benefit_usd_per_day / self.cost_usd if self.cost_usd > 0 else 0.0

    @property
    def sentence(self) -> str:
        """Benefit, cost and ratio as text."""
        return (
            f"saves {usd_text(self.benefit_usd_per_day)} USD a day and costs "
            f"{usd_text(self.cost_usd)} USD, ratio {usd_text(self.ratio)}"
        )


def price_cells(benefit: NetBenefit | None) -> tuple[str, str]:
    """The cost, and the time after which the benefit exceeds it, as cells of a table.

    The time is `-` if there is no benefit. Both are `-` if the price is unknown.
    """
    if benefit is None:
        return "-", "-"
    payback = span_text(_DAY_SECONDS / benefit.ratio) if benefit.ratio else "-"
    return usd_text(benefit.cost_usd), payback


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What `lakehouse <operation> <table>` would do now, and why.

    - `is_due`: there is something to do. `reason` may be a reason to wait, for example a pause.
    - `stops_writes`: no run writes the table before this operation.
    - `size_bytes`: of the files that it deletes, moves or writes again.
    - `net_benefit`: `None` if the benefit or the cost is unknown.
    """

    operation: str
    table: str
    reason: str
    sentence: str
    is_due: bool = False
    stops_writes: bool = False
    size_bytes: int = 0
    net_benefit: NetBenefit | None = None

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return asdict(self)


def ranked(operations: Iterable[Operation]) -> list[Operation]:
    """The operations, the most urgent first.

    Changes that stop writes come first. Then come the operations that are due, by benefit per cost,
    and those without a price after them, by size. Operations that are not due come last.
    """

    def order(operation: Operation) -> tuple[float | str, ...]:
        benefit = operation.net_benefit
        return (
            not operation.stops_writes,
            not operation.is_due,
            benefit is None,
            -benefit.ratio if benefit else 0.0,
            -operation.size_bytes,
            operation.table,
            operation.operation,
        )

    return sorted(operations, key=order)
