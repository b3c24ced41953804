"""The triggers of a table's policy: any one of them makes it due for a compaction, each with its own reason and numbers.

Readers come first: a compaction is due when they have lost its price (`read_losses`). Beside that a number of mergeable files makes it
due in any case. It is small where readers may be unknown, and a bound for what no reader tells where they are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, median
from typing import Any, Literal

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.estimate import price, usd_per_opening
from lakehouse.core.costs.rates import SECONDS_PER_OPENING
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.scheduling.read_losses import ReadBalance, opening_steps, type_of_steps
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS

# Runs of one kind on a shared machine differ by less than a quarter.
_SLOWDOWN_SHARE = 0.25
# A quarter of what was declared at least: a cadence that follows the readers, within sight of what a person wrote.
_MOST_HALVINGS = 2
# Readers that were seen, and that nobody declared, may not be the only ones: so many times the knobs' bounds, and the check stays green.
_SEEN_READERS = 2
# A compaction of fewer files is none.
_FEWEST_FILES = 2
# So many runs make a mean that one slow run does not turn round.
_ROLLING_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceCold:
    """The figures of a table from `at_ms` on, when all of it is cold, if nobody writes until then; named as in `TableState`."""

    at_ms: int
    mergeable_file_count: int
    mergeable_bytes: int
    files_after: int
    oldest_small_ms: int | None
    purged_row_count: int
    estimate_seconds: float
    estimate_usd: float
    comparison_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetBenefit:
    """Benefit per day (reads, openings that each is spared, the price of one) beside the cost of the plan's estimate, both in USD."""

    benefit_usd_per_day: float
    cost_usd: float

    @property
    def ratio(self) -> float:
        """Benefit per day for each USD of cost; what costs nothing is worth nothing, since there is nothing to do."""
        return self.benefit_usd_per_day / self.cost_usd if self.cost_usd > 0 else 0.0

    @property
    def sentence(self) -> str:
        """Both, and their ratio, for a person."""
        return f"saves {self.benefit_usd_per_day:.3g} USD a day and costs {self.cost_usd:.3g} USD, ratio {self.ratio:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The known facts of one table. `None` is unknown, and never leads to a run.

    - `committed_ms`: distinguishes the version from one of the same number after a restore.
    - `files_after`: live files after a compaction.
    - `oldest_small_ms`: when the oldest file was written that a compaction would merge and that
      no compaction wrote.
    - `purged_row_count`: deleted rows that a compaction would remove from storage.
    - `comparison_seconds`: the verification after a compaction's commit.
    - `openings`: steps since the last compaction: from a time (ms) on, the file openings that a
      compaction would save each full read. Readers have lost at least `lost_openings` of them.
    - `readers`: `declared` if all are known, `seen` if some were observed for a full day.
    - `slowdown`: the share by which the readers' runs take longer than before.
    - `due_since_ms`: since when the table has been waiting for its turn.
    - `sensor_driven`: whether the strategy in force, named `chosen`, is the sensor's.
    - `on_s3`: opening a file costs requests.
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
    comparison_seconds: float | None = None
    openings: type_of_steps | None = None
    lost_openings: float | None = None
    readers: Literal["declared", "seen", "unknown"] = "unknown"
    health_score: float | None = None
    reads_per_day: float | None = None
    slowdown: float | None = None
    last_compaction_ms: int | None = None
    due_since_ms: int | None = None
    once_cold: OnceCold | None = None
    sensor_driven: bool | None = None
    chosen: str | None = None
    prices: Prices = DEFAULT_PRICES
    on_s3: bool = False

    @property
    def openings_saved(self) -> int | None:
        """File openings that every full read would be spared."""
        if self.file_count is None or self.files_after is None:
            return None
        return max(0, self.file_count - self.files_after)

    def at(self, now_ms: int) -> "TableState":
        """The state at `now_ms`, if nobody has written since it was told."""
        cold = self.once_cold
        if cold is None or now_ms < cold.at_ms:
            return self
        figures = {
            each.name: getattr(cold, each.name) for each in fields(cold) if each.name != "at_ms"
        }
        found = replace(self, once_cold=None, **figures)
        openings = (
            None
            if self.openings is None
            else (*self.openings, (cold.at_ms, found.openings_saved or 0))
        )
        return replace(found, openings=openings)

    @property
    def balance(self) -> ReadBalance | None:
        """The losses of readers beside the cost of a compaction; `None` where either is unknown, or there is nothing to compact."""
        if self.lost_openings is None or not self.estimate_seconds or self.estimate_usd is None:
            return None
        compared = self.comparison_seconds or 0.0
        return ReadBalance(
            lost_seconds=self.lost_openings * SECONDS_PER_OPENING,
            lost_usd=self.lost_openings * self._usd_per_opening,
            cost_seconds=self.estimate_seconds + compared,
            cost_usd=self.estimate_usd + price(self.prices, seconds=compared),
            on_s3=self.on_s3,
        )

    @property
    def net_benefit(self) -> NetBenefit | None:
        """Benefit and cost of a compaction at the table's prices; `None` where reads, openings or cost are unknown."""
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
    *,
    history: Commits | None = None,
) -> TableState:
    """The state of a table as its log alone tells it: everything but its health, its readers, its runs and its waiting.

    `once_cold` is the plan of the time when all of the table will be cold, and that time. Without `history`, openings are unknown.
    """
    return TableState(
        table=snapshot.table,
        version=snapshot.version,
        committed_ms=snapshot.committed_ms,
        file_count=snapshot.file_count,
        size_bytes=snapshot.size_bytes,
        deleted_rows_share=_deleted_rows_share(snapshot.files),
        openings=None if history is None else opening_steps(snapshot, plan, history),
        once_cold=OnceCold(at_ms=once_cold[0], **_figures(snapshot, once_cold[1]))
        if once_cold
        else None,
        on_s3=snapshot.on_s3,
        **_figures(snapshot, plan),
    )


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or why none is: the readers', then in the order of the policy's knobs."""
    threshold, cadence = _threshold(state, policy)
    mergeable, balance = state.mergeable_file_count, state.balance
    if state.version is None or mergeable is None:
        return Reason.NO_FACTS.explain(threshold=threshold)
    counts = {"mergeable": mergeable, "threshold": threshold}
    if mergeable > 0:
        if balance and balance.is_due:
            return Reason.DUE_READERS.explain(**balance.numbers)
        if mergeable >= threshold:
            return Explanation(Reason.DUE, counts, cadence)
        if found := _by_age(state, policy, now_ms=now_ms):
            return found
    if found := _by_deleted_rows(state, policy):
        return found
    cold = state.once_cold
    more = cadence + (
        f"; {cold.mergeable_file_count} once all of it is cold, from {utc_text(cold.at_ms)} on"
        if cold
        else ""
    )
    if mergeable == 0 or balance is None or not _trusts_readers(state):
        return Explanation(Reason.BELOW_THRESHOLD, counts, more)
    return Explanation(Reason.READERS_LOSE_LITTLE, {**balance.numbers, **counts}, more)


def is_due(finding: Explanation) -> bool:
    """Whether a trigger is reached."""
    return finding.reason in (
        Reason.DUE_READERS,
        Reason.DUE,
        Reason.DUE_AGE,
        Reason.DUE_DELETED_ROWS,
    )


def net_benefit_cells(net_benefit: NetBenefit | None) -> tuple[str, ...]:
    """A day's benefit, the cost and their ratio, as cells of a table; `-` where they are unknown."""
    if net_benefit is None:
        return ("-",) * 3
    return tuple(
        f"{usd:.3g}"
        for usd in (net_benefit.benefit_usd_per_day, net_benefit.cost_usd, net_benefit.ratio)
    )


def slowdown_of(seconds: Sequence[float]) -> float | None:
    """The share by which the newest five runs took longer than those before (negative: faster).

    `seconds` are durations of runs of one kind, oldest first. The base is the median, so that one
    run that waited for something does not distort it. `None` if there are too few runs.
    """
    newest = seconds[-_ROLLING_RUNS:]
    before = seconds[:-_ROLLING_RUNS]
    if len(before) < _ROLLING_RUNS or not median(before) > 0:
        return None
    return fmean(newest) / median(before) - 1


def _figures(snapshot: Snapshot, plan: CompactionPlan) -> dict[str, Any]:
    """The figures of a state that a plan changes, by name."""
    return {
        "mergeable_file_count": plan.mergeable_file_count,
        "mergeable_bytes": plan.bytes_removed,
        "files_after": snapshot.file_count - plan.files_removed + plan.files_added,
        "oldest_small_ms": min(
            (file.modified_ms for bin_ in plan.bins for file in bin_.files if not file.compacted),
            default=None,
        ),
        "purged_row_count": sum(
            file.deleted_row_count for bin_ in plan.bins for file in bin_.files
        ),
        "estimate_seconds": plan.estimate.seconds,
        "estimate_usd": plan.estimate.usd,
        "comparison_seconds": plan.estimate.comparison_seconds
        if plan.policy.verify == "content"
        else 0.0,
    }


def _trusts_readers(state: TableState) -> bool:
    """Whether the losses of the readers decide: they are known, and so is what they could have been spared."""
    return state.readers != "unknown" and state.openings is not None


def _bound_times(state: TableState, policy: Compaction) -> int:
    """The multiple of the knobs' numbers of files and hours for which a table may wait for its readers' losses."""
    if not _trusts_readers(state):
        return 1
    return policy.bound_times if state.readers == "declared" else _SEEN_READERS


def _threshold(state: TableState, policy: Compaction) -> tuple[int, str]:
    """The mergeable files that make a compaction due in any case, and why so many; empty where the policy's own word says it."""
    declared, slowdown = policy.min_small_files * _bound_times(state, policy), state.slowdown
    why = (
        ""
        if _trusts_readers(state) or not state.mergeable_file_count
        else " (its readers are unknown)"
    )
    if slowdown is None or slowdown < _SLOWDOWN_SHARE:
        return declared, why
    wanted = max(
        _FEWEST_FILES, round(declared / 2 ** min(_MOST_HALVINGS, int(slowdown / _SLOWDOWN_SHARE)))
    )
    if wanted == declared:
        return declared, why
    return (
        wanted,
        f" ({wanted} for {declared}, since its readers take {slowdown:.0%} longer than they used to)",
    )


def _by_age(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation | None:
    limit = policy.max_small_file_age_hours * _bound_times(state, policy)
    if not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / HOUR_MS
    return (
        None
        if hours < limit
        else Reason.DUE_AGE.explain(
            mergeable=state.mergeable_file_count, hours=f"{hours:.1f}", limit=f"{limit:g}"
        )
    )


def _by_deleted_rows(state: TableState, policy: Compaction) -> Explanation | None:
    """Only where the plan takes some of them out: a layout may leave them where they are, and a warm partition does."""
    limit, share = policy.purge_deleted_rows_share, state.deleted_rows_share
    if not limit or share is None or share < limit or not state.purged_row_count:
        return None
    return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{limit:.0%}")


def _deleted_rows_share(files: Sequence[DataFile]) -> float | None:
    """The share of the stored rows that deletion vectors hide; `None` where a file does not tell how many rows it has."""
    counts = [file.row_count for file in files if file.row_count is not None]
    if len(counts) < len(files):
        return 0.0 if all(file.deletion_vector is None for file in files) else None
    return sum(file.deleted_row_count for file in files) / sum(counts) if sum(counts) else 0.0
