"""Reads Dagster's records about the tables: newest facts, runs in flight, earlier tries, readers.

A few queries read the records of all tables. Only observations take a query per table, because
Dagster's storage has no query for the newest observations of several assets.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.storage.dagster_run import FINISHED_STATUSES, NOT_FINISHED_STATUSES  # not public

from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.runs import machine_tag
from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.decision import RunInFlight
from lakehouse.compact.plan.health import ReaderRun
from lakehouse.declare.adopted import Adopted
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
# The metadata key of a compaction's commit time.
COMMITTED = "lakehouse/committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestFacts:
    """A table's newest materialization or observation: its id, and its metadata by key."""

    storage_id: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRuns:
    """The runs in any state that were created since `since_ms`, newest first."""

    since_ms: int
    records: tuple[RunRecord, ...]


def newest_facts(
    instance: dg.DagsterInstance, tables: Sequence[Table]
) -> Mapping[str, NewestFacts]:
    """Each table's newest materialization or observation; a table with neither is omitted.

    Most of Dagster's own functions read materializations only. After a compaction, they would
    return the file count from before it.
    """
    written_here = [table_key(table) for table in tables if not isinstance(table.write, Adopted)]
    facts: dict[str, NewestFacts] = {}
    materialized = last_materializations(instance, written_here)
    for table in tables:
        records = list(_observations(instance, table))
        materialization = materialized.get(table_key(table))
        if materialization is not None:
            records.append(materialization)
        if records:
            newest = max(records, key=lambda record: record.storage_id)
            facts[table.key] = NewestFacts(storage_id=newest.storage_id, values=_values(newest))
    return facts


def last_compactions_ms(instance: dg.DagsterInstance, tables: Sequence[Table]) -> Mapping[str, int]:
    """The commit time of each table's newest compaction.

    A table is omitted if it was never compacted, or if its last compaction had nothing to do. The
    time of the materialization event would be too late: a probe may run after the commit.
    """
    events = last_materializations(instance, [compaction_key(table) for table in tables])
    times_ms = dict[str, int]()
    for table in tables:
        event = events.get(compaction_key(table))
        committed_seconds = None if event is None else _values(event).get(COMMITTED)
        if committed_seconds is not None:
            times_ms[table.key] = round(committed_seconds * 1000)
    return times_ms


def runs_in_flight(
    instance: dg.DagsterInstance, tables: Sequence[Table]
) -> tuple[RunInFlight, ...]:
    """The queued and running runs that write or compact a table, one entry per run and asset.

    The runs are found by their assets, because a run that Dagster's UI started lacks our tags.
    """
    by_compaction = {compaction_key(table): table for table in tables}
    by_key = {**by_compaction, **{table_key(table): table for table in tables}}
    runs = list[tuple[dg.DagsterRun, dg.AssetKey]]()
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        keys = by_key.keys() & _selected(instance, run)
        runs += [(run, key) for key in sorted(keys)]
    return tuple(
        RunInFlight(
            table=by_key[key].key,
            name=run.run_id[:8],
            is_compaction=key in by_compaction,
        )
        for run, key in runs
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


def run_ids_in_flight(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """The shortened ids of the queued and running runs that materialize one asset."""
    runs = instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return [run.run_id[:8] for run in runs if key in _selected(instance, run)]


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


def recent_runs(instance: dg.DagsterInstance, *, now_ms: int) -> RecentRuns:
    """The runs of the last day, at most the newest `_RUNS_LOOKED_AT` of them."""
    day_ago_ms = now_ms - DAY_MS
    day_ago = datetime.fromtimestamp(day_ago_ms / 1000, tz=UTC)
    records = instance.get_run_records(RunsFilter(created_after=day_ago), limit=_RUNS_LOOKED_AT)
    since_ms = day_ago_ms
    if len(records) == _RUNS_LOOKED_AT:
        since_ms = int(records[-1].create_timestamp.timestamp() * 1000)
    return RecentRuns(since_ms=since_ms, records=tuple(records))


def reader_runs(
    instance: dg.DagsterInstance, runs: RecentRuns, tables: Sequence[Table]
) -> tuple[ReaderRun, ...]:
    """The successful runs, each with its duration and the written tables whose inputs it read."""
    keys = {table_key(table): table.key for table in tables}
    readers: list[ReaderRun] = []
    for record in runs.records:
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


def last_materializations(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetKey, dg.EventLogRecord]:
    """The newest materialization of each asset; assets without one are omitted."""
    records = instance.get_asset_records(list(keys)) if keys else ()
    events = {
        record.asset_entry.asset_key: record.asset_entry.last_materialization_record
        for record in records
    }
    return {key: record for key, record in events.items() if record is not None}


def _observations(instance: dg.DagsterInstance, table: Table) -> Iterable[dg.EventLogRecord]:
    """The table's newest observation; of an adopted table, the newest by this program, if found."""
    if not isinstance(table.write, Adopted):
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


def _values(record: dg.EventLogRecord) -> dict[str, Any]:
    """The values of an event's metadata that are numbers, texts, times in seconds, or JSON."""
    kinds = (
        dg.IntMetadataValue,
        dg.FloatMetadataValue,
        dg.TextMetadataValue,
        dg.TimestampMetadataValue,
        dg.JsonMetadataValue,
    )
    return {
        name: entry.value
        for name, entry in _metadata(record).items()
        if isinstance(entry, kinds) and entry.value is not None
    }
