"""Assesses tables from their logs and from what the lake records about them, without Spark.

The result is a table's plan, health, failures, holds and costs, and, for several tables, the
decisions of the sensor (`read_fleet`). The rules are in `compact/plan`. The lake records:

- Attempts to compact a table that did not succeed, for the circuit breaker and the costs.
- Pauses.
- `cold_files`: files in a storage class that is slow or paid to read, of each table. For a lake on
  S3, each loaded inventory replaces these notes. Such files are not compacted.
- How long the lake's newest five compactions took, as factors of the default rates. This prices the
  first compaction of a table (`compact.plan.estimate`).

Notes about files and times that cannot be read count as empty.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.installation import is_installed
from lakehouse.base.operation import Operation, UpkeepOperation
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.compaction import CompactionPlan, plan_once_cold, plan_table
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    Decision,
    ReaderRun,
    Readers,
    TableState,
    count_reads,
    decide_fleet,
    find_hold,
    persons_hold,
    state_of,
)
from lakehouse.compact.plan.estimate import RUNS_TIMED, usd_per_opening
from lakehouse.compact.plan.health import Health, assess_health
from lakehouse.compact.plan.history import (
    NO_REWRITES,
    Account,
    account_for,
    find_rewrites,
    last_compaction_ms,
)
from lakehouse.declare.policies import Compaction
from lakehouse.declare.table import Table
from lakehouse.delta.commits import moves_rows
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Found, Lake, facts_of, for_each_table
from lakehouse.lake.state_tables import pause_of, put_records, read_operations, read_records

if TYPE_CHECKING:
    from lakehouse.vacuum.inventory.plan import Reconciliation

_COLD = "cold_files"
# Failures and speeds of this many days count. A breaker opens for a few days at most.
_DAYS = 30


def plan_now(
    lake: Lake, table: Table, facts: TableFacts, *, or_refusal: bool = False
) -> CompactionPlan:
    """The plan of a compaction now, by the table's facts and the lake's notes.

    Notes are read only if they can matter. If there is something to merge, these are cold files on
    S3, and the lake's speed if the table has no compaction. For `or_refusal`, see `plan_table`.
    """
    snapshot = facts.snapshot
    plan = partial(plan_table, table, history=facts.history, now_ms=now_ms(), or_refusal=or_refusal)
    planned = plan(snapshot)
    if planned.bins and snapshot.on_s3:
        cold_files = _cold_files(lake, table.key).get(table.key)
        if cold_files:
            snapshot = replace(snapshot, cold_files=frozenset(cold_files))
            planned = plan(snapshot)
    if not planned.bins or planned.estimate.source != "defaults":
        return planned
    factor = _lake_factor(lake, planned.engine)
    return planned if factor is None else plan(snapshot, lake_factor=factor)


def note_cold_files(lake: Lake, reconciliation: "Reconciliation") -> None:
    """Replaces the notes of all tables inside the lake with the cold files in an inventory.

    The inventory does not cover tables outside the lake, so their notes stay.
    """
    noted = _cold_files(lake)
    found = {table.table: dict(table.cold_files) for table in reconciliation.tables}
    changed = dict[tuple[str, str], Any]()
    for table in noted.keys() | found.keys():
        files = found.get(table) or None
        if table not in lake.elsewhere and files != noted.get(table):
            changed[table, ""] = files
    put_records(lake, _COLD, changed)


def _cold_files(lake: Lake, table_key: str | None = None) -> dict[str, dict[str, str]]:
    """The noted cold files of each table, or of one, with their storage classes."""
    with contextlib.suppress(LakehouseError):
        noted = read_records(lake, _COLD, table_key)
        return {table: files for (table, _), files in noted.items()}
    return {}


def _lake_factor(lake: Lake, engine: str) -> float | None:
    """The median speed of the lake's newest compactions by this engine."""
    factors = list[float]()
    with contextlib.suppress(LakehouseError):
        for operation in recent_compactions(lake):
            factor = operation.detail.get("speed_factors", {}).get(engine)
            if factor is not None:
                factors.append(factor)
    return median(factors[-RUNS_TIMED:]) if factors else None


def recent_compactions(lake: Lake, table_key: str | None = None) -> list[UpkeepOperation]:
    """The recorded compactions of the last `_DAYS`, in the order of their end.

    With `table_key`, only compactions of this table. Raises as `read_operations`.
    """
    since_ms = now_ms() - _DAYS * DAY_MS
    return read_operations(lake, table_key, kind="compaction", since_ms=since_ms)


def hold_now(lake: Lake, table: Table, facts: TableFacts | None) -> Explanation | None:
    """Why the sensor or the table's schedule must not compact the table now, or `None`.

    A person may still compact the table, unless `refuse_held` or the compaction itself refuses it.
    """
    rewrites = find_rewrites(facts.history) if facts else NO_REWRITES
    candidate = CompactionCandidate(
        state=TableState(table=table.key, rewrites=rewrites),
        policy=table.compaction_policy,
        compactions=recent_compactions(lake, table.key),
        pause=pause_of(lake, table.key),
    )
    return find_hold(candidate, now_ms())


def without_spark(table_key: str, engine: str | None) -> Explanation | None:
    """The hold of a table that only Spark can compact, where Spark is not installed; or `None`."""
    if engine != "spark" or is_installed("pyspark"):
        return None
    why = "only Spark can compact it, and Spark is not installed here"
    return Reason.RECOMMEND_ONLY.explain(why=why, table=table_key)


def refuse_held(lake: Lake, table: Table, command: str = "compact") -> None:
    """Refuses upkeep of a table that is paused, or whose declaration opts out.

    `command` is the upkeep. A declaration opts out of compactions and vacuums separately.

    Raises:
        Refused: the table is held. The message names `--anyway`, which overrides the hold.
    """
    policy = table.compaction if command == "compact" else Compaction()
    hold = persons_hold(policy, pause_of(lake, table.key), now_ms())
    why = hold.sentence if hold else ""
    if command == "vacuum" and table.vacuum.mode == "off":
        why = "its declaration says Vacuum(mode='off')"
    if why:
        raise Refused(
            f"{command} {table.key}: {why}. To run it all the same, use: "
            f"lakehouse {command} {table.key} --anyway"
        )


@frozen
class Assessment:
    """A table at one version, assessed once for its metadata, its checks and the decision about it.

    - `state`: the facts on which the decision is based, as far as log and operations show them.
    - `compactions`: the recorded compactions; `None` if they cannot be read.
    """

    facts: TableFacts
    health: Health
    state: TableState
    compactions: Sequence[UpkeepOperation] | None


def assess(
    lake: Lake,
    table: Table,
    facts: TableFacts,
    compactions: Sequence[UpkeepOperation] | None = None,
) -> Assessment:
    """Assesses a table, based on these facts, its compactions, and the current time.

    If the caller does not pass the recorded `compactions`, they are read.
    """
    # Unreadable operations must not hide what the log shows.
    with contextlib.suppress(LakehouseError):
        compactions = recent_compactions(lake, table.key) if compactions is None else compactions
    snapshot = facts.snapshot
    history = facts.history
    health = health_of(lake, table, facts)
    plan = health.plan
    cold_from_ms = None
    once_cold = None if plan.bins else plan_once_cold(table, snapshot, history, now_ms=now_ms())
    if once_cold is not None:
        cold_from_ms, plan = once_cold
    state = replace(
        state_of(snapshot, plan, cold_from_ms),
        health_score=health.score,
        last_compaction_ms=last_compaction_ms(history),
        usd_per_opening=usd_per_opening(table.prices, on_s3=snapshot.on_s3),
        rewrites=find_rewrites(history),
    )
    return Assessment(
        facts=facts,
        health=health,
        state=state,
        compactions=compactions,
    )


def health_of(lake: Lake, table: Table, facts: TableFacts) -> Health:
    """The table's health under its current policy, based on the plan of a compaction now."""
    return assess_health(facts.snapshot, plan_now(lake, table, facts, or_refusal=True))


def account_of(lake: Lake, table: Table, facts: TableFacts) -> Account:
    """The cost account up to the version of these facts, including recorded failures."""
    compactions = recent_compactions(lake, table.key)
    return account_for(facts.history, compactions, prices=table.prices, on_s3=facts.snapshot.on_s3)


@frozen
class TableReading:
    """One table, according to its log and the lake's operations.

    `known` contains the facts on which the sensor's decision is based.
    """

    health: Health
    known: CompactionCandidate


@frozen
class FleetReading:
    """The tables' readings, in the given order, and the decisions, in the sensor's order."""

    tables: Sequence[Found[TableReading]]
    decisions: Sequence[Decision]

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

    Loading Dagster would take longer than all other work, so facts that only Dagster has are
    omitted: running compactions, earlier attempts at a version, waiting times and money spent.
    Instead of the runs of readers, each commit of a downstream table counts as a read.

    `declared` maps the keys of all tables of the lake to their declarations. Tables derived from
    `tables` count as readers. `on_facts` is called with the facts of each table, in any thread, so
    that a caller that needs further facts does not have to read a log again.
    """
    now = now_ms()
    written_ms = dict[str, Sequence[int]]()

    def read(table: Table) -> TableReading | None:
        facts = facts_of(lake, table)
        written_ms[table.key] = () if facts is None else _write_times(facts)
        if facts is None:
            return None
        if on_facts is not None:
            on_facts(table, facts)
        return _reading(lake, table, facts)

    readings = for_each_table(tables, read)
    candidates = list[CompactionCandidate]()
    for each in readings:
        policy = each.table.compaction_policy
        unknown = CompactionCandidate(state=TableState(table=each.table.key), policy=policy)
        candidates.append(each.value.known if each.value else unknown)
    bounds = Bounds(
        slots=lake.settings.compaction_slots, budget_usd=lake.settings.compaction_budget_usd
    )
    readers = _readers(lake, declared, written_ms, now)
    candidates = [
        replace(each, state=each.state.read_by(readers[each.state.table])) for each in candidates
    ]
    decisions = decide_fleet(candidates, bounds=bounds, now_ms=now)
    return FleetReading(tables=readings, decisions=decisions)


def _readers(
    lake: Lake, declared: Mapping[str, Table], written_ms: Mapping[str, Sequence[int]], now: int
) -> Mapping[str, Readers]:
    """How often each table is read. Each commit of a derived table counts as one read.

    `written_ms` maps the tables that were read to their commit times. The logs of other tables are
    read here if they are derived from one of these tables.
    """
    others = [table for table in declared.values() if table.key not in written_ms]
    unread = [table for table in others if any(source.key in written_ms for source in table.inputs)]
    all_times = dict(written_ms)
    for each in for_each_table(unread, lambda table: lake.facts(table.key)):
        all_times[each.table.key] = _write_times(each.value) if each.value else ()
    runs = [
        ReaderRun(tables=frozenset([key]), ended_ms=ended_ms)
        for key, times_ms in all_times.items()
        for ended_ms in times_ms
    ]
    return count_reads([*declared.values()], runs, since_ms=now - DAY_MS, now_ms=now)


def _write_times(facts: TableFacts) -> Sequence[int]:
    """The times (ms) at which commits in the table's history changed rows, other than by upkeep."""
    commits = facts.history.commits
    return [each.committed_ms for each in commits if each.changed_data and not moves_rows(each)]


def _reading(lake: Lake, table: Table, facts: TableFacts) -> TableReading:
    compactions = recent_compactions(lake, table.key)
    assessed = assess(lake, table, facts, compactions)
    known = CompactionCandidate(
        state=assessed.state,
        policy=table.compaction_policy,
        compactions=compactions,
        pause=pause_of(lake, table.key),
        hold=without_spark(table.key, assessed.state.engine),
    )
    return TableReading(health=assessed.health, known=known)


def _operation(reading: Found[TableReading], decision: Decision) -> Operation:
    key = reading.table.key
    if reading.value is None:
        why = reading.sentence
        return Operation(operation="compact", table=key, reason=reading.reason, sentence=why)
    plan = reading.value.health.plan
    return Operation(
        operation="compact",
        table=key,
        reason=(plan if plan.reason is Reason.PLAN_REFUSED else decision).reason.name,
        sentence=f"{decision.sentence}; {plan.sentence}",
        is_due=decision.due_since_ms is not None and decision.reason is not Reason.OPTED_OUT,
        size_bytes=plan.bytes_removed,
        net_benefit=decision.state.net_benefit,
    )
