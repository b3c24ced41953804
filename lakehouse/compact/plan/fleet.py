"""Ranks the tables of a lake, decides which are compacted in this tick, and says why.

Whether a table is to be compacted at all is decided before, in `compact/plan/decision.py`.

The due table with the most benefit for its cost goes first (`NetBenefit`). Among equal tables, the
worst health score goes first. A table that has been due for at least `Bounds.patience_ms` comes
before all tables that have waited less. So, in cycles of an hour:

- With n tables due and s slots, a table that stays due is served within patience + ceil(n / s)
  cycles. Tables that deltalake compacts share a run, and so a slot.
- With a budget, a table that stays due is served within patience + n cycles, even if the budget is
  below the cost of one table. A table over its patience may overdraw the budget. So each cycle
  serves at least the table that has waited longest, and exceeds the budget by at most its cost.

The sensor reads the facts from Dagster's events, the terminal from the Delta logs. Both call
`decide_fleet`, so the same facts give the same decisions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import HOUR_MS, first_names, usd_text
from lakehouse.compact.plan.circuit_breaker import NO_REWRITES, Rewrites, assess_breaker
from lakehouse.compact.plan.decision import (
    CompactionCandidate,
    Decision,
    RunInFlight,
    RunState,
    TableState,
    TentativeDecision,
    Try,
    decide_table,
    find_hold,
    is_due,
)
from lakehouse.compact.plan.health import Readers
from lakehouse.declare.compaction import policy_for
from lakehouse.declare.journal_records import CompactionTry, Pause
from lakehouse.declare.table import Table

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


# After this many lines, the remaining tables are only counted.
_MOST_LINES = 60
# If at least this many tables wait for the same reason, they share a line.
_MANY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTable:
    """The facts about one table.

    - `tries`: earlier attempts to compact the table.
    - `hold`: a reason to skip the table that the other facts do not show.
    - `shared_a_run`: a run for several tables has already been requested for this state.
    """

    table: Table
    state: TableState
    tries: tuple[CompactionTry, ...] = ()
    rewrites: Rewrites = NO_REWRITES
    pause: Pause | None = None
    hold: Explanation | None = None
    shared_a_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The state of each table by its key, and one decision per table, the first to serve first."""

    states: Mapping[str, TableState]
    decisions: tuple[Decision, ...]


def decide_fleet(
    tables: Sequence[FleetTable],
    readers: Mapping[str, Readers],
    runs: RunState,
    *,
    bounds: Bounds,
    now_ms: int,
) -> Fleet:
    """Ranks the tables and decides which of them are compacted now."""
    candidates = [_candidate(each, readers[each.table.key], now_ms) for each in tables]
    return Fleet(
        states={each.state.table: each.state for each in candidates},
        decisions=choose_compactions(candidates, runs, bounds=bounds, now_ms=now_ms),
    )


def describe(decisions: Sequence[Decision]) -> str:
    """The decisions in their order, in up to `_MOST_LINES` lines. One more line counts the others.

    Tables usually have one line each. If at least `_MANY` tables wait for the same reason, they
    share one line: the first table's sentence, and the names of the others.
    """
    shared = Counter(decision.reason for decision in decisions if not decision.request)
    groups = dict[object, list[Decision]]()
    for decision in decisions:
        is_alone = decision.request or shared[decision.reason] < _MANY
        group_key = decision.table if is_alone else decision.reason
        groups.setdefault(group_key, []).append(decision)
    texts = [_line(group) for group in [*groups.values()][:_MOST_LINES]]
    rest = Counter(each.reason.name for group in [*groups.values()][_MOST_LINES:] for each in group)
    if rest:
        counts = ", ".join(f"{count} {name}" for name, count in rest.most_common())
        texts.append(f"and {rest.total()} more: {counts}")
    # If a page joins the lines, the semicolons separate them.
    return ";\n".join(texts)


def _line(group: Sequence[Decision]) -> str:
    """The decision about one table, or about several with the same reason."""
    first, *others = group
    if not others:
        benefit = first.net_benefit
        gain = f" ({benefit.sentence})" if benefit and benefit.cost_usd else ""
        return f"{first.table}: {first.sentence}{gain}"
    if all(each.sentence == first.sentence for each in others):
        return f"{first_names([each.table for each in group])}: {first.sentence}"
    names = first_names([each.table for each in others])
    return f"{first.table}: {first.sentence}; {first.reason.name}, too: {names}"


def _candidate(facts: FleetTable, readers: Readers, now_ms: int) -> CompactionCandidate:
    table = facts.table
    policy = policy_for(table.layer, table.compaction)
    breaker = assess_breaker(facts.tries, facts.rewrites, now_ms)
    hold = find_hold(table, pause=facts.pause, breaker=breaker, now_ms=now_ms)
    state = replace(
        facts.state.at(now_ms),
        prices=table.prices,
        reads_per_day=readers.reads_per_day,
        slowdown=readers.slowdown,
    )
    return CompactionCandidate(
        state=state,
        policy=policy,
        hold=facts.hold or hold,
        may_share_run=state.engine == "deltalake" and not facts.shared_a_run,
    )
