"""Ranks all tables and decides which of them are compacted in this tick.

Each state of a table (its version and commit time) is compacted once. An attempt that succeeded or
is under way is never repeated. A failed attempt is repeated; after `TRIES_ALLOWED` failures, only
once after each pause (`pause_hours`). An attempt that was refused before it began, or that a person
canceled, does not count: it is repeated as soon as the table may be compacted. Dagster never runs
a run key twice, even if the run failed, so the key has the attempt's number.

The due table with the most benefit for its cost goes first (`NetBenefit`). Among equal tables, the
worst health score goes first. A table that has been due for at least `Bounds.patience_ms` comes
before all tables that have waited less. So, in cycles of an hour:

- With n tables due and s slots, a table that stays due is served within patience + ceil(n / s)
  cycles. Tables that deltalake compacts share a run, and so a slot.
- With a budget, a table that stays due is served within patience + n cycles, even if the budget is
  below the cost of one table. A table over its patience may overdraw the budget. So each cycle
  serves at least the table that has waited longest, and exceeds the budget by at most its cost.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import BySensor, Chosen
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.scheduling.circuit_breaker import TRIES_ALLOWED, pause_hours
from lakehouse.core.scheduling.table_state import NetBenefit, TableState
from lakehouse.core.scheduling.triggers import find_trigger, is_due
from lakehouse.core.text import first_names
from lakehouse.core.units import HOUR_MS, MINUTE_MS

CYCLE_MS = HOUR_MS
SHARED_RUN_SECONDS = 60  # the most estimated seconds of a run that compacts several tables in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInFlight:
    """A queued or running run that works on `table`, with its name in Dagster's UI.

    If the run waits for a pool slot, `wait` names the runs that hold the slot.
    """

    table: str
    name: str
    is_compaction: bool
    wait: str = ""

    @property
    def text(self) -> str:
        """The run's name, and what it waits for."""
        return f"{self.name} {self.wait}" if self.wait else self.name


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
class Bounds:
    """The bounds of one cycle.

    At most `slots` runs compact at once. The predicted cost per hour is at most `budget_usd` (0: no
    limit); the last hour has spent `spent_usd`. A table due for `patience_ms` or longer goes first.
    """

    slots: int = 1
    budget_usd: float = 0.0
    spent_usd: float = 0.0
    patience_ms: int = CYCLE_MS


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
class _Weighed:
    """A table before slots and budget are assigned. Its decision has a `run_key` if it may run."""

    state: TableState
    finding: Explanation
    decision: Decision
    overdue: bool


def choose_compactions(
    candidates: Iterable[CompactionCandidate], runs: RunState, *, bounds: Bounds, now_ms: int
) -> tuple[Decision, ...]:
    """One decision per table, in the order in which they are served; without facts, last.

    Each run that compacts takes one of `bounds.slots`, unless the run waits for its table's pool.
    """
    in_flight = defaultdict[str, list[RunInFlight]](list)
    for run in runs.in_flight:
        in_flight[run.table].append(run)
    tries = defaultdict[str, list[Try]](list)
    for attempt in runs.tries:
        tries[attempt.table].append(attempt)
    weighed: list[_Weighed] = []
    for candidate in candidates:
        key = candidate.state.table
        own = RunState(in_flight=tuple(in_flight[key]), tries=tuple(tries[key]))
        weighed.append(_weigh(candidate, own, bounds.patience_ms, now_ms))
    running = [run for run in runs.in_flight if run.is_compaction and not run.wait]
    free_slots = bounds.slots - len({run.name for run in running})
    spent_usd = bounds.spent_usd
    shared_seconds = list[float]()  # the estimates of the tables in the shared run
    decisions: list[Decision] = []
    for each in sorted(weighed, key=_order):
        left_usd = max(0.0, bounds.budget_usd - spent_usd)
        seconds = each.state.estimate_seconds or 0.0
        may_share = each.decision.shares_run and sum(shared_seconds) + seconds <= SHARED_RUN_SECONDS
        joins_shared_run = may_share and bool(shared_seconds)  # the shared run already has its slot
        has_slot = joins_shared_run or free_slots >= 1
        decision = _served(each, bounds, running, has_slot=has_slot, left_usd=left_usd)
        shares_run = decision.request and may_share
        if shares_run:
            shared_seconds.append(seconds)
        if decision.request:
            free_slots -= 0 if joins_shared_run else 1
            spent_usd += each.state.estimate_usd or 0.0
        decisions.append(replace(decision, shares_run=shares_run))
    return tuple(decisions)


def run_key(state: TableState, number: int) -> str:
    """The run key of try `number` (from 1) of a table's present version."""
    committed = "" if state.committed_ms is None else f"/committed_ms={state.committed_ms}"
    return f"compaction/{state.table}/version={state.version}{committed}/try={number}"


def _weigh(
    candidate: CompactionCandidate, runs: RunState, patience_ms: int, now_ms: int
) -> _Weighed:
    """The decision about one table, regardless of the others. `runs` has only its own runs."""
    state = candidate.state
    policy = candidate.policy
    finding = find_trigger(state, policy, now_ms=now_ms)
    present = (state.version, state.committed_ms)
    tries_of_version = [each for each in runs.tries if (each.version, each.committed_ms) == present]
    nothing_to_do = _nothing_to_do(state, finding, tries_of_version, now_ms=now_ms)
    busy = None
    if runs.in_flight:
        busy = Reason.RUN_IN_FLIGHT.explain(runs="; ".join(run.text for run in runs.in_flight))
    waits = candidate.hold or _other_strategy(state, policy) or busy or nothing_to_do
    due_since_ms = None
    if nothing_to_do is None and not any(run.is_compaction for run in runs.in_flight):
        due_since_ms = now_ms if state.due_since_ms is None else state.due_since_ms
    waits = waits or _cooling_down(state, policy, finding, now_ms=now_ms)
    overdue = waits is None and due_since_ms is not None and now_ms - due_since_ms >= patience_ms
    decision = Decision(
        table=state.table,
        explanation=waits or finding,
        run_key=None if waits else run_key(state, len(tries_of_version) + 1),
        net_benefit=state.net_benefit,
        due_since_ms=due_since_ms,
        shares_run=candidate.may_share_run and not waits,
    )
    return _Weighed(state=state, finding=finding, decision=decision, overdue=overdue)


def _other_strategy(state: TableState, policy: Compaction) -> Explanation | None:
    """The explanation that another strategy compacts the table; `None` if the sensor does."""
    strategy = policy.strategy
    if isinstance(strategy, BySensor) or (isinstance(strategy, Chosen) and state.sensor_driven):
        return None
    name = type(strategy).__name__
    if isinstance(strategy, Chosen) and state.chosen:
        name = f"{state.chosen}, which {name} has chosen"
    return Reason.OTHER_STRATEGY.explain(strategy=name)


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


def _order(weighed: _Weighed) -> tuple[object, ...]:
    """Sorts overdue tables by waiting time, then due tables by benefit, then tables not due."""
    state = weighed.state
    benefit = weighed.decision.net_benefit
    ratio = benefit.ratio if benefit else 0.0
    health = 100.0 if state.health_score is None else state.health_score
    waited = (0, weighed.decision.due_since_ms or 0) if weighed.overdue else (1, 0)
    is_unknown = weighed.finding.reason is Reason.NO_FACTS
    mergeable = state.mergeable_file_count or 0
    due = is_due(weighed.finding)
    return (*waited, not due, is_unknown, -ratio, health, -mergeable, state.table)


def _served(
    weighed: _Weighed,
    bounds: Bounds,
    running: Sequence[RunInFlight],
    *,
    has_slot: bool,
    left_usd: float,
) -> Decision:
    """The decision about a table once slots and budget are assigned.

    Each table needs a slot. An overdue table is served while any budget is left. Any other table
    must fit into the rest of the budget. If its cost is unknown, it does not fit.
    """
    decision = weighed.decision
    usd = weighed.state.estimate_usd
    fits_budget = usd is not None and usd <= left_usd
    if weighed.overdue:
        fits_budget = left_usd > 0
    if not decision.request:
        return decision
    if not has_slot:
        by_run = defaultdict[str, list[str]](list)
        for run in running:
            by_run[run.name].append(run.table)
        names = ", ".join(f"{name} of {first_names(keys)}" for name, keys in by_run.items())
        waits = Reason.NO_SLOT.explain(
            why=decision.sentence, slots=bounds.slots, runs=f" (now {names})" if names else ""
        )
    elif bounds.budget_usd and not fits_budget:
        cost = "unknown" if usd is None else f"{usd:.3g}"
        left = f"{left_usd:.3g} of the hourly {bounds.budget_usd:g} USD are left"
        said = f"but it costs {cost} USD, and only {left}"
        waits = Reason.OVER_BUDGET.explain(why=decision.sentence, said=said)
    else:
        return decision
    return replace(decision, explanation=waits, run_key=None)
