"""Deletes Dagster's old runs, which would otherwise grow by about 2 GB a day.

Runs that hold the newest events of an asset stay. Of the others, each old run is deleted with its
output, events and check results. Ticks expire by `retention` in dagster.yaml.

**Safety properties** (tests in `test_retention.py`)
- The newest materialization and observation of each asset stay with their whole run, and so does
  the newest result of each check.
- A run stays if it has not ended, or ended within the last hour.
- The newest `KEPT_RUNS` runs stay, because the sensors read the newest 300 (`dagster_records.py`).
  A run that failed stays for `LAKEHOUSE_RECORDS_DAYS`, because the sensors count failures.
- Only Dagster's records are changed: no table and no landed file.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.storage.dagster_run import FINISHED_STATUSES  # not public
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    SqlEventLogStorageTable,
)
from sqlalchemy import delete, func, select

from lakehouse.assets.keys import RECORDS_CRON
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings
from lakehouse.base.text import DAY_MS, HOUR_MS

RECORDS_KEY = dg.AssetKey(["maintenance", "records"])
# At 400 KB a run, these take 160 MB. The sensors read at most the newest 300 runs.
KEPT_RUNS = 400
# Of each asset, the runs of so many newest observations stay: another program may have reported the
# newest one, and the sensors then read ours (`dagster_records.py`).
_OBSERVATIONS_KEPT = 20
# A lake that ran for months without retention has tens of thousands of runs. The next runs of the
# asset delete the rest.
_MOST_AT_ONCE = 2_000
_PAGE = 500
# An evaluation of automation conditions takes 37 KB, and Dagster itself keeps them for a month.
_EVALUATIONS_KEPT = timedelta(hours=1)


def records_asset(settings: Settings) -> dg.AssetsDefinition:
    """The retention as an asset."""

    @dg.asset(
        key=RECORDS_KEY,
        group_name="maintenance",
        kinds={"sql"},
        pool="maintenance_records",
        description="Deletes Dagster's old runs with their events and output. Keeps the newest.",
    )
    def records(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        with errors_for_dagster(context):
            now = now_ms()
            old = old_runs(context.instance, days=settings.records_days, now_ms=now)
            delete_runs(context.instance, old)
            delete_rest(context.instance, now_ms=now)
        return dg.MaterializeResult(metadata={"lakehouse/runs": len(old)})

    return records


def records_schedule() -> dg.ScheduleDefinition:
    """Requests the retention every hour."""

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


def old_runs(instance: dg.DagsterInstance, *, days: int, now_ms: int) -> list[str]:
    """The ids of the runs to delete, oldest first."""
    holders = set(_holders(instance))
    old = list[str]()
    for place, record in enumerate(_ended_runs(instance)):
        age_ms = now_ms - (record.end_time or record.update_timestamp.timestamp()) * 1000
        succeeded = record.dagster_run.status is DagsterRunStatus.SUCCESS
        if age_ms < HOUR_MS or record.dagster_run.run_id in holders:
            continue
        if age_ms > days * DAY_MS or (succeeded and place >= KEPT_RUNS):
            old.append(record.dagster_run.run_id)
    return old[::-1][:_MOST_AT_ONCE]


def delete_runs(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """Deletes these runs. The record of a run goes last, so a cut-off deletion is repeated."""
    checks = AssetCheckExecutionsTable
    newest = select(func.max(checks.c.id)).group_by(
        checks.c.asset_key, checks.c.check_name, checks.c.execution_status
    )
    storage = instance.event_log_storage
    if isinstance(storage, SqlEventLogStorage):  # Dagster itself never deletes these rows
        with storage.index_connection() as index:
            old = checks.c.run_id.in_(run_ids) & checks.c.id.not_in(newest)
            index.execute(delete(checks).where(old))
    for run_id in run_ids:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        instance.delete_run(run_id)
        if isinstance(storage, SqliteEventLogStorage):  # nor does it delete the run's emptied file
            for suffix in ("", "-wal", "-shm"):
                Path(storage.path_for_shard(run_id) + suffix).unlink(missing_ok=True)


def delete_rest(instance: dg.DagsterInstance, *, now_ms: int) -> None:
    """Deletes old evaluations of conditions, and events without a run that are a day old.

    The newest event without a run stays, per asset and type.
    """
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC)
    if instance.schedule_storage is not None:
        instance.schedule_storage.purge_asset_evaluations((now - _EVALUATIONS_KEPT).timestamp())
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return
    events = SqlEventLogStorageTable
    runless = events.c.run_id == ""
    newest = (
        select(func.max(events.c.id))
        .where(runless)
        .group_by(events.c.asset_key, events.c.dagster_event_type)
    )
    old = events.c.timestamp < (now - timedelta(days=1)).replace(tzinfo=None)
    connections = [storage.index_connection()]
    if isinstance(storage, SqliteEventLogStorage):
        connections.append(storage.run_connection(""))
    for opened in connections:
        with opened as connection:
            connection.execute(delete(events).where(runless & old & events.c.id.not_in(newest)))


def _ended_runs(instance: dg.DagsterInstance) -> Iterator[RunRecord]:
    """All runs that ended, newest first."""
    ended = RunsFilter(statuses=FINISHED_STATUSES)
    cursor: str | None = None
    while page := instance.get_run_records(ended, limit=_PAGE, cursor=cursor):
        yield from page
        cursor = page[-1].dagster_run.run_id


def _holders(instance: dg.DagsterInstance) -> Iterator[str]:
    """The runs that hold an asset's newest materialization, or one of its newest observations."""
    keys = instance.all_asset_keys()
    for record in instance.get_asset_records(list(keys)):
        entry = record.asset_entry
        if entry.last_materialization_record is not None:
            yield entry.last_materialization_record.run_id
        if entry.last_run_id is not None:
            yield entry.last_run_id
    for key in keys:
        for observation in instance.fetch_observations(key, limit=_OBSERVATIONS_KEPT).records:
            yield observation.run_id
