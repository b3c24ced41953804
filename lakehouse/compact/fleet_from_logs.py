"""Reads the fleet for the terminal and the metrics without Dagster: from Delta logs and the
lake's operations.

Loading Dagster would take longer than all other work, so facts that only Dagster has are omitted:
running compactions, earlier attempts at a version, waiting times and money spent. Instead of the
runs of readers, each commit of a downstream table counts as a read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Operation
from lakehouse.base.reasons import Reason
from lakehouse.base.text import DAY_MS
from lakehouse.compact.noted_files import plan_with_notes
from lakehouse.compact.plan.circuit_breaker import find_rewrites, tries_of
from lakehouse.compact.plan.compaction import CompactionPlan, plan_table
from lakehouse.compact.plan.decision import Decision, RunState, TableState, state_of
from lakehouse.compact.plan.fleet import Bounds, FleetTable, decide_fleet
from lakehouse.compact.plan.health import Health, ReaderRun, Readers, assess_health, count_reads
from lakehouse.compact.skip_reasons import without_spark
from lakehouse.compact.table_health import last_compaction_ms
from lakehouse.compact.tries import failed_tries
from lakehouse.declare.table import Table
from lakehouse.delta.commits import moves_rows
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.lake.find_tables import facts_of
from lakehouse.lake.lake import Lake
from lakehouse.lake.pauses import pause_of
from lakehouse.lake.read_each_table import Found, for_each_table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """One table, according to its log and the lake's operations.

    `known` contains the facts on which the sensor's decision is based. `written_ms` contains the
    times at which rows changed, as far back as the history in `TableFacts` goes.
    """

    health: Health
    known: FleetTable
    written_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """The tables' readings, in the given order, and the decisions, in the sensor's order."""

    tables: tuple[Found[TableReading], ...]
    decisions: tuple[Decision, ...]

    @property
    def operations(self) -> list[Operation]:
        """What a compaction would do to each table, in the order of `tables`."""
        decisions = {each.table: each for each in self.decisions}
        return [_operation(each, decisions[each.table.key]) for each in self.tables]


def read_fleet(
    lake: Lake,
    declared: Mapping[str, Table],
    tables: Sequence[Table],
    *,
    on_facts: Callable[[Table, TableFacts], None] | None = None,
) -> FleetReading:
    """Reads the tables and decides as the sensor would if no run were in progress.

    `declared` maps the keys of all tables of the lake to their declarations. Tables derived from
    `tables` count as readers. `on_facts` is called with the facts of each table, in any thread, so
    that a caller that needs further facts does not have to read a log again.
    """
    now = now_ms()

    def read(table: Table) -> TableReading | None:
        facts = facts_of(lake, table)
        if facts is None:
            return None
        if on_facts is not None:
            on_facts(table, facts)
        return _reading(lake, table, facts, now)

    readings = for_each_table(tables, read)
    fleet_tables = list[FleetTable]()
    written_ms = dict[str, Sequence[int]]()
    for each in readings:
        unknown = FleetTable(table=each.table, state=TableState(table=each.table.key))
        fleet_tables.append(each.value.known if each.value else unknown)
        written_ms[each.table.key] = each.value.written_ms if each.value else ()
    readers = _readers(lake, declared, written_ms, now)
    bounds = Bounds(
        slots=lake.settings.compaction_slots, budget_usd=lake.settings.compaction_budget_usd
    )
    fleet = decide_fleet(fleet_tables, readers, RunState(), bounds=bounds, now_ms=now)
    return FleetReading(tables=tuple(readings), decisions=fleet.decisions)


def _readers(
    lake: Lake, declared: Mapping[str, Table], written_ms: Mapping[str, Sequence[int]], now: int
) -> Mapping[str, Readers]:
    """How often each table is read. Each commit of a derived table counts as one read.

    `written_ms` maps the tables that were read to their commit times. The logs of other tables are
    read here if they are derived from one of these tables.
    """
    unread = list[Table]()
    for table in declared.values():
        is_derived = any(source.key in written_ms for source in table.inputs)
        if is_derived and table.key not in written_ms:
            unread.append(table)
    all_times = dict(written_ms)
    for each in for_each_table(unread, lambda table: lake.facts(table.key)):
        all_times[each.table.key] = _write_times(each.value) if each.value else ()
    runs = list[ReaderRun]()
    for key, times_ms in all_times.items():
        runs += [ReaderRun(tables=frozenset([key]), ended_ms=ended_ms) for ended_ms in times_ms]
    return count_reads(list(declared.values()), runs, since_ms=now - DAY_MS, now_ms=now)


def _write_times(facts: TableFacts) -> tuple[int, ...]:
    """The times (ms) at which commits in the table's history changed rows, other than by upkeep."""
    commits = facts.history.commits
    writes = [each for each in commits if each.changed_data and not moves_rows(each)]
    return tuple(commit.committed_ms for commit in writes)


def _reading(lake: Lake, table: Table, facts: TableFacts, now: int) -> TableReading:
    snapshot = facts.snapshot
    history = facts.history

    def plan_of(snapshot: Snapshot, factor: float | None) -> CompactionPlan:
        return plan_table(table, snapshot, history, now_ms=now, lake_factor=factor)

    plan = plan_with_notes(lake, facts, plan_of)
    health = assess_health(snapshot, plan)
    failures = failed_tries(lake, table.key)
    state = replace(
        state_of(snapshot, plan),
        health_score=health.score,
        last_compaction_ms=last_compaction_ms(history, failures),
    )
    known = FleetTable(
        table=table,
        state=state,
        tries=tries_of(history, failures),
        rewrites=find_rewrites(history),
        pause=pause_of(lake, table.key),
        hold=without_spark(table.key, state.engine),
    )
    return TableReading(health=health, known=known, written_ms=_write_times(facts))


def _operation(reading: Found[TableReading], decision: Decision) -> Operation:
    key = reading.table.key
    if reading.value is None:
        why = reading.sentence
        return Operation(operation="compact", table=key, reason=reading.reason, sentence=why)
    plan = reading.value.health.plan
    return Operation(
        operation="compact",
        table=key,
        reason=decision.reason.name,
        sentence=f"{decision.sentence}; {plan.sentence}",
        is_due=decision.due_since_ms is not None and decision.reason is not Reason.OPTED_OUT,
        size_bytes=plan.bytes_removed,
        net_benefit=decision.net_benefit,
    )
