"""The known facts of one table, which the triggers and the ranking use."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.compaction_estimate import usd_per_opening
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.snapshot import DataFile, Snapshot, files_with_vectors, row_total
from lakehouse.core.text import usd_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceCold:
    """The figures of a table from `at_ms` on, when all partitions are cold.

    A partition is cold if it did not change for `Compaction.cold_hours`. The figures hold if no
    writer commits before `at_ms`. Fields are named as in `TableState`.
    """

    at_ms: int
    mergeable_file_count: int
    mergeable_bytes: int
    files_after: int
    oldest_small_ms: int | None
    purged_row_count: int
    estimate_seconds: float
    estimate_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NetBenefit:
    """The benefit of a compaction per day, and its cost, both in USD.

    The benefit is the number of reads per day, times the file openings saved per read, times the
    price of an opening.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The known facts of one table. `None` means unknown, and never makes a compaction due.

    - `committed_ms`: the commit time of `version`. It differs if the table was created again, or
      restored from a backup, and has the same version number.
    - `mergeable_file_count`: files that compactions would merge, in as many runs as they need.
    - `mergeable_bytes`, `files_after`: for one run: the bytes that it merges, and the live files
      after it.
    - `oldest_small_ms`: the write time of the oldest file that a compaction would merge and that no
      compaction wrote.
    - `purged_row_count`: deleted rows that a compaction would remove from storage.
    - `slowdown`: the share by which the readers' newest runs took longer than the runs after the
      last compaction.
    - `due_since_ms`: the time since which the table has been due and waiting.
    - `engine`: what would compact the table now, `spark` or `deltalake`.
    - `on_s3`: whether the table is on S3, where opening a file costs requests.
    """

    table: str
    version: int | None = None
    committed_ms: int | None = None
    mergeable_file_count: int | None = None
    mergeable_bytes: int | None = None
    file_count: int | None = None
    files_after: int | None = None
    size_bytes: int | None = None
    oldest_small_ms: int | None = None
    deleted_rows_share: float | None = None
    purged_row_count: int | None = None
    estimate_seconds: float | None = None
    estimate_usd: float | None = None
    health_score: float | None = None
    reads_per_day: float | None = None
    slowdown: float | None = None
    last_compaction_ms: int | None = None
    due_since_ms: int | None = None
    once_cold: OnceCold | None = None
    engine: str | None = None
    prices: Prices = DEFAULT_PRICES
    on_s3: bool = False

    @property
    def openings_saved(self) -> int | None:
        """File openings that a compaction would save each full read."""
        if self.file_count is None or self.files_after is None:
            return None
        return max(0, self.file_count - self.files_after)

    def at(self, now_ms: int) -> "TableState":
        """The state at `now_ms` if no writer commits: from its time on, `once_cold` applies."""
        cold = self.once_cold
        if cold is None or now_ms < cold.at_ms:
            return self
        names = [each.name for each in fields(cold) if each.name != "at_ms"]
        figures = {name: getattr(cold, name) for name in names}
        return replace(self, once_cold=None, **figures)

    @property
    def net_benefit(self) -> NetBenefit | None:
        """Benefit and cost of a compaction at the table's prices; `None` if unknown."""
        if self.reads_per_day is None or self.openings_saved is None or self.estimate_usd is None:
            return None
        usd_per_day = self.reads_per_day * self.openings_saved * self._usd_per_opening
        return NetBenefit(benefit_usd_per_day=usd_per_day, cost_usd=self.estimate_usd)

    @property
    def _usd_per_opening(self) -> float:
        return usd_per_opening(self.prices, on_s3=self.on_s3)


def state_of(
    snapshot: Snapshot,
    plan: CompactionPlan,
    once_cold: tuple[int, CompactionPlan] | None = None,
) -> TableState:
    """The state of a table from its log alone: without health, readers, runs and waiting time.

    `once_cold` is the time from which the whole table is cold, and the plan for that time.
    """
    cold_figures = None
    if once_cold is not None:
        at_ms, cold_plan = once_cold
        cold_figures = OnceCold(at_ms=at_ms, **_figures(snapshot, cold_plan))
    return TableState(
        table=snapshot.table,
        version=snapshot.version,
        committed_ms=snapshot.committed_ms,
        file_count=snapshot.file_count,
        size_bytes=snapshot.size_bytes,
        deleted_rows_share=_deleted_rows_share(snapshot.files),
        once_cold=cold_figures,
        engine=plan.engine.engine,
        on_s3=snapshot.on_s3,
        **_figures(snapshot, plan),
    )


def net_benefit_cells(net_benefit: NetBenefit | None) -> tuple[str, ...]:
    """Benefit per day, cost and ratio as cells of a table; `-` if unknown."""
    if net_benefit is None:
        return ("-",) * 3
    numbers = (net_benefit.benefit_usd_per_day, net_benefit.cost_usd, net_benefit.ratio)
    return tuple(map(usd_text, numbers))


def _figures(snapshot: Snapshot, plan: CompactionPlan) -> dict[str, Any]:
    """The figures of a state that a plan determines, by name."""
    files = [file for bin_ in plan.bins for file in bin_.files]
    return {
        "mergeable_file_count": plan.mergeable_file_count,
        "mergeable_bytes": plan.bytes_removed,
        "files_after": snapshot.file_count - plan.files_removed + plan.files_added,
        "oldest_small_ms": min(
            (file.modified_ms for file in files if not file.compacted), default=None
        ),
        "purged_row_count": sum(file.deleted_row_count for file in files),
        "estimate_seconds": plan.estimate.seconds,
        "estimate_usd": plan.estimate.usd,
    }


def _deleted_rows_share(files: Sequence[DataFile]) -> float | None:
    """The share of stored rows that deletion vectors hide; `None` if a row count is unknown."""
    with_vectors = files_with_vectors(files)
    if not with_vectors:
        return 0.0
    row_count = row_total(files)
    if row_count is None:
        return None
    if row_count == 0:
        return 0.0
    return sum(file.deleted_row_count for file in with_vectors) / row_count
