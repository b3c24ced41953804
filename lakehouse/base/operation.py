"""Operations: what one would do now, for `lakehouse plan`, its figures, and what the lake records.

The lake records ended operations and pauses (`lake/state_tables.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import size_text, span_text, usd_text, utc_text

PRICE_HEADS = ("costs USD", "pays back in")
_DAY_SECONDS = 86_400


@frozen
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


@frozen
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
        if self.predicted is None or not self.actual:
            return None
        return abs(self.predicted - self.actual) / self.actual

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


# How a vacuum finds the files. The knob `mode` is something else.
VacuumMode = Literal["LITE", "INVENTORY", "FULL"]
VACUUM_MODES: tuple[VacuumMode, ...] = get_args(VacuumMode)
# A vacuum's record names at most this many failed and this many kept files, so that it stays small
# even if all deletions fail. Later vacuums read the record.
FAILED_NAMED = 1_000


OperationResult = Literal["succeeded", "failed", "conflict"]


@frozen
class UpkeepOperation:
    """One ended upkeep operation: a row of `_lakehouse/operations`. `None` means unknown.

    - `kind`: compaction, vacuum, archive, restore or ttl.
    - `operation_id`: unique for each table and kind.
    - `result`: `conflict` is a compaction that lost its commit to another writer.
    - `reason`: the name of the plan's reason; empty if unknown. `why`: the error of a failure.
    - `run`: `run <id of the Dagster run>`, or a random id outside Dagster.
    - `by_person`: a person requested a compaction. It can close the circuit breaker, but never
      opens it.
    - `seconds`, `vcpu_seconds`, `usd`: actual figures. `requests`: the counted requests by method.
    - `detail`: what else operations of this kind record, as JSON values.
    """

    table: str
    kind: str
    operation_id: str
    ended_ms: int
    started_ms: int | None = None
    result: OperationResult = "succeeded"
    reason: str = ""
    why: str = ""
    run: str = ""
    by_person: bool = False
    seconds: float | None = None
    vcpu_seconds: float | None = None
    requests: Mapping[str, int] = {}
    usd: float | None = None
    figures: tuple[Figure, ...] = ()
    detail: Mapping[str, Any] = {}

    @property
    def wasted_bytes(self) -> int:
        """The planned bytes that a compaction wasted if it did not succeed."""
        return self.detail.get("bytes_rewritten", 0)


@frozen
class VacuumRecord:
    """What later vacuums need to know of a vacuum: the `detail` of its operation.

    - `horizon_ms`: the vacuum's plan covers files that were removed before this time.
    - `failed`: the reason by file name, for at most `FAILED_NAMED` files.
    - `is_complete`: the vacuum ended without an error, and `failed` and `kept` name all their
      files.
    - `kept`: files that this vacuum did not delete, and that a later vacuum without a listing must
      consider again. In mode LITE, these are files that only a kept version needs. With
      `orphans="keep"`, files that another table reads and all spared files are included.
    - `table_id`: the table's id, which changes if the table is created again.
    - `committed_ms`: when `version` was committed.
    """

    started_ms: int
    ended_ms: int
    mode: VacuumMode
    version: int
    horizon_ms: int
    usd: float = 0.0
    failed: Mapping[str, str] = {}
    is_complete: bool = True
    kept: Sequence[str] = ()
    table_id: str = ""
    committed_ms: int | None = None


@frozen
class Pause:
    """A pause of a table's upkeep that a person requested.

    The pause ends at `until_ms` or, if `until_ms` is `None`, when a person resumes the table.
    """

    table: str
    since_ms: int
    until_ms: int | None = None
    why: str = ""

    def holds(self, now_ms: int) -> bool:
        """Whether the pause is still in force at `now_ms`."""
        return self.until_ms is None or now_ms < self.until_ms

    @property
    def explanation(self) -> Explanation:
        """The pause as a reason, with its start, its end and the person's own words."""
        if self.until_ms is None:
            until = f"until you run lakehouse resume {self.table}"
        else:
            until = f"until {utc_text(self.until_ms)}"
        return Reason.PAUSED.explain(
            since=self.since_ms, until=until, why=f": {self.why}" if self.why else ""
        )
