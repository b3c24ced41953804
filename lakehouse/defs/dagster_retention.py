"""Retention of Dagster's own records: `maintenance/records`, every half hour.

1. List the runs, with their end and whether they hold the newest events of an asset.
2. Plan which runs to delete, and which runs lose only their events (`core/dagster_retention.py`). A
   dry run stops here.
3. For runs that lose their events, delete the printed output, the check results, the events and
   their file. Delete the records of the other planned runs, whose events are already gone.
4. Delete old evaluations of conditions, events without a run, and old output of sensors and
   schedules. Dagster itself deletes old ticks (`dagster.yaml`).
5. Rewrite a SQLite file that is mostly free pages.

**Safety properties**
- The newest materialization, observation, check, and event of every other kind of each asset is
  kept, with its whole run (`defs/test_dagster_retention.py`).
- A run that has not ended, or ended within the last hour, is kept whole
  (`core/test_dagster_retention.py`).
- Runs are kept for as long as the sensors read or count them. Events need no such time, because the
  sensors read only the newest events (`core/test_dagster_retention.py`).
- Only Dagster's folder or database is changed: no table, journal or landed file
  (`defs/test_dagster_retention.py`).
- If a run of the retention is killed, the next one deletes the rest
  (`defs/test_dagster_retention.py`).
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.core.dagster_retention import RetentionPlan, plan_retention
from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings
from lakehouse.core.text import size_text
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.metadata.markdown import markdown_table, markdown_value
from lakehouse.defs.sql_records import SqlRecords, open_records
from lakehouse.defs.upkeep_times import RECORDS_CRON
from lakehouse.engine.clock import now_ms

RECORDS_KEY = dg.AssetKey(["maintenance", "records"])
# How many evaluations of automation conditions are kept. One takes 37 KB, so all take 11 MB.
_EVALUATIONS = 300
# The metadata lists at most this many runs.
_LISTED = 200


class RecordsConfig(dg.Config):
    """Options of one run. With `dry_run`, the plan is listed and nothing is deleted."""

    dry_run: bool = False


def records_asset(settings: Settings) -> dg.AssetsDefinition:
    """The retention as an asset. Its metadata shows what was deleted, and the remaining size."""

    @dg.asset(
        key=RECORDS_KEY,
        group_name="maintenance",
        kinds={"sql"},
        pool="maintenance_records",
        description="Deletes Dagster's old runs, events, output and evaluations. Keeps the newest.",
    )
    def records(
        context: dg.AssetExecutionContext, config: RecordsConfig
    ) -> dg.MaterializeResult[Any]:
        with errors_for_dagster(context):
            plan, metadata = prune(
                context.instance,
                days=settings.records_days,
                now_ms=now_ms(),
                dry_run=config.dry_run,
            )
        context.log.info(plan.sentence)
        return dg.MaterializeResult(metadata=metadata)

    return records


def records_schedule() -> dg.ScheduleDefinition:
    """Requests the retention twice an hour."""

    @dg.schedule(
        name="records_schedule",
        cron_schedule=RECORDS_CRON,
        target=dg.AssetSelection.assets(RECORDS_KEY),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Keeps Dagster's own records small.",
    )
    def tick() -> dg.RunRequest:
        # Repeats the target, because a run without a selection counts as a run of every table.
        return dg.RunRequest(asset_selection=[RECORDS_KEY])

    return tick


def prune(
    instance: dg.DagsterInstance, *, days: int, now_ms: int, dry_run: bool = False
) -> tuple[RetentionPlan, dict[str, Any]]:
    """Deletes expired records, unless `dry_run`. Returns the plan for the runs, and metadata.

    Raises:
        Refused: Dagster's records are neither in SQLite files nor in Postgres.
    """
    records = open_records(instance)
    if records is None:
        raise Refused(
            "maintenance/records: Dagster's records are neither in SQLite files nor in Postgres. "
            "Turn off records_schedule, and delete old records with your database's own tools."
        )
    plan = plan_retention(records.runs(), days=days, now_ms=now_ms)
    expired_before = now_ms / 1000 - timedelta(days=days).total_seconds()
    evaluations_before = max(records.evaluations_before(_EVALUATIONS) or 0.0, expired_before)
    metadata: dict[str, Any] = {
        "lakehouse/dry_run": dry_run,
        "lakehouse/events_of_runs": len(plan.events),
        "lakehouse/runs": len(plan.runs),
        "lakehouse/events_without_run": records.events_without_run(),
        "lakehouse/going": _listed(plan),
    }
    if not dry_run:
        _delete_runs(instance, records, plan)
        records.delete_events_without_run()
        if instance.schedule_storage is not None:
            instance.schedule_storage.purge_asset_evaluations(evaluations_before)
        _delete_tick_output(records.home, before=expired_before)
        records.shrink()
    size = records.size_bytes()
    return plan, {**metadata, "lakehouse/bytes": size, "lakehouse/size": size_text(size)}


def _delete_runs(instance: dg.DagsterInstance, records: SqlRecords, plan: RetentionPlan) -> None:
    """Deletes the events and runs of a plan.

    As long as a run has events, the next retention plans that run again. So a run's output and
    checks are deleted before its events, which are rows and, in SQLite, also a file.
    """
    for run_id in plan.events:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
    records.delete_checks(plan.events)
    for run_id in plan.events:
        records.delete_events_of_run(run_id)
        records.delete_run_file(run_id)
    for run_id in plan.runs:
        instance.run_storage.delete_run(run_id)


def _delete_tick_output(home: Path, *, before: float) -> None:
    """Deletes the old output of sensors and schedules, which is in the repository's log folder."""
    for file in (home / "logs" / "__repository__").rglob("*"):
        if file.is_file() and file.stat().st_mtime < before:
            file.unlink(missing_ok=True)


def _listed(plan: RetentionPlan) -> dg.MarkdownMetadataValue:
    rows = [[run_id, "events"] for run_id in plan.events]
    rows += [[run_id, "run"] for run_id in plan.runs]
    return markdown_value(markdown_table(["run", "deleted"], rows[:_LISTED]))
