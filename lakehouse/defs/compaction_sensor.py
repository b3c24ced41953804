"""The sensor that requests compactions, and the schedules of tables compacted by the clock."""

from collections.abc import Sequence
from contextlib import suppress

import dagster as dg

from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.strategies import Scheduled
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.fleet import describe
from lakehouse.core.scheduling.ranking import Decision
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.defs.dagster_records import runs_in_flight
from lakehouse.defs.fleet_from_events import (
    COST_TAG,
    PLAN_KEY,
    note_ranking,
    ranking_metadata,
    read_cursor,
    weigh_fleet,
)
from lakehouse.defs.keys import compaction_key
from lakehouse.defs.metadata.fleet import sensed_fleet_metadata
from lakehouse.defs.pool_slots import free_ended_slots
from lakehouse.defs.run_ownership import close_lost_runs
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.holds import hold_now
from lakehouse.engine.journal.journal import Journal, JournalCache
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import TimeBudget

# On S3, journal records without a marker are found with this delay. On disk, each tick lists all
# records.
SWEEP_MS = 600_000


def compaction_sensor(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "compaction_sensor",
    report: dg.AssetKey | None = None,
    budget: TimeBudget | None = None,
) -> dg.SensorDefinition:
    """Requests the compactions that are due, best first, and gives a reason for every table.

    The sensor reads the newest event of each table, the runs, and new journal entries. It reads no
    log and needs no Spark. If the ranking changes, it is reported to the asset `maintenance/plan`,
    or the state of all tables to the asset `report`. The cursor holds the waiting times and the
    ranking reported last. Each tick first closes compactions whose process died, and frees pool
    slots that ended runs still hold: both would block their table forever.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)
    records = JournalCache(bounded.store, sweep_ms=SWEEP_MS if lake.settings.on_s3 else 0)
    compactions = [compaction_key(table) for table in tables]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*compactions),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=lake.settings.compaction_tick_seconds,
        description="Compacts tables that are due, the highest ratio of benefit to cost first.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        now, cursor = now_ms(), read_cursor(context.cursor)
        for run_id in close_lost_runs(context.instance, set(compactions), now_ms=now):
            context.log.warning(f"run {run_id[:8]} was closed: its process is gone")
        for sentence in free_ended_slots(context.instance, tables, now_ms=now):
            context.log.warning(sentence)
        try:
            records.refresh(now)
            journal = Journal(bounded.store, records)
            fleet = weigh_fleet(context.instance, tables, bounded, cursor, journal)
        except Transient as error:
            # It is unknown now whether tables are paused or held, so nothing may be started.
            text = f"the journal cannot be read now, so no compaction is requested: {error}"
            return dg.SensorResult(skip_reason=text, cursor=context.cursor)
        text = describe(fleet.decisions)
        after, has_changed = note_ranking(fleet, cursor, now_ms=now)
        events = list[dg.AssetMaterialization]()
        if has_changed:
            metadata = (
                ranking_metadata(fleet)
                if report is None
                else sensed_fleet_metadata(context.instance, fleet, tables)
            )
            events.append(dg.AssetMaterialization(report or PLAN_KEY, metadata=metadata))
        requests = [
            _request(decision, fleet.states[decision.table])
            for decision in fleet.decisions
            if decision.request
        ]
        if requests:
            context.log.info(text)
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else text,
            cursor=after.as_cursor(),
            asset_events=events,
        )

    return weigh


def compaction_schedules(tables: Sequence[Table], lake: Lake) -> list[dg.ScheduleDefinition]:
    """The schedules of tables that are compacted by the clock. A tick reads log and journal."""
    strategies = [(table, policy_for(table.layer, table.compaction).strategy) for table in tables]
    return [
        _schedule(table, strategy, lake)
        for table, strategy in strategies
        if isinstance(strategy, Scheduled)
    ]


def _request(decision: Decision, state: TableState) -> dg.RunRequest:
    key = dg.AssetKey(["compaction", *decision.table.split("/")])
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
        description=f"Compacts {table.key} at the times that its declaration says (UTC).",
    )
    def ask(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        budget.begin()
        facts = None
        with suppress(LakehouseError):  # the run reports what is wrong with the log
            facts = bounded.facts(table.key)
        history, snapshot = (facts.history, facts.snapshot) if facts else (None, None)
        held = hold_now(bounded, table, history, snapshot=snapshot)
        if held is not None:
            return dg.SkipReason(f"{table.key}: {held.sentence}")
        under_way = [
            run.text for run in runs_in_flight(context.instance, [table]) if run.is_compaction
        ]
        if under_way:
            return dg.SkipReason(
                f"{table.key}: {Reason.RUN_IN_FLIGHT.explain(runs='; '.join(under_way)).sentence}"
            )
        # The asset is named again: a run without a selection counts as a run of every table.
        run_key = f"{table.key} {context.scheduled_execution_time:%Y-%m-%dT%H:%M}"
        return dg.RunRequest(run_key=run_key, asset_selection=[compaction_key(table)])

    return ask
