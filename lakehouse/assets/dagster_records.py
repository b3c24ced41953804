"""Reads Dagster's records about the tables (facts, runs, tries, readers), and deletes old runs.

A few queries read the records of all tables. Only observations take a query per table, because
Dagster's storage has no query for the newest observations of several assets.

Old runs would otherwise grow by about 2 GB a day. Runs that hold the newest events of an asset
stay. Of the others, each old run is deleted with its output, events and check results. Ticks expire
by `retention` in dagster.yaml.

**Safety properties** (tests in `test_retention.py`)
- The newest materialization and observation of each asset stay with their whole run, and so does
  the newest result of each check.
- A run stays if it has not ended, or ended within the last hour.
- The newest `KEPT_RUNS` runs stay, because the sensors read the newest 300 (`dagster_records.py`).
  A run that failed stays for `LAKEHOUSE_RECORDS_DAYS`, because the sensors count failures.
- Only Dagster's records are changed: no table and no landed file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.storage.dagster_run import FINISHED_STATUSES, NOT_FINISHED_STATUSES  # not public
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    SqlEventLogStorageTable,
)
from sqlalchemy import delete, func, select

from lakehouse.assets.keys import RECORDS_CRON, by_clock, compaction_key, table_key
from lakehouse.assets.runs import errors_for_dagster, machine_tag
from lakehouse.base.clock import now_ms
from lakehouse.base.frozen import frozen
from lakehouse.base.settings import Settings
from lakehouse.base.text import DAY_MS, HOUR_MS
from lakehouse.compact.plan.decision import ReaderRun, RunInFlight
from lakehouse.declare.table import Table

# At most this many runs are read: a day of a small lake, or an hour of a busy lake, enough to
# estimate a rate. SQLite reads them in 0.035 s if it has 25,000 runs with eight tags each.
_RUNS_LOOKED_AT = 300
# The newest observation of an adopted table is nearly always ours. If it is not, the newest 100 are
# read.
_OBSERVATIONS_LOOKED_AT = (1, 100)
_READ_NOTHING = "read_nothing"
# A cache: the assets of each execution plan, by the plan's id.
_plans: dict[str, AbstractSet[dg.AssetKey]] = {}


@frozen
class NewestFacts:
    """A table's newest materialization or observation: its id, and its metadata by key."""

    storage_id: int
    values: Mapping[str, Any]


def newest_facts(
    instance: dg.DagsterInstance, tables: Sequence[Table]
) -> Mapping[str, NewestFacts]:
    """Each table's newest materialization or observation; a table with neither is omitted.

    Most of Dagster's own functions read materializations only. After a compaction, they would
    return the file count from before it.
    """
    written_here = [table_key(table) for table in tables if not table.adopted]
    materialized = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization_record
        for record in instance.get_asset_records(written_here)
    }
    facts: dict[str, NewestFacts] = {}
    for table in tables:
        records = list(_observations(instance, table))
        materialization = materialized.get(table_key(table))
        if materialization is not None:
            records.append(materialization)
        if records:
            newest = max(records, key=lambda record: record.storage_id)
            values = {name: entry.value for name, entry in _metadata(newest).items()}
            facts[table.key] = NewestFacts(storage_id=newest.storage_id, values=values)
    return facts


def runs_in_flight(
    instance: dg.DagsterInstance, tables: Sequence[Table]
) -> tuple[RunInFlight, ...]:
    """The queued and running runs that write or compact a table, one entry per run and asset.

    The runs are found by their assets, because a run that Dagster's UI started lacks our tags.
    """
    by_compaction = {compaction_key(table): table for table in tables}
    by_key = {**by_compaction, **{table_key(table): table for table in tables}}
    return tuple(
        RunInFlight(
            table=by_key[key].key,
            name=run.run_id[:8],
            is_compaction=key in by_compaction,
        )
        for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES))
        for key in sorted(by_key.keys() & _selected(instance, run))
    )


def _selected(instance: dg.DagsterInstance, run: dg.DagsterRun) -> AbstractSet[dg.AssetKey]:
    """The assets that a run materializes.

    For a run without a selection, they come from its execution plan. Runs of one job share a plan,
    and the plan's id identifies its content, so each plan is read once.
    """
    plan_id = run.execution_plan_snapshot_id
    if run.asset_selection:
        return run.asset_selection
    if plan_id is None:
        return frozenset()
    if plan_id not in _plans:
        if len(_plans) >= _RUNS_LOOKED_AT:
            _plans.clear()
        _plans[plan_id] = instance.get_execution_plan_snapshot(plan_id).asset_selection
    return _plans[plan_id]


def ended_runs(
    instance: dg.DagsterInstance,
    tags: Mapping[str, str | Sequence[str]],
    *,
    limit: int | None = None,
) -> Sequence[RunRecord]:
    """The newest finished runs with one of the given values for each tag, newest first."""
    return instance.get_run_records(RunsFilter(statuses=FINISHED_STATUSES, tags=tags), limit=limit)


def is_canceled(instance: dg.DagsterInstance, record: RunRecord) -> bool:
    """Whether a person canceled the run. A run that Dagster stopped at its time limit is not.

    Source: dagster 1.13, dagster/_daemon/monitoring/run_monitoring.py, `check_run_timeout`: the
    stopped process reports its run as canceled after the daemon has reported it as failed.
    """
    if record.dagster_run.status is not DagsterRunStatus.CANCELED:
        return False
    limit_seconds = instance.run_monitoring_max_runtime_seconds
    if not limit_seconds or record.start_time is None or record.end_time is None:
        return True
    return record.end_time - record.start_time < limit_seconds


def recent_runs(instance: dg.DagsterInstance, *, now_ms: int) -> tuple[int, Sequence[RunRecord]]:
    """The runs in any state that were created since a time in ms, newest first, and that time.

    These are the runs of the last day, at most the newest `_RUNS_LOOKED_AT` of them.
    """
    day_ago_ms = now_ms - DAY_MS
    day_ago = datetime.fromtimestamp(day_ago_ms / 1000, tz=UTC)
    records = instance.get_run_records(RunsFilter(created_after=day_ago), limit=_RUNS_LOOKED_AT)
    since_ms = day_ago_ms
    if len(records) == _RUNS_LOOKED_AT:
        since_ms = int(records[-1].create_timestamp.timestamp() * 1000)
    return since_ms, records


def reader_runs(
    instance: dg.DagsterInstance, runs: Iterable[RunRecord], tables: Sequence[Table]
) -> tuple[ReaderRun, ...]:
    """The successful runs, each with its duration and the written tables whose inputs it read."""
    keys = {table_key(table): table.key for table in tables}
    readers: list[ReaderRun] = []
    for record in runs:
        run = record.dagster_run
        if run.status is not DagsterRunStatus.SUCCESS or record.end_time is None:
            continue
        selected = [keys[key] for key in _selected(instance, run) if key in keys]
        # The tag's value is the run's id: Dagster copies tags to re-executed runs, and copied tags
        # do not count.
        updated = frozenset(
            table
            for table in selected
            if run.tags.get(machine_tag(f"{_READ_NOTHING}/{table}")) != run.run_id
        )
        seconds = None if record.start_time is None else record.end_time - record.start_time
        readers.append(
            ReaderRun(tables=updated, ended_ms=int(record.end_time * 1000), seconds=seconds)
        )
    return tuple(readers)


def tag_as_read_nothing(instance: dg.DagsterInstance, run_id: str, table: Table) -> None:
    """Tags a run that did not read the table's inputs, because they had not changed."""
    with suppress(Exception):
        instance.add_run_tags(run_id, {machine_tag(f"{_READ_NOTHING}/{table.key}"): run_id})


def _observations(instance: dg.DagsterInstance, table: Table) -> Iterable[dg.EventLogRecord]:
    """The table's newest observation; of an adopted table, the newest by this program, if found."""
    if not table.adopted:
        return instance.fetch_observations(table_key(table), limit=1).records
    for limit in _OBSERVATIONS_LOOKED_AT:
        records = instance.fetch_observations(table_key(table), limit=limit).records
        for record in records:
            if "lakehouse/state" in _metadata(record):
                return [record]
    return ()


def _metadata(record: dg.EventLogRecord) -> Mapping[str, dg.MetadataValue[Any]]:
    event = record.asset_materialization or record.event_log_entry.asset_observation
    return event.metadata if event else {}


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
    """The retention as an asset, which runs every hour."""

    @dg.asset(
        key=["maintenance", "records"],
        group_name="maintenance",
        kinds={"sql"},
        pool="maintenance_records",
        automation_condition=by_clock(RECORDS_CRON),
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
