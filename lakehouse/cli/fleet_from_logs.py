"""The fleet as the terminal sees it: the same choice as the sensor's, of what the logs and the journal tell.

Dagster is not loaded: it would take longer than all the rest. So reads are counted by the commits downstream, and what only Dagster's
records know (runs under way, earlier tries, who waits since when, what was spent) is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.cli.context import Found, LakeContext, look_at_each
from lakehouse.core.backtest.bill import Bill
from lakehouse.core.backtest.hindsight import bills_of_log
from lakehouse.core.compaction.plan import CompactionPlan, plan_table
from lakehouse.core.declaration.compaction_policy import Compaction, policy_for
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.health import assess_health
from lakehouse.core.scheduling.ranking import Bounds, Decision, RunState, choose_compactions
from lakehouse.core.scheduling.read_rates import ReaderRun, count_reads, with_readers
from lakehouse.core.scheduling.strategy_selection import strategy_of
from lakehouse.core.scheduling.triggers import TableState, state_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.adoption.find import facts_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.hold_back import hold_back_now, probed_of
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import last_compaction_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What one table's log tells, and why it is left alone, where it is."""

    plan: CompactionPlan
    state: TableState
    history: Commits
    held: Explanation | None


def look_at_fleet(opened: LakeContext, tables: Sequence[Table]) -> tuple[list[Found[CompactionPlan]], tuple[Decision, ...]]:
    """The plans of `tables`, in order, and what the sensor would make of them with no run under way, best first."""
    now, lake = now_ms(), opened.lake
    read_whole = {source.key for table in opened.tables.values() for source in table.read_whole}
    looked = look_at_each(tables, lambda table: _look(lake, table, now, is_read_whole=table.key in read_whole))
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    known = {each.table.key: each.value for each in looked if each.value}
    readers = count_reads(list(opened.tables.values()), _reader_runs(opened, known, tables), since_ms=now - DAY_MS, now_ms=now)
    states = [
        with_readers(known[key].state if key in known else TableState(table=key), readers[key], policies[key], now_ms=now)
        for key in policies
    ]
    held = {key: each.held for key, each in known.items() if each.held}
    settings = lake.settings
    bounds = Bounds(slots=settings.compaction_slots, budget_usd=settings.compaction_budget_usd)
    decisions = choose_compactions(states, policies, RunState(), bounds=bounds, now_ms=now, hold_back=held)
    return [Found(table=each.table, value=each.value.plan if each.value else None, error=each.error) for each in looked], decisions


def fleet_document(decision: Decision, *, rank: int) -> dict[str, Any]:
    """The documented shape of a table's place in the fleet."""
    net_benefit = decision.net_benefit
    return {
        "rank": rank,
        "request": decision.request,
        "reason": decision.reason.name,
        "sentence": decision.sentence,
        "benefit_usd_per_day": round(net_benefit.benefit_usd_per_day, 9) if net_benefit else None,
        "cost_usd": round(net_benefit.cost_usd, 9) if net_benefit else None,
        "ratio": round(net_benefit.ratio, 4) if net_benefit else None,
    }


def bills_of(
    opened: LakeContext, table: Table, facts: TableFacts, policy: Compaction, read: Callable[[str], TableFacts | None]
) -> tuple[Bill, Bill]:
    """The real bill of a table whose policy tells its `reads_per_day`, and the best one; `read` gives the logs of its readers."""
    return bills_of_log(
        facts,
        policy,
        prices=table.prices,
        now_ms=now_ms(),
        reads_per_day=policy.reads_per_day or 0.0,
        read_ms=_read_times(opened, table, read),
        opening_seconds=probed_of(opened.lake, table).opening_seconds,
    )


def _read_times(opened: LakeContext, table: Table, read: Callable[[str], TableFacts | None]) -> tuple[int, ...]:
    """The times (ms) of the commits of tables that read all of this one, by `read`; a log that cannot be read tells none."""
    readers = [each for each in opened.tables.values() if table.key in {source.key for source in each.read_whole}]
    facts = [each.value for each in look_at_each(readers, lambda reader: read(reader.key)) if each.value]
    return tuple(commit.committed_ms for each in facts for commit in each.history.commits if commit.changed_data)


def _look(lake: Lake, table: Table, now: int, *, is_read_whole: bool) -> _Looked | None:
    facts = facts_of(lake, table)
    if facts is None:
        return None
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now)
    failures = Journal(lake.store).tries(table.key)
    probed = probed_of(lake, table)
    held = hold_back_now(lake, table, facts.history, failures=failures, probed=probed)
    strategy = strategy_of(plan.policy, facts.snapshot, facts.history).strategy
    # Where nobody reads the table whole, there are no losses to be told; to model them takes a second for a million files.
    has_readers = is_read_whole or plan.policy.reads_per_day is not None
    state = replace(
        state_of(facts.snapshot, assess_health(facts.snapshot, plan), history=facts.history if has_readers else None),
        last_compaction_ms=last_compaction_ms(facts.history, failures),
        sensor_driven=isinstance(strategy, BySensor),
        chosen=type(strategy).__name__,
        prices=table.prices,
        opening_seconds=probed.opening_seconds,
    )
    return _Looked(plan=plan, state=state, history=facts.history, held=held)


def _reader_runs(opened: LakeContext, known: dict[str, _Looked], tables: Sequence[Table]) -> list[ReaderRun]:
    """The commits that changed rows, of all tables that read one of `tables`; a log that cannot be read tells none."""
    chosen = {table.key for table in tables}
    more = [table for key, table in opened.tables.items() if key not in chosen and chosen & {source.key for source in table.inputs}]
    facts = look_at_each(more, lambda table: opened.lake.facts(table.key))
    histories = {key: each.history for key, each in known.items()} | {each.table.key: each.value.history for each in facts if each.value}
    return [
        ReaderRun(tables=frozenset([key]), ended_ms=commit.committed_ms)
        for key, history in histories.items()
        for commit in history.commits
        if commit.changed_data
    ]
