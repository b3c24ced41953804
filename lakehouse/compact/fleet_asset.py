"""All tables as the compaction sensor sees them: facts from Dagster's records, and the ranking.

The ranking is an asset that no run materializes, because such a run would take a slot from a
compaction. Instead, the sensor reports a materialization without a run when the ranking changes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import dagster as dg
from dagster import RunRecord

from lakehouse.assets.dagster_records import (
    ended_runs,
    is_canceled,
    last_compactions_ms,
    newest_facts,
    reader_runs,
    recent_runs,
    runs_in_flight,
)
from lakehouse.assets.metadata import Metadata, markdown_table, markdown_value, sensed_state
from lakehouse.assets.runs import read_tag, repeated_by_person
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.operation import PRICE_HEADS, price_cells
from lakehouse.base.reasons import Explanation
from lakehouse.compact.plan.circuit_breaker import TRIES_ALLOWED
from lakehouse.compact.plan.decision import RunState, TableState, Try, run_key
from lakehouse.compact.plan.fleet import CYCLE_MS, Bounds, Fleet, FleetTable, decide_fleet
from lakehouse.compact.plan.health import count_reads
from lakehouse.compact.skip_reasons import without_spark
from lakehouse.compact.tries import tries_since
from lakehouse.declare.journal_records import CompactionTry
from lakehouse.declare.table import Table
from lakehouse.lake.commits import storage_fault
from lakehouse.lake.lake import Lake
from lakehouse.lake.pauses import pauses

COST_TAG = "lakehouse/estimate_usd"
# The tag of a run that was refused before it began. Its value is the run's id, because Dagster
# copies tags to re-executed runs.
REFUSED = "refused"
_RUN_KEY = "dagster/run_key"
PLAN_KEY = dg.AssetKey(["maintenance", "plan"])
# The reported ranking has at most this many rows.
_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCursor:
    """What the sensor remembers between ticks: waiting times, and the ranking reported last.

    `shared` lists the present table states for which a shared run was requested, each as its first
    run key. If the shared run fails for a table, the table gets separate runs.
    """

    due_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    shared: Sequence[str] = ()
    ranking: str = ""
    reported_ms: int = 0

    def as_cursor(self) -> str:
        """The text that Dagster stores as the sensor's cursor."""
        return json.dumps(asdict(self))


def read_cursor(cursor: str | None) -> SensorCursor:
    """The cursor of an earlier tick. An unreadable cursor counts as empty."""
    try:
        return SensorCursor(**json.loads(cursor or "{}"))
    except (ValueError, TypeError):
        return SensorCursor()


def weigh_fleet(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    cursor: SensorCursor,
) -> Fleet:
    """The state of every table and the decision about it. No Delta log is read."""
    now = now_ms()
    recent = recent_runs(instance, now_ms=now)
    facts = list(_fleet_tables(instance, tables, lake, cursor))
    compacted_ms = {each.state.table: each.state.last_compaction_ms or 0 for each in facts}
    readers = count_reads(
        tables,
        reader_runs(instance, recent, tables),
        since_ms=recent.since_ms,
        now_ms=now,
        compacted_ms=compacted_ms,
    )
    fleet_tables = _with_tries(facts, lake, now)
    runs = RunState(
        in_flight=runs_in_flight(instance, tables),
        tries=_tries(instance, [each.state for each in fleet_tables]),
    )
    bounds = Bounds(
        slots=lake.settings.compaction_slots,
        budget_usd=lake.settings.compaction_budget_usd,
        spent_usd=_predicted_usd(recent.records, since_ms=now - CYCLE_MS),
    )
    fleet = decide_fleet(fleet_tables, readers, runs, bounds=bounds, now_ms=now)
    # Storage is tested only for tables that are about to be compacted.
    requested = {each.table for each in fleet.decisions if each.request}
    faults = {key: fault for key in requested if (fault := _storage_fault(lake, key))}
    if not faults:
        return fleet
    held = [replace(each, hold=faults.get(each.table.key, each.hold)) for each in fleet_tables]
    return decide_fleet(held, readers, runs, bounds=bounds, now_ms=now)


def maintenance_plan() -> dg.AssetSpec:
    """The asset that holds the ranking."""
    return dg.AssetSpec(
        key=PLAN_KEY,
        group_name="maintenance",
        kinds={"table"},
        description="All tables in the order in which they would be compacted, each with its "
        "benefit, cost and reason. Reported by the compaction sensor after each compaction and, at "
        "most once a minute, when the order, a reason or a health score changes.",
    )


def ranking_metadata(fleet: Fleet) -> Metadata:
    """The ranking as a table, most urgent first, and sums over the due tables."""
    due_decisions = [each for each in fleet.decisions if each.due_since_ms is not None]
    due_states = [fleet.states[each.table] for each in due_decisions]
    benefits = [each.net_benefit for each in due_decisions if each.net_benefit is not None]
    heads = ["", "table", "reason", "mergeable", "bytes", *PRICE_HEADS, "why"]
    rows = list[list[str]]()
    for rank, each in enumerate(fleet.decisions[:_ROWS], start=1):
        state = fleet.states[each.table]
        counts = [
            "-" if count is None else f"{count:,}"
            for count in (state.mergeable_file_count, state.mergeable_bytes)
        ]
        rows.append(
            [
                str(rank),
                each.table,
                each.reason.name,
                *counts,
                *price_cells(each.net_benefit),
                each.sentence,
            ]
        )
    return {
        "lakehouse/ranking": markdown_value(markdown_table(heads, rows)),
        "lakehouse/tables": len(fleet.decisions),
        "lakehouse/tables_due": len(due_states),
        "lakehouse/tables_requested": sum(each.request for each in fleet.decisions),
        "lakehouse/mergeable_bytes": sum(state.mergeable_bytes or 0 for state in due_states),
        "lakehouse/estimate_usd": sum(state.estimate_usd or 0.0 for state in due_states),
        "lakehouse/benefit_usd_per_day": sum(each.benefit_usd_per_day for each in benefits),
    }


def _fleet_tables(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    cursor: SensorCursor,
) -> Iterator[FleetTable]:
    """The tables with their state from the newest events, Dagster's runs and the pauses."""
    facts = newest_facts(instance, tables)
    compacted_ms = last_compactions_ms(instance, tables)
    paused = pauses(lake)
    for table in tables:
        key = table.key
        state, rewrites = sensed_state(key, facts.get(key))
        # A compaction may be missing in the log's facts or in Dagster's records, so both are used.
        times = [ms for ms in (state.last_compaction_ms, compacted_ms.get(key)) if ms is not None]
        state = replace(
            state,
            last_compaction_ms=max(times, default=None),
            due_since_ms=cursor.due_since_ms.get(key),
            on_s3=lake.on_s3(key),
        )
        yield FleetTable(
            table=table,
            state=state,
            rewrites=rewrites,
            pause=paused.get(key),
            hold=without_spark(key, state.engine),
            shared_a_run=run_key(state, 1) in cursor.shared,
        )


def _storage_fault(lake: Lake, table_key: str) -> Explanation | None:
    """Why no commit to the table is safe. If the test itself fails, the run reports why."""
    with suppress(LakehouseError):
        return storage_fault(lake, table_key)
    return None


def _with_tries(fleet_tables: Sequence[FleetTable], lake: Lake, now_ms: int) -> list[FleetTable]:
    """The tables with their last success, and the failures since then."""
    succeeded_ms = dict[str, int]()
    for each in fleet_tables:
        compacted_ms = each.state.last_compaction_ms
        if compacted_ms is not None and compacted_ms <= now_ms:
            succeeded_ms[each.table.key] = compacted_ms
    failures = tries_since(lake, succeeded_ms)
    tables: list[FleetTable] = []
    for each in fleet_tables:
        key = each.table.key
        tries = [*failures.get(key, ())]
        if key in succeeded_ms:
            tries.append(CompactionTry(ended_ms=succeeded_ms[key], result="succeeded"))
        tables.append(replace(each, tries=tuple(tries)))
    return tables


def _predicted_usd(records: Iterable[RunRecord], *, since_ms: int) -> float:
    """The predicted cost of the runs requested since `since_ms`, including failed runs."""
    return sum(
        float(record.dagster_run.tags.get(COST_TAG, 0))
        for record in records
        if record.create_timestamp.timestamp() * 1000 >= since_ms
    )


def _tries(instance: dg.DagsterInstance, states: Sequence[TableState]) -> tuple[Try, ...]:
    """The ended runs that were requested for exactly these states.

    Tables with nothing to gain are skipped. If a person re-executed a run of the sensor, the new
    run has the same tags, and counts only if it succeeded. Tries are numbered without gaps. So if
    all queried numbers of a state have a try, the next numbers are queried, too.
    """
    remaining = [
        state
        for state in states
        if state.version is not None and (state.mergeable_file_count or state.deleted_rows_share)
    ]
    tries: list[Try] = []
    first = 1
    last = TRIES_ALLOWED
    while remaining:
        states_by_run_key = {
            run_key(state, number): state
            for state in remaining
            for number in range(first, last + 1)
        }
        for record in ended_runs(instance, {_RUN_KEY: list(states_by_run_key)}):
            tags = record.dagster_run.tags
            if record.dagster_run.is_success or not repeated_by_person(tags):
                state = states_by_run_key[tags[_RUN_KEY]]
                tries.append(_try_of(state, record, is_canceled=is_canceled(instance, record)))
        counts = Counter(each.table for each in tries)
        remaining = [state for state in remaining if counts[state.table] >= last]
        first = last + 1
        last = 2 * last
    return tuple(tries)


def _try_of(state: TableState, record: RunRecord, *, is_canceled: bool) -> Try:
    run = record.dagster_run
    ended_ms = int((record.end_time or record.update_timestamp.timestamp()) * 1000)
    result: Literal["succeeded", "failed", "refused", "canceled"] = "failed"
    if run.is_success:
        result = "succeeded"
    elif read_tag(run.tags, REFUSED) == run.run_id:
        result = "refused"
    elif is_canceled:
        result = "canceled"
    return Try(
        table=state.table,
        version=state.version or 0,
        committed_ms=state.committed_ms,
        result=result,
        ended_ms=ended_ms,
    )
