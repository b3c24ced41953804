"""Ranks the tables, and assigns the slots and the budget of this tick in that order.

Whether a table is to be compacted at all is decided before, in `table_decision`.

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

from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.table_decision import (
    CompactionCandidate,
    Decision,
    RunInFlight,
    RunState,
    TentativeDecision,
    Try,
    decide_table,
    is_due,
)
from lakehouse.core.text import first_names, usd_text
from lakehouse.core.units import HOUR_MS

CYCLE_MS = HOUR_MS
SHARED_RUN_SECONDS = 60  # the most estimated seconds of a run that compacts several tables in turn


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


def choose_compactions(
    candidates: Iterable[CompactionCandidate], runs: RunState, *, bounds: Bounds, now_ms: int
) -> tuple[Decision, ...]:
    """One decision per table, in the order of service. Tables without facts come last.

    Each run that compacts takes one of `bounds.slots`, unless the run waits for its table's pool.
    """
    in_flight = defaultdict[str, list[RunInFlight]](list)
    for run in runs.in_flight:
        in_flight[run.table].append(run)
    tries = defaultdict[str, list[Try]](list)
    for attempt in runs.tries:
        tries[attempt.table].append(attempt)
    tentative_decisions = list[TentativeDecision]()
    for candidate in candidates:
        key = candidate.state.table
        own = RunState(in_flight=tuple(in_flight[key]), tries=tuple(tries[key]))
        tentative_decisions.append(
            decide_table(candidate, own, patience_ms=bounds.patience_ms, now_ms=now_ms)
        )
    running = [run for run in runs.in_flight if run.is_compaction]
    free_slots = bounds.slots - len({run.name for run in running})
    spent_usd = bounds.spent_usd
    shared_seconds = list[float]()  # the estimates of the tables in the shared run
    decisions: list[Decision] = []
    for each in sorted(tentative_decisions, key=_order):
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


def _order(tentative: TentativeDecision) -> tuple[object, ...]:
    """Sorts overdue tables by waiting time, then due tables by benefit, then tables not due."""
    state = tentative.state
    benefit = tentative.decision.net_benefit
    ratio = benefit.ratio if benefit else 0.0
    health = 100.0 if state.health_score is None else state.health_score
    waited = (0, tentative.decision.due_since_ms or 0) if tentative.is_overdue else (1, 0)
    is_unknown = tentative.finding.reason is Reason.NO_FACTS
    mergeable = state.mergeable_file_count or 0
    due = is_due(tentative.finding)
    return (*waited, not due, is_unknown, -ratio, health, -mergeable, state.table)


def _served(
    tentative: TentativeDecision,
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
    decision = tentative.decision
    usd = tentative.state.estimate_usd
    fits_budget = usd is not None and usd <= left_usd
    if tentative.is_overdue:
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
        waits = Reason.OVER_BUDGET.explain(
            why=decision.sentence,
            cost="unknown" if usd is None else usd_text(usd),
            left=usd_text(left_usd),
            limit=f"{bounds.budget_usd:g}",
        )
    else:
        return decision
    return replace(decision, explanation=waits, run_key=None)
