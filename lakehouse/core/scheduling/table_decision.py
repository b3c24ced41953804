"""Decides whether one table is compacted now, regardless of the other tables.

A trigger must be reached (`find_trigger`), nothing may hold the table back, and its present state
must need another attempt. `ranking` then gives the tables slots and budget. A compaction is due at
a number of mergeable files, at an age of the oldest of them, when the table's readers got slower
since its last compaction, or at a share of deleted rows.

Each state of a table (its version and commit time) is compacted once. An attempt that succeeded or
is under way is never repeated. A failed attempt is repeated; after `TRIES_ALLOWED` failures, only
once after each pause (`pause_hours`). An attempt that was refused before it began, or that a person
canceled, does not count: it is repeated as soon as the table may be compacted. Dagster never runs
a run key twice, even if the run failed, so the key has the attempt's number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.scheduling.circuit_breaker import TRIES_ALLOWED, pause_hours
from lakehouse.core.scheduling.table_state import NetBenefit, TableState
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInFlight:
    """A queued or running run that works on `table`, with its name in Dagster's UI."""

    table: str
    name: str
    is_compaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A compaction that the sensor requested for one version of a table.

    A `refused` or `canceled` try does not count. `committed_ms` is the commit time of the version.
    """

    table: str
    version: int
    result: Literal["succeeded", "failed", "refused", "canceled", "in flight"]
    committed_ms: int | None = None
    ended_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The runs that decisions depend on: runs under way, and earlier tries of the same versions."""

    in_flight: tuple[RunInFlight, ...] = ()
    tries: tuple[Try, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Explained):
    """The decision about one table, and why. `run_key` is set if a run is requested.

    One run compacts all requested tables with `shares_run`. `due_since_ms` is set if a trigger is
    reached, the version may be tried, and no compaction is under way; a hold does not matter.
    """

    table: str
    run_key: str | None = None
    net_benefit: NetBenefit | None = None
    due_since_ms: int | None = None
    shares_run: bool = False

    @property
    def request(self) -> bool:
        """Whether a run is requested."""
        return self.run_key is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCandidate:
    """A table that may be compacted. `hold`: the reason to skip it, if any.

    `may_share_run`: other tables may be compacted in the same run.
    """

    state: TableState
    policy: Compaction
    hold: Explanation | None = None
    may_share_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TentativeDecision:
    """The decision about a table before slots and budget are assigned.

    `decision` has a `run_key` if the table may be compacted. `finding` is the trigger, or the
    reason why no trigger is reached. `is_overdue`: the table may be compacted, and has been due for
    at least the patience.
    """

    state: TableState
    finding: Explanation
    decision: Decision
    is_overdue: bool


def decide_table(
    candidate: CompactionCandidate, runs: RunState, *, patience_ms: int, now_ms: int
) -> TentativeDecision:
    """The decision about one table, regardless of the others. `runs` are the runs of this table."""
    state = candidate.state
    policy = candidate.policy
    finding = find_trigger(state, policy, now_ms=now_ms)
    present = (state.version, state.committed_ms)
    tries_of_version = [each for each in runs.tries if (each.version, each.committed_ms) == present]
    nothing_to_do = _nothing_to_do(state, finding, tries_of_version, now_ms=now_ms)
    busy = None
    if runs.in_flight:
        busy = Reason.RUN_IN_FLIGHT.explain(runs="; ".join(run.name for run in runs.in_flight))
    waits = candidate.hold or _other_strategy(policy) or busy or nothing_to_do
    due_since_ms = None
    if nothing_to_do is None and not any(run.is_compaction for run in runs.in_flight):
        due_since_ms = now_ms if state.due_since_ms is None else state.due_since_ms
    waits = waits or _cooling_down(state, policy, finding, now_ms=now_ms)
    is_overdue = waits is None and due_since_ms is not None and now_ms - due_since_ms >= patience_ms
    decision = Decision(
        table=state.table,
        explanation=waits or finding,
        run_key=None if waits else run_key(state, len(tries_of_version) + 1),
        net_benefit=state.net_benefit,
        due_since_ms=due_since_ms,
        shares_run=candidate.may_share_run and not waits,
    )
    return TentativeDecision(state=state, finding=finding, decision=decision, is_overdue=is_overdue)


def run_key(state: TableState, number: int) -> str:
    """The run key of try `number` (from 1) of a table's present version."""
    committed = "" if state.committed_ms is None else f"/committed_ms={state.committed_ms}"
    return f"compaction/{state.table}/version={state.version}{committed}/try={number}"


def _other_strategy(policy: Compaction) -> Explanation | None:
    """The explanation that another strategy compacts the table; `None` if the sensor does."""
    if isinstance(policy.strategy, BySensor):
        return None
    return Reason.OTHER_STRATEGY.explain(strategy=type(policy.strategy).__name__)


def _nothing_to_do(
    state: TableState, finding: Explanation, tries: Sequence[Try], *, now_ms: int
) -> Explanation | None:
    """Why a free slot would not help: nothing is due, or this version needs no further try."""
    if not is_due(finding):
        return finding
    numbers = {"version": state.version, "mergeable": state.mergeable_file_count}
    if any(attempt.result in ("succeeded", "in flight") for attempt in tries):
        return Reason.ASKED_BEFORE.explain(**numbers)
    failed = [attempt.ended_ms for attempt in tries if attempt.result == "failed"]
    if len(failed) < TRIES_ALLOWED:
        return None
    until_ms = max(failed) + pause_hours(len(failed)) * HOUR_MS
    if now_ms >= until_ms:
        return None
    return Reason.TRIES_USED_UP.explain(tries=len(failed), until=until_ms, **numbers)


def _cooling_down(
    state: TableState, policy: Compaction, finding: Explanation, *, now_ms: int
) -> Explanation | None:
    if not policy.cooldown_minutes or state.last_compaction_ms is None:
        return None
    minutes = (now_ms - state.last_compaction_ms) / MINUTE_MS
    if minutes >= policy.cooldown_minutes:
        return None
    numbers = {"minutes": f"{minutes:.1f}", "cooldown": f"{policy.cooldown_minutes:g}"}
    return Reason.COOLING_DOWN.explain(why=finding.sentence, **numbers)


# A compaction is due when the readers take this share longer than after the last one. On a shared
# machine, durations of similar runs differ by less.
_SLOWDOWN_SHARE = 0.25
# Fewer files are never merged, so slower readers cannot make a compaction due.
_FEWEST_FILES = 2
_DUE = (Reason.DUE, Reason.DUE_AGE, Reason.READS_SLOWER, Reason.DUE_DELETED_ROWS)


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or the reason why no trigger is reached."""
    threshold = policy.min_small_files
    mergeable = state.mergeable_file_count
    if state.version is None or mergeable is None:
        return Reason.NO_FACTS.explain(threshold=threshold)
    counts = {"mergeable": mergeable, "threshold": threshold}
    if mergeable > 0 and mergeable >= threshold:
        return Reason.DUE.explain(**counts)
    trigger = (
        _by_age(state, policy, mergeable, now_ms=now_ms)
        or _by_slower_reads(state, mergeable)
        or _by_deleted_rows(state, policy)
    )
    if trigger is not None:
        return trigger
    note = ""
    cold = state.once_cold
    if cold:
        at = utc_text(cold.at_ms)
        note = f"; {cold.mergeable_file_count} once all of it is cold, from {at} on"
    return Explanation(Reason.BELOW_THRESHOLD, counts, note)


def is_due(finding: Explanation) -> bool:
    """Whether a trigger is reached."""
    return finding.reason in _DUE


def _by_age(
    state: TableState, policy: Compaction, mergeable: int, *, now_ms: int
) -> Explanation | None:
    limit = policy.max_small_file_age_hours
    if not mergeable or not limit or state.oldest_small_ms is None:
        return None
    hours = (now_ms - state.oldest_small_ms) / HOUR_MS
    if hours < limit:
        return None
    return Reason.DUE_AGE.explain(mergeable=mergeable, hours=f"{hours:.1f}", limit=f"{limit:g}")


def _by_slower_reads(state: TableState, mergeable: int) -> Explanation | None:
    slowdown = state.slowdown
    if slowdown is None or slowdown < _SLOWDOWN_SHARE or mergeable < _FEWEST_FILES:
        return None
    return Reason.READS_SLOWER.explain(slowdown=f"{slowdown:.0%}", mergeable=mergeable)


def _by_deleted_rows(state: TableState, policy: Compaction) -> Explanation | None:
    """The trigger of deleted rows, reached only if the plan removes some of them from storage."""
    limit = policy.purge_deleted_rows_share
    share = state.deleted_rows_share
    if not limit or share is None or share < limit or not state.purged_row_count:
        return None
    return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{limit:.0%}")
