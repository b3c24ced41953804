"""The fleet as the terminal sees it: the same choice as the sensor's, of what the logs and the journal tell.

Dagster is not loaded: it would take longer than all the rest. So reads are counted by the commits downstream, and what only Dagster's
records know (runs under way, earlier tries, who waits since when, what was spent) is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.cli.context import Found, LakeContext, look_at_each
from lakehouse.core.compaction.plan import CompactionPlan, plan_table
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.health import assess_health
from lakehouse.core.scheduling.ranking import Bounds, Decision, RunState, choose_compactions
from lakehouse.core.scheduling.read_rates import ReaderRun, count_reads, with_readers
from lakehouse.core.scheduling.strategy_selection import strategy_of
from lakehouse.core.scheduling.triggers import TableState, state_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.adoption.find_tables import facts_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.holds import hold_now
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import last_compaction_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """The facts from one table's log, and why it is left alone, where it is."""

    plan: CompactionPlan
    state: TableState
    written_ms: tuple[int, ...]
    held: Explanation | None


def look_at_fleet(
    opened: LakeContext, tables: Sequence[Table]
) -> tuple[list[Found[CompactionPlan]], tuple[Decision, ...]]:
    """The plans of `tables`, in order, and what the sensor would make of them with no run under way, best first."""
    now, lake = now_ms(), opened.lake
    read_whole = {source.key for table in opened.tables.values() for source in table.read_whole}
    looked = look_at_each(
        tables, lambda table: _look(lake, table, now, is_read_whole=table.key in read_whole)
    )
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    known = {each.table.key: each.value for each in looked if each.value}
    downstream = [
        each
        for each in opened.tables.values()
        if policies.keys() & {source.key for source in each.inputs}
    ]
    written = _written_ms(
        opened,
        downstream,
        {each.table.key: each.value.written_ms if each.value else () for each in looked},
    )
    runs = [
        ReaderRun(tables=frozenset([key]), ended_ms=at_ms)
        for key, times in written.items()
        for at_ms in times
    ]
    day_ago_ms = now - DAY_MS
    readers = count_reads(
        list(opened.tables.values()),
        runs,
        since_ms=day_ago_ms,
        now_ms=now,
        day_is_known=any(run.ended_ms <= day_ago_ms for run in runs),
    )
    told = {key: known[key].state if key in known else TableState(table=key) for key in policies}
    states = [
        with_readers(state, readers[key], policies[key], now_ms=now) for key, state in told.items()
    ]
    held = {key: each.held for key, each in known.items() if each.held}
    bounds = Bounds(
        slots=lake.settings.compaction_slots, budget_usd=lake.settings.compaction_budget_usd
    )
    decisions = choose_compactions(
        states, policies, RunState(), bounds=bounds, now_ms=now, hold_back=held
    )
    return [
        Found(table=each.table, value=each.value.plan if each.value else None, error=each.error)
        for each in looked
    ], decisions


def fleet_document(decision: Decision, *, rank: int) -> dict[str, Any]:
    """The documented shape of a table's place in the fleet."""
    digits = {"benefit_usd_per_day": 9, "cost_usd": 9, "ratio": 4}
    gain = decision.net_benefit
    money = {
        name: round(getattr(gain, name), places) if gain else None
        for name, places in digits.items()
    }
    return {
        "rank": rank,
        "request": decision.request,
        "reason": decision.reason.name,
        "sentence": decision.sentence,
        **money,
    }


def _write_times(facts: TableFacts) -> tuple[int, ...]:
    """The times (ms) at which rows of a table changed, as far as its log still tells."""
    return tuple(commit.committed_ms for commit in facts.history.commits if commit.changed_data)


def _written_ms(
    opened: LakeContext, tables: Sequence[Table], known: Mapping[str, Sequence[int]]
) -> dict[str, Sequence[int]]:
    """The times at which the rows of each table changed, by its log unless it is `known`; a log that cannot be read tells nothing."""
    unread = {table.key: table for table in tables if table.key not in known}
    found = look_at_each([*unread.values()], lambda table: opened.lake.facts(table.key))
    return {
        **known,
        **{each.table.key: _write_times(each.value) if each.value else () for each in found},
    }


def _look(lake: Lake, table: Table, now: int, *, is_read_whole: bool) -> _Looked | None:
    facts = facts_of(lake, table)
    if facts is None:
        return None
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now)
    failures = Journal(lake.store).tries(table.key)
    held = hold_now(lake, table, facts.history, failures=failures)
    strategy = strategy_of(plan.policy, facts.snapshot, facts.history).strategy
    # A table that nobody reads whole has no losses to be told; to model them takes a second for a million files.
    has_readers = is_read_whole or plan.policy.reads_per_day is not None
    state = replace(
        state_of(facts.snapshot, plan, history=facts.history if has_readers else None),
        health_score=assess_health(facts.snapshot, plan).score,
        last_compaction_ms=last_compaction_ms(facts.history, failures),
        sensor_driven=isinstance(strategy, BySensor),
        chosen=type(strategy).__name__,
        prices=table.prices,
    )
    return _Looked(plan=plan, state=state, written_ms=_write_times(facts), held=held)
