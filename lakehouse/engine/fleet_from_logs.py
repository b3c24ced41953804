"""Reads the fleet for the terminal and the metrics: only from Delta logs and the journal.

Loading Dagster would take longer than all other work. Therefore each commit of a downstream table
counts as a read, and facts that only Dagster has are omitted: running compactions, earlier attempts
at a version, waiting times and money spent.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakehouse.core.compaction.plan import CompactionPlan, plan_table
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import moves_rows
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.scheduling.circuit_breaker import find_rewrites, tries_of
from lakehouse.core.scheduling.fleet import (
    FleetTable,
    decide_fleet,
    has_budgets,
    within_budgets,
)
from lakehouse.core.scheduling.health import Health, assess_health
from lakehouse.core.scheduling.ranking import Bounds, Decision, RunState
from lakehouse.core.scheduling.read_rates import ReaderRun, Readers, count_reads
from lakehouse.core.scheduling.strategy_selection import strategy_of
from lakehouse.core.scheduling.table_state import TableState, state_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.adoption.find_tables import facts_of
from lakehouse.engine.clock import now_ms
from lakehouse.engine.commit_safety import spark_commits_conditionally
from lakehouse.engine.each_table import Found, for_each_table
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import last_compaction_ms
from lakehouse.engine.tiers.cold_files import plan_with_cold_files


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """One table, according to its log and the journal.

    `known` are the facts on which the sensor's decision is based. `written_ms` are the times at
    which rows changed, as far back as the log goes.
    """

    health: Health
    known: FleetTable
    written_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """The tables' readings, in the given order, and one decision per table, the best first."""

    tables: tuple[Found[TableReading], ...]
    decisions: tuple[Decision, ...]

    @property
    def plans(self) -> list[Found[CompactionPlan]]:
        """The tables' plans, in order."""
        return [
            Found(
                table=each.table,
                value=each.value.health.plan if each.value else None,
                error=each.error,
            )
            for each in self.tables
        ]


def read_fleet(
    lake: Lake,
    declared: Mapping[str, Table],
    tables: Sequence[Table],
    *,
    on_facts: Callable[[Table, TableFacts], None] | None = None,
) -> FleetReading:
    """Reads the tables and decides as the sensor would if no run were in progress.

    `declared` are all tables of the lake, by key. Tables derived from `tables` count as readers.
    `on_facts` is called with the facts of each table, in any thread. A caller that needs further
    facts can keep them, and does not have to read a log again.
    """
    now = now_ms()
    read_whole = {source.key for table in declared.values() for source in table.read_whole}

    def read(table: Table) -> TableReading | None:
        facts = facts_of(lake, table)
        if facts is None:
            return None
        if on_facts is not None:
            on_facts(table, facts)
        return _reading(lake, table, facts, now, is_read_whole=table.key in read_whole)

    readings = for_each_table(tables, read)
    known = [
        each.value.known
        if each.value
        else FleetTable(table=each.table, state=TableState(table=each.table.key))
        for each in readings
    ]
    written_ms = {each.table.key: each.value.written_ms if each.value else () for each in readings}
    readers = _readers(lake, declared, written_ms, now)
    bounds = Bounds(
        slots=lake.settings.compaction_slots, budget_usd=lake.settings.compaction_budget_usd
    )
    budgeted = within_budgets(known, _unspent_usd(lake, declared, now))
    fleet = decide_fleet(budgeted, readers, RunState(), bounds=bounds, now_ms=now)
    return FleetReading(tables=tuple(readings), decisions=fleet.decisions)


def _unspent_usd(lake: Lake, declared: Mapping[str, Table], now: int) -> Mapping[str, float]:
    """Each monthly budget minus its forecast; empty if the ledger cannot be read."""
    if not has_budgets(declared.values(), lake.settings.budgets):
        return {}
    from lakehouse.engine.costs.read_ledger import read_budgets

    with suppress(LakehouseError):
        return read_budgets(lake, declared, now_ms=now).left_usd
    return {}


def _readers(
    lake: Lake, declared: Mapping[str, Table], written_ms: Mapping[str, Sequence[int]], now: int
) -> Mapping[str, Readers]:
    """How often each table is read. Each commit of a derived table counts as one read.

    `written_ms` are the tables' commit times.
    """
    unread = [
        table
        for table in declared.values()
        if table.key not in written_ms and written_ms.keys() & {each.key for each in table.inputs}
    ]
    times = dict(written_ms)
    for each in for_each_table(unread, lambda table: lake.facts(table.key)):
        times[each.table.key] = _write_times(each.value) if each.value else ()
    runs = [
        ReaderRun(tables=frozenset([key]), ended_ms=at_ms)
        for key, ended in times.items()
        for at_ms in ended
    ]
    day_ago_ms = now - DAY_MS
    return count_reads(
        list(declared.values()),
        runs,
        since_ms=day_ago_ms,
        now_ms=now,
        day_is_known=any(run.ended_ms <= day_ago_ms for run in runs),
    )


def _write_times(facts: TableFacts) -> tuple[int, ...]:
    """The times (ms) at which a run wrote rows of a table, as far back as the log goes."""
    writes = (each for each in facts.history.commits if each.changed_data and not moves_rows(each))
    return tuple(commit.committed_ms for commit in writes)


def _reading(
    lake: Lake, table: Table, facts: TableFacts, now: int, *, is_read_whole: bool
) -> TableReading:
    snapshot = facts.snapshot
    history = facts.history

    def plan_of(snapshot: Snapshot) -> CompactionPlan:
        return plan_table(table, snapshot, history, now_ms=now)

    plan = plan_with_cold_files(lake, facts, plan_of)
    health = assess_health(snapshot, plan)
    journal = Journal(lake.store)
    failures = journal.tries(table.key)
    strategy = strategy_of(plan.policy, snapshot, history).strategy
    # Without readers, small files cause no losses, so the history is not passed: modelling the
    # losses takes a second per million files.
    has_readers = is_read_whole or plan.policy.reads_per_day is not None
    state = replace(
        state_of(snapshot, plan, history=history if has_readers else None),
        health_score=health.score,
        last_compaction_ms=last_compaction_ms(history, failures),
        sensor_driven=isinstance(strategy, BySensor),
        chosen=type(strategy).__name__,
    )
    known = FleetTable(
        table=table,
        state=state,
        tries=tries_of(history, failures),
        rewrites=find_rewrites(history),
        pause=journal.pause_of(table.key),
        spark_is_conditional=spark_commits_conditionally(lake, table.key),
    )
    return TableReading(health=health, known=known, written_ms=_write_times(facts))
