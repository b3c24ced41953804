"""Operations: what one would do now, for `lakehouse plan`, and its predicted and actual figures."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lakehouse.base.text import size_text, span_text, usd_text

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


FIGURE_HEADS = ("figure", "predicted", "actual", "error")


@dataclass(frozen=True, slots=True)
class Figure:
    """A predicted figure and its measured value; `None` means unknown."""

    name: str
    predicted: float | None
    actual: float | None

    @property
    def error(self) -> float | None:
        """The error as a share of `actual`; `None` if a figure is unknown or `actual` is 0."""
        if self.predicted is None or self.actual is None:
            return None
        return share_off(abs(self.predicted - self.actual), self.actual)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The figure as a table row, in the order of `FIGURE_HEADS`."""
        error = "-" if self.error is None else f"{self.error:.1%}"
        return (
            self.name.replace("_", " ").replace("usd", "USD"),
            self._text(self.predicted),
            self._text(self.actual),
            error,
        )

    def _text(self, number: float | None) -> str:
        if number is None:
            return "-"
        if "bytes" in self.name:
            return size_text(int(number))
        if self.name == "seconds":
            return f"{number:.2f}"
        if self.name == "usd":
            return usd_text(number)
        return f"{number:,}"


def share_off(error: float, actual: float) -> float | None:
    """An error as a share of the actual figure; `None` if that is 0."""
    return error / actual if actual else None


def figures_as_json(figures: Iterable[Figure]) -> dict[str, dict[str, float | None]]:
    """The documented JSON shape: the figures by name."""
    return {
        each.name: {
            "predicted": each.predicted,
            "actual": each.actual,
            "error": None if each.error is None else round(each.error, 4),
        }
        for each in figures
    }


def figures_in(document: Mapping[str, Any]) -> list[Figure]:
    """The figures in an outcome's JSON document; empty if it has none."""
    return [
        Figure(name, figure["predicted"], figure["actual"])
        for name, figure in document.get("figures", {}).items()
    ]
