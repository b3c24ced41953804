"""The sensor that requests compactions.

The facts are in Dagster's records and the lake's. `compact/plan/decision.py` decides whether a
table is to be compacted, which tables go first, and how many at once.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import dagster as dg

from lakehouse.assets.dagster_records import (
    ended_runs,
    newest_facts,
    reader_runs,
    recent_runs,
    runs_in_flight,
)
from lakehouse.assets.keys import compaction_key
from lakehouse.assets.metadata import sensed_state
from lakehouse.assets.runs import machine_tag, repeated_by_person
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Transient
from lakehouse.base.operation import UpkeepOperation
from lakehouse.compact.assess import recent_compactions, without_spark
from lakehouse.compact.plan.decision import (
    CYCLE_MS,
    Bounds,
    CompactionCandidate,
    Decision,
    RunInFlight,
    TableState,
    Try,
    count_reads,
    decide_fleet,
    describe,
    state_key,
)
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pauses
from lakehouse.store import TimeBudget

COST_TAG = "lakehouse/estimate_usd"
_STATE = machine_tag("state")


def read_cursor(cursor: str | None) -> Mapping[str, int]:
    """The times (ms) since which tables have been due and waiting, by table.

    An unreadable cursor counts as empty.
    """
    with suppress(ValueError, TypeError, AttributeError):
        return {
            table: int(due_since_ms) for table, due_since_ms in json.loads(cursor or "{}").items()
        }
    return {}


def weigh_fleet(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    due_since_ms: Mapping[str, int],
) -> Sequence[Decision]:
    """The decision about every table, in the order of service. No Delta log is read.

    `due_since_ms` are the waiting times of the last tick, by table.
    """
    now = now_ms()
    since_ms, recent = recent_runs(instance, now_ms=now)
    known = _candidates(instance, tables, lake, due_since_ms)
    compacted_ms = {each.state.table: each.state.last_compaction_ms or 0 for each in known}
    readers = count_reads(
        tables,
        reader_runs(instance, recent, tables),
        since_ms=since_ms,
        now_ms=now,
        compacted_ms=compacted_ms,
    )
    tries = _tries(instance, [each.state for each in known])
    candidates = list[CompactionCandidate]()
    for each in known:
        key = each.state.table
        candidates.append(replace(each, state=each.state.read_by(readers[key]), tries=tries[key]))
    # Failed runs count, too.
    spent_usd = sum(
        float(record.dagster_run.tags.get(COST_TAG, 0))
        for record in recent
        if record.create_timestamp.timestamp() * 1000 >= now - CYCLE_MS
    )
    bounds = Bounds(
        slots=lake.settings.compaction_slots,
        budget_usd=lake.settings.compaction_budget_usd,
        spent_usd=spent_usd,
    )
    return decide_fleet(candidates, bounds=bounds, now_ms=now)


def _candidates(
    instance: dg.DagsterInstance,
    tables: Sequence[Table],
    lake: Lake,
    due_since_ms: Mapping[str, int],
) -> list[CompactionCandidate]:
    """The tables with their state from the newest events, and the lake's compactions and pauses."""
    facts = newest_facts(instance, tables)
    paused = pauses(lake)
    compactions = defaultdict[str, list[UpkeepOperation]](list)
    for compaction in recent_compactions(lake):
        compactions[compaction.table].append(compaction)
    in_flight = defaultdict[str, list[RunInFlight]](list)
    for run in runs_in_flight(instance, tables):
        in_flight[run.table].append(run)
    candidates = list[CompactionCandidate]()
    for table in tables:
        key = table.key
        sensed = sensed_state(key, facts.get(key))
        state = replace(sensed, due_since_ms=due_since_ms.get(key))
        candidates.append(
            CompactionCandidate(
                state=state,
                policy=table.compaction_policy,
                in_flight=in_flight[key],
                compactions=compactions[key],
                pause=paused.get(key),
                hold=without_spark(key, state.engine),
            )
        )
    return candidates


def _tries(instance: dg.DagsterInstance, states: Sequence[TableState]) -> Mapping[str, list[Try]]:
    """The ended runs that were requested for exactly these states, by table.

    Tables with nothing to gain are skipped. If a person re-executed a run of the sensor, the new
    run has the same tags, and counts only if it succeeded.
    """
    present = {
        state_key(state): state.table
        for state in states
        if state.version is not None and (state.mergeable_file_count or state.deleted_rows_share)
    }
    tries = defaultdict[str, list[Try]](list)
    if not present:
        return tries
    for record in ended_runs(instance, {_STATE: [*present]}):
        run = record.dagster_run
        if repeated_by_person(run.tags) and not run.is_success:
            continue
        ended_seconds = record.end_time or record.update_timestamp.timestamp()
        ended = Try(succeeded=run.is_success, ended_ms=int(ended_seconds * 1000))
        tries[present[run.tags[_STATE]]].append(ended)
    return tries


# Seconds between two ticks.
TICK_SECONDS = 10
TICK_SECONDS_ON_S3 = 30


def compaction_sensor(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "compaction_sensor",
) -> dg.SensorDefinition:
    """Requests the compactions that are due, best first, and gives a reason for every table.

    The sensor reads the newest event of each table, the runs, the pauses, and new rows of the
    lake's operations. It reads no table's log and needs no Spark. The cursor has the tables that
    are due and wait (`read_cursor`).
    """
    budget = TimeBudget()
    bounded = lake.within(budget)
    keys = {table.key: compaction_key(table) for table in tables}

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*keys.values()),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=TICK_SECONDS_ON_S3 if lake.settings.on_s3 else TICK_SECONDS,
        description="Compacts tables that are due, the highest ratio of benefit to cost first.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        try:
            decisions = weigh_fleet(context.instance, tables, bounded, read_cursor(context.cursor))
        except Transient as error:
            # Pauses and holds are unknown, so no compaction may start.
            text = f"pauses and failures cannot be read now, so no compaction is requested: {error}"
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        text = describe(decisions)
        requests = [_request(each, keys[each.table]) for each in decisions if each.request]
        # A table for which a run is requested no longer waits.
        waiting = {
            each.table: each.due_since_ms
            for each in decisions
            if each.due_since_ms is not None and not each.request
        }
        if requests:
            context.log.info(text)
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else text,
            cursor=json.dumps(waiting),
        )

    return weigh


def _request(decision: Decision, asset_key: dg.AssetKey) -> dg.RunRequest:
    state = decision.state
    tags = {
        _STATE: state_key(state),
        "lakehouse/table": state.table,
        "lakehouse/version": str(state.version),
        "lakehouse/mergeable_files": str(state.mergeable_file_count),
    }
    if state.estimate_usd is not None:
        tags[COST_TAG] = f"{state.estimate_usd:.6f}"
    return dg.RunRequest(run_key=decision.run_key, asset_selection=[asset_key], tags=tags)
