"""The sensor that requests compactions, and the schedules of tables compacted by the clock.

`compact/plan/decision.py` decides whether a table is to be compacted, and `compact/plan/fleet.py`
decides which tables go first, and how many at once.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

import dagster as dg

from lakehouse.assets.dagster_records import runs_in_flight
from lakehouse.assets.keys import compaction_key
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Transient
from lakehouse.base.reasons import Reason
from lakehouse.compact.fleet_asset import (
    COST_TAG,
    PLAN_KEY,
    SensorCursor,
    ranking_metadata,
    read_cursor,
    weigh_fleet,
)
from lakehouse.compact.plan.decision import Decision, TableState, run_key
from lakehouse.compact.plan.fleet import Fleet, describe
from lakehouse.compact.skip_reasons import hold_now
from lakehouse.declare.compaction import Scheduled, policy_for
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.store import TimeBudget

# Seconds between two ticks.
TICK_SECONDS = 10
TICK_SECONDS_ON_S3 = 30
# The ranking of a busy lake changes with every write, so it is reported at most this often, unless
# a table was compacted.
_REPORT_INTERVAL_MS = 60_000


def compaction_sensor(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "compaction_sensor",
    report: dg.AssetKey | None = None,
    budget: TimeBudget | None = None,
) -> dg.SensorDefinition:
    """Requests the compactions that are due, best first, and gives a reason for every table.

    The sensor reads the newest event of each table, the runs, the pauses, and new rows of the
    lake's operations. It reads no table's log and needs no Spark. After a change of the ranking, it
    reports the ranking to the asset `maintenance/plan`, or to the asset `report`. The cursor is a
    `SensorCursor`.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)
    job = _compactions_job(name, tables)

    @dg.sensor(
        name=name,
        job=job,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=TICK_SECONDS_ON_S3 if lake.settings.on_s3 else TICK_SECONDS,
        description="Compacts tables that are due, the highest ratio of benefit to cost first.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        now = now_ms()
        cursor = read_cursor(context.cursor)
        try:
            fleet = weigh_fleet(context.instance, tables, bounded, cursor)
        except Transient as error:
            # Pauses and holds are unknown, so no compaction may start.
            text = f"pauses and failures cannot be read now, so no compaction is requested: {error}"
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        text = describe(fleet.decisions)
        next_cursor, has_changed = _next_cursor(fleet, cursor, now_ms=now)
        event = dg.AssetMaterialization(report or PLAN_KEY, metadata=ranking_metadata(fleet))
        requests = _requests(fleet)
        if requests:
            context.log.info(text)
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else text,
            cursor=next_cursor.as_cursor(),
            asset_events=[event] if has_changed else [],
        )

    return weigh


def _compactions_job(sensor: str, tables: Sequence[Table]) -> Any:
    return dg.define_asset_job(
        f"{sensor.removesuffix('_sensor')}s",
        selection=dg.AssetSelection.assets(*(compaction_key(table) for table in tables)),
        description="Compacts the tables of one request, one after the other, in one process.",
        executor_def=dg.in_process_executor,
    )


def compaction_schedules(tables: Sequence[Table], lake: Lake) -> list[dg.ScheduleDefinition]:
    """The schedules of tables that are compacted by the clock.

    A tick reads the table's log, its pause and its failures.
    """
    schedules = list[dg.ScheduleDefinition]()
    for table in tables:
        strategy = policy_for(table.layer, table.compaction).strategy
        if isinstance(strategy, Scheduled):
            schedules.append(_schedule(table, strategy, lake))
    return schedules


def _next_cursor(fleet: Fleet, cursor: SensorCursor, *, now_ms: int) -> tuple[SensorCursor, bool]:
    """The cursor of the next tick, and whether this tick must report the ranking.

    The ranking is reported if a table was compacted, or, at most once a minute, if the order, a
    reason or a rounded health score has changed. A table for which a run is requested no longer
    waits.
    """
    order = "\n".join(
        f"{each.table} {each.reason.name} {fleet.states[each.table].health_score or 0:.0f}"
        f" {fleet.states[each.table].last_compaction_ms}"
        for each in fleet.decisions
    )
    ranking = sha256(order.encode()).hexdigest()[:16]
    due_since_ms = {
        each.table: each.due_since_ms
        for each in fleet.decisions
        if each.due_since_ms is not None and not each.request
    }
    # The first run key identifies a table's present state (`SensorCursor.shared`).
    first_keys = {key: run_key(state, 1) for key, state in fleet.states.items()}
    newly_shared = {first_keys[each.table] for each in fleet.decisions if each.shares_run}
    # Keys of earlier states of a table are dropped.
    shared = (newly_shared | {*cursor.shared}) & {*first_keys.values()}
    next_cursor = replace(cursor, due_since_ms=due_since_ms, shared=sorted(shared))
    compacted_ms = max((each.last_compaction_ms or 0 for each in fleet.states.values()), default=0)
    is_early = 0 <= now_ms - cursor.reported_ms < _REPORT_INTERVAL_MS
    if ranking == cursor.ranking or (is_early and compacted_ms <= cursor.reported_ms):
        return next_cursor, False
    return replace(next_cursor, ranking=ranking, reported_ms=now_ms), True


def _requests(fleet: Fleet) -> list[dg.RunRequest]:
    """One run for all tables that share a run (if two or more), and one for each other table."""
    requested = [each for each in fleet.decisions if each.request]
    shared = [each for each in requested if each.shares_run]
    if len(shared) < 2:
        return [_request(each, fleet.states[each.table]) for each in requested]
    others = [each for each in requested if not each.shares_run]
    states = [fleet.states[each.table] for each in shared]
    run_keys = "\n".join(sorted(each.run_key or "" for each in shared))
    tags = {
        "lakehouse/tables": str(len(shared)),
        COST_TAG: f"{sum(state.estimate_usd or 0.0 for state in states):.6f}",
    }
    shared_request = dg.RunRequest(
        run_key=f"compactions/{sha256(run_keys.encode()).hexdigest()[:16]}",
        asset_selection=[_asset_key(each.table) for each in shared],
        tags=tags,
    )
    return [shared_request, *(_request(each, fleet.states[each.table]) for each in others)]


def _asset_key(table: str) -> dg.AssetKey:
    return dg.AssetKey(["compaction", *table.split("/")])


def _request(decision: Decision, state: TableState) -> dg.RunRequest:
    key = _asset_key(decision.table)
    facts = {
        "table": state.table,
        "version": state.version,
        "mergeable_files": state.mergeable_file_count,
    }
    cost = {} if state.estimate_usd is None else {COST_TAG: f"{state.estimate_usd:.6f}"}
    tags = {f"lakehouse/{name}": str(value) for name, value in facts.items()} | cost
    return dg.RunRequest(run_key=decision.run_key, asset_selection=[key], tags=tags)


def _schedule(table: Table, strategy: Scheduled, lake: Lake) -> dg.ScheduleDefinition:
    budget = TimeBudget()
    bounded = lake.within(budget)

    @dg.schedule(
        name=f"compaction_of_table_{table.key.replace('/', '_')}",
        cron_schedule=strategy.cron,
        execution_timezone="UTC",
        target=dg.AssetSelection.assets(compaction_key(table)),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Compacts {table.key} at the times in its declaration (UTC).",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        budget.begin()
        facts = None
        with suppress(LakehouseError):  # if the log cannot be read, the run reports why
            facts = bounded.facts(table.key)
        history = None if facts is None else facts.history
        hold = hold_now(bounded, table, history)
        if hold is not None:
            return dg.SkipReason(f"{table.key}: {hold.sentence}")
        runs = [run.name for run in runs_in_flight(context.instance, [table]) if run.is_compaction]
        if runs:
            in_flight = Reason.RUN_IN_FLIGHT.explain(runs="; ".join(runs))
            return dg.SkipReason(f"{table.key}: {in_flight.sentence}")
        # Repeats the target, because a run without a selection counts as a run of every table.
        run_key = f"{table.key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
        return dg.RunRequest(run_key=run_key, asset_selection=[compaction_key(table)])

    return tick
