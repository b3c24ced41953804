"""Turns the facts about all tables of a lake into decisions, and describes the decisions.

The sensor reads the facts from Dagster's events, the terminal from the Delta logs. Both call
`decide_fleet`, so the same facts give the same decisions. `table_decision` decides about one table,
and `ranking` decides which tables go first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.journal_records import CompactionTry, Pause
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.circuit_breaker import NO_REWRITES, Rewrites, assess_breaker
from lakehouse.core.scheduling.ranking import Bounds, choose_compactions
from lakehouse.core.scheduling.read_rates import Readers
from lakehouse.core.scheduling.skip_reasons import find_hold
from lakehouse.core.scheduling.table_decision import CompactionCandidate, Decision, RunState
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.text import first_names

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


def describe(decisions: Sequence[Decision], *, lines: int = _MOST_LINES) -> str:
    """The decisions in their order, in up to `lines` lines. One more line counts the others.

    Tables usually have one line each. If at least `_MANY` tables wait for the same reason, they
    share one line: the first table's sentence, and the names of the others.
    """
    shared = Counter(decision.reason for decision in decisions if not decision.request)
    groups = dict[object, list[Decision]]()
    for decision in decisions:
        is_alone = decision.request or shared[decision.reason] < _MANY
        group_key = decision.table if is_alone else decision.reason
        groups.setdefault(group_key, []).append(decision)
    texts = [_line(group) for group in [*groups.values()][:lines]]
    rest = Counter(each.reason.name for group in [*groups.values()][lines:] for each in group)
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
    state = _without_future_times(facts.state.at(now_ms), now_ms)
    state = replace(
        state,
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


def _without_future_times(state: TableState, now_ms: int) -> TableState:
    """Corrects times after `now_ms`, which were recorded before a clock was set back."""
    compacted_ms = state.last_compaction_ms
    if compacted_ms is not None and compacted_ms > now_ms:
        compacted_ms = None
    due_since_ms = state.due_since_ms
    if due_since_ms is not None:
        due_since_ms = min(due_since_ms, now_ms)
    return replace(state, last_compaction_ms=compacted_ms, due_since_ms=due_since_ms)
