"""Observable assets of tables that other programs write, and the sensor that reads changed logs.

For each table, two small requests show whether the last known commit is unchanged and still the
newest. If not, the sensor reads the log and reports an observation of the table, without a run and
without Spark.
"""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import compress
from typing import Any

import dagster as dg

from lakehouse.assets.keys import table_key
from lakehouse.assets.metadata import (
    DATA_VERSION,
    data_version,
    declared_metadata,
    health_result,
    table_metadata,
)
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import CheckResult
from lakehouse.base.text import count_of
from lakehouse.compact.assess import Assessment, assess
from lakehouse.declare.adopted import is_maintained
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import log_version
from lakehouse.lake.declared_tables import MaintainedRecord
from lakehouse.lake.lake import Lake, facts_of, is_table
from lakehouse.store import FairOrder, StoredFile, TimeBudget, at_once
from lakehouse.watch.check import evaluation_of, judge, unreadable

# Seconds between two ticks. A tick costs two HEAD requests per table on S3, and nothing on a disk.
_SECONDS_ON_DISK = 10
_SECONDS_ON_S3 = 60
# The share of a tick's time in which the sensor finds changed tables. The rest is for reading them.
_FINDING_SHARE = 0.25
# The check that all files exist takes a listing, so the checks run at most this often. An
# unreadable log is also read again after this time.
_CHECK_AGAIN_MS = 3_600_000

_Event = dg.AssetObservation | dg.AssetCheckEvaluation


@frozen
class _CursorEntry:
    """A table's entry in the sensor's cursor: its last observation.

    `newest` is the log file of its newest version, or `None` if the table could not be read or does
    not exist yet. `is_made` is false only if it does not exist yet. `checked_ms` is the time at
    which its checks last ran, or at which the log could not be read.
    """

    newest: StoredFile | None = None
    is_made: bool = True
    checked_ms: int = 0

    @property
    def sentence(self) -> str:
        if self.newest is not None:
            return f"version {log_version(self.newest.name)}"
        if self.is_made:
            return "it cannot be read"
        return "it does not exist yet"

    @property
    def has_fresh_checks(self) -> bool:
        """Whether `checked_ms` is within the last hour.

        A `checked_ms` in the future does not count, because then the clock was set back.
        """
        return 0 <= now_ms() - self.checked_ms < _CHECK_AGAIN_MS


_NEVER_READ = _CursorEntry()


def observed_asset(table: Table, lake: Lake) -> Any:
    """The observable asset of a table that other programs write.

    A run reads the log, and reports the table's counts and data version.
    """

    def observe(context: dg.OpExecutionContext) -> dg.ObserveResult:
        with errors_for_dagster(context):
            assessed = assessed_table(table, lake)
        # Only a table of `maintain` may not exist yet, and such a table has no observable asset.
        assert assessed is not None
        return dg.ObserveResult(
            metadata=table_metadata(table, assessed),
            data_version=dg.DataVersion(data_version(assessed.facts)),
        )

    # The decorator is beta in Dagster 1.13, so its name may change. Dagster is pinned.
    with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
        return dg.observable_source_asset(
            key=table_key(table),
            group_name=table.layer,
            description=table.description,
            metadata=declared_metadata(table, lake),
            tags={"dagster/kind/deltalake": "", f"dagster/kind/{table.layer}": ""},
        )(observe)


def observation_sensor(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "observation_sensor",
    assets_are_known: bool = True,
    budget: TimeBudget | None = None,
) -> dg.SensorDefinition:
    """Observes the tables whose logs have changed, and runs all checks of each at most hourly.

    With `assets_are_known`, the sensor targets the tables' assets, so that Dagster shows the sensor
    on their pages. Dagster refuses targets that are not among its assets. If a tick's time runs
    out, the next tick continues with the remaining tables.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)
    maintained = [table for table in tables if is_maintained(table)]
    record = MaintainedRecord(bounded, maintained, name=name) if maintained else None
    targets = dg.AssetSelection.assets(*(table_key(table) for table in tables))
    any_on_s3 = any(lake.on_s3(table.key) for table in tables)
    turns = FairOrder(table.key for table in tables)

    @dg.sensor(
        name=name,
        target=targets if assets_are_known else None,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS_ON_S3 if any_on_s3 else _SECONDS_ON_DISK,
        description="Reads the changed logs of tables that other programs write.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        entries = _read_cursor(context.cursor)
        sentences = list[str]()
        if record is not None:
            try:
                record.confirm(now_ms())
            except Transient as error:
                sentences.append(
                    f"the record of the maintained tables could not be confirmed: {error}"
                )
        changed, unreachable = _changed(tables, bounded, entries, budget)
        events, results = _observe_in_turn(changed, bounded, entries, turns.within(budget))
        sentences += results
        sentences += [f"{key}: {error}" for key, error in unreachable.items()]
        text = "; ".join(sentences) or f"nothing new in {count_of(len(tables), 'table')}"
        keys = {table.key for table in tables}
        cursor = {key: asdict(each) for key, each in entries.items() if key in keys}
        return dg.SensorResult(asset_events=events, cursor=json.dumps(cursor), skip_reason=text)

    return tick


def _observe_in_turn(
    changed: Iterable[Table], lake: Lake, entries: dict[str, _CursorEntry], turns: Iterable[str]
) -> tuple[list[_Event], list[str]]:
    """Observes the changed tables among `turns`; returns the events to report, and sentences."""
    left = {table.key: table for table in changed}
    events = list[_Event]()
    sentences = list[str]()
    for key in turns:
        if key not in left:
            continue
        try:
            previous = entries.get(key, _NEVER_READ)
            entries[key], new_events = _observe(left.pop(key), lake, previous)
        except Transient as error:
            sentences.append(f"{key}: {error}")
            continue
        events += new_events
        sentences.append(f"{key}: {entries[key].sentence}")
    if left:
        sentences.append(f"{len(left)} more left for the next tick")
    return events, sentences


def assessed_table(table: Table, lake: Lake) -> Assessment | None:
    """The assessment of the table; `None` if the project's asset has not written the table yet."""
    facts = lake.facts(table.key) if is_maintained(table) else facts_of(lake, table)
    return facts and assess(lake, table, facts)


def _changed(
    tables: Sequence[Table],
    lake: Lake,
    entries: Mapping[str, _CursorEntry],
    budget: TimeBudget,
) -> tuple[list[Table], dict[str, Transient]]:
    """The tables to read now, and errors of unreachable storage by table key.

    A table is read if it was never read, if its newest commit has changed, if it did not exist and
    now does, or if reading it failed, or found no table, an hour ago or more.
    """
    unreachable: dict[str, Transient] = {}

    def is_changed(table: Table) -> bool:
        previous = entries.get(table.key, _NEVER_READ)
        if previous.newest is None and not previous.has_fresh_checks:
            return True
        if budget.is_late(_FINDING_SHARE):
            return False
        try:
            if previous.newest is not None:
                return lake.has_moved_on(table.key, previous.newest)
            return not previous.is_made and is_table(lake.store, table.key)
        except Transient as error:
            unreachable[table.key] = error
            return False
        except LakehouseError:
            return True  # reading the table reports this error

    return [*compress(tables, at_once(is_changed, tables))], unreachable


def _observe(table: Table, lake: Lake, previous: _CursorEntry) -> tuple[_CursorEntry, list[_Event]]:
    """Observes one table; returns its new cursor entry and the events to report.

    Raises:
        Transient: storage does not answer.
    """
    now = now_ms()
    checked_ms = None  # all checks run, unless they ran within the last hour
    if previous.newest is not None and previous.has_fresh_checks:
        checked_ms = previous.checked_ms
    try:
        assessed = assessed_table(table, lake)
    except Transient:
        raise
    except LakehouseError as error:
        return _CursorEntry(checked_ms=now), [evaluation_of(table, unreadable("readable", error))]
    if assessed is None:
        return _CursorEntry(checked_ms=now, is_made=False), []
    tags = {DATA_VERSION: data_version(assessed.facts)}
    observation = dg.AssetObservation(
        table_key(table), metadata=table_metadata(table, assessed), tags=tags
    )
    results = list[CheckResult]()
    if checked_ms is None:
        checked_ms = now
        results += judge(table, lake, assessed)
    elif is_maintained(table):  # its page shows checks, but not our observations
        results.append(health_result(table, assessed))
    entry = _CursorEntry(newest=assessed.facts.newest, checked_ms=checked_ms)
    return entry, [observation, *(evaluation_of(table, result) for result in results)]


def _read_cursor(cursor: str | None) -> dict[str, _CursorEntry]:
    """The cursor's entries by table key. An unreadable cursor has none, so every log is read."""
    entries = dict[str, _CursorEntry]()
    try:
        for key, entry in json.loads(cursor or "{}").items():
            newest = entry["newest"] and StoredFile(**entry["newest"])
            entries[key] = _CursorEntry(**{**entry, "newest": newest})
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}
    return entries
