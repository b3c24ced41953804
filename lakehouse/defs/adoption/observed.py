"""Observable assets of tables that other programs write, and the sensor that reads changed logs.

For each table, two small requests show whether the last known commit is unchanged and still the
newest. If not, the sensor reads the log and reports an observation of the table, without a run and
without Spark. The sensor also repeats an observation that newer events have pushed out of the range
that the compaction sensor reads.
"""

import json
import warnings
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg

from lakehouse.core.adoption.maintained import is_maintained
from lakehouse.core.checks import CheckResult
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.text import count_of
from lakehouse.defs.dagster_records import newest_facts
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.health import evaluation_of, judge
from lakehouse.defs.keys import table_key
from lakehouse.defs.metadata.table import declared_metadata, health_result, table_metadata
from lakehouse.defs.table_assets import data_version
from lakehouse.engine.adoption.find_tables import facts_of, is_table
from lakehouse.engine.adoption.maintained import MaintainedRecord
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import TimeBudget
from lakehouse.engine.table_health import Assessment, assess

# Seconds between two ticks. A tick costs two HEAD requests per table on S3, and nothing on a disk.
_SECONDS_ON_DISK = 10
_SECONDS_ON_S3 = 60
_REQUESTS_AT_ONCE = 16
# The share of a tick's time in which the sensor finds changed tables. The rest is for reading them.
_FINDING_SHARE = 0.25
# The check that all files exist takes a listing, so the checks run at most this often. An
# unreadable log is also read again after this time.
_CHECK_AGAIN_MS = 3_600_000
# Source: dagster 1.13, dagster/_core/definitions/data_version.py
_DATA_VERSION = "dagster/data_version"

_Event = dg.AssetObservation | dg.AssetCheckEvaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A table's last observation.

    `newest` is the newest file of its log, or `None` if the table could not be read or does not
    exist yet. Only a table that does not exist has `is_made=False`. `checked_ms` is when its checks
    last ran.
    """

    newest: LogFile | None = None
    is_made: bool = True
    checked_ms: int = 0

    @property
    def sentence(self) -> str:
        if self.newest is not None:
            return f"version {self.newest.version}"
        return "it cannot be read" if self.is_made else "it does not exist yet"

    @property
    def has_fresh_checks(self) -> bool:
        """Whether the table's checks ran within the last hour.

        A `checked_ms` in the future does not count, because the clock was set back.
        """
        return 0 <= now_ms() - self.checked_ms < _CHECK_AGAIN_MS


def observed_asset(table: Table, lake: Lake) -> Any:
    """The observable asset of a table that other programs write.

    A run reads the log, and reports the table's counts and data version.
    """

    def observe(context: dg.OpExecutionContext) -> dg.ObserveResult:
        with dagster_words(context):
            assessed = _assessed(table, lake)
        # Only a table of `maintain` may not exist yet, and such a table has no observable asset.
        assert assessed is not None
        return dg.ObserveResult(
            metadata=table_metadata(table, assessed),
            data_version=dg.DataVersion(data_version(assessed.facts)),
        )

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", dg.BetaWarning
        )  # beta in 1.13: the name may change, but Dagster is pinned
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
    """Observes the tables whose logs have changed, and checks each at most once an hour.

    With `assets_are_known`, the sensor targets the tables' assets, so that Dagster shows the sensor
    on their pages. Dagster refuses targets that are not among its assets. If a tick's time runs
    out, the next tick continues with the remaining tables. Tables that were read longest ago come
    first, and a table whose storage did not answer comes last.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)
    maintained = [table for table in tables if is_maintained(table)]
    record = MaintainedRecord(bounded, maintained, name=name) if maintained else None
    targets = dg.AssetSelection.assets(*(table_key(table) for table in tables))
    any_on_s3 = any(lake.on_s3(table.key) for table in tables)

    @dg.sensor(
        name=name,
        target=targets if assets_are_known else None,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS_ON_S3 if any_on_s3 else _SECONDS_ON_DISK,
        description="Reads the changed logs of tables that other programs write.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        seen = _read_cursor(context.cursor)
        sentences = [] if record is None else _confirm(record)
        hidden = _hidden(context.instance, tables, seen)
        changed, unreachable = _changed(tables, bounded, seen, budget, hidden=hidden)
        events, results = _observe_in_turn(changed, bounded, seen, budget)
        sentences += results
        for key, error in unreachable.items():
            seen[key] = seen.pop(key)
            sentences.append(f"{key}: {error}")
        text = "; ".join(sentences) or f"nothing new in {count_of(len(tables), 'table')}"
        cursor = _as_cursor(seen, tables)
        return dg.SensorResult(asset_events=events, cursor=cursor, skip_reason=text)

    return tick


def _confirm(record: MaintainedRecord) -> list[str]:
    """Confirms that these tables are maintained; returns the message of an error, if any."""
    try:
        record.confirm(now_ms())
    except Transient as error:
        return [f"the record of the maintained tables could not be confirmed: {error}"]
    return []


def _hidden(
    instance: dg.DagsterInstance, tables: Sequence[Table], seen: Mapping[str, _Seen]
) -> set[str]:
    """The tables whose last observation is out of the compaction sensor's range."""
    known = [table for table in tables if table.key in seen and seen[table.key].newest is not None]
    return {table.key for table in known} - newest_facts(instance, known).keys()


def _observe_in_turn(
    tables: Sequence[Table], lake: Lake, seen: dict[str, _Seen], budget: TimeBudget
) -> tuple[list[_Event], list[str]]:
    """Observes tables until the time is up; returns the events to report, and sentences.

    `seen` is ordered by the last read, so each observed table moves to its end.
    """
    events = list[_Event]()
    sentences = list[str]()
    for number, table in enumerate(tables):
        if number and budget.is_late():
            sentences.append(f"{len(tables) - number} more left for the next tick")
            break
        before = seen.pop(table.key, None)
        try:
            seen[table.key], new_events = _observe(table, lake, before)
        except Transient as error:
            seen[table.key] = before or _Seen()
            sentences.append(f"{table.key}: {error}")
            continue
        events += new_events
        sentences.append(f"{table.key}: {seen[table.key].sentence}")
    return events, sentences


def _assessed(table: Table, lake: Lake) -> Assessment | None:
    """The assessment of the table; `None` if the project's asset has not written the table yet."""
    facts = lake.facts(table.key) if is_maintained(table) else facts_of(lake, table)
    return facts and assess(lake, table, facts)


def _changed(
    tables: Sequence[Table],
    lake: Lake,
    seen: Mapping[str, _Seen],
    budget: TimeBudget,
    *,
    hidden: Set[str],
) -> tuple[list[Table], dict[str, Transient]]:
    """The tables to read now, longest unread first, and errors of unreachable storage by table key.

    A table is read if it is new, if its newest commit has changed, or if it is `hidden`.
    """
    unreachable: dict[str, Transient] = {}

    def is_changed(table: Table) -> bool:
        before = seen.get(table.key)
        if (
            before is None
            or table.key in hidden
            or (before.newest is None and not before.has_fresh_checks)
        ):
            return True
        if budget.is_late(_FINDING_SHARE):
            return False
        try:
            if before.newest is not None:
                return lake.has_moved_on(table.key, before.newest)
            return not before.is_made and is_table(lake.store, table.key)
        except Transient as error:
            unreachable[table.key] = error
            return False
        except LakehouseError:
            return True  # reading the table reports this error

    turns = {key: number for number, key in enumerate(seen)}
    in_turn = sorted(tables, key=lambda table: turns.get(table.key, -1))
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as pool:
        changed = [*pool.map(is_changed, in_turn)]
    to_read = [table for table, is_new in zip(in_turn, changed, strict=True) if is_new]
    return to_read, unreachable


def _observe(table: Table, lake: Lake, before: _Seen | None) -> tuple[_Seen, list[_Event]]:
    """Observes one table; returns its new cursor entry and the events to report.

    Raises:
        Transient: storage does not answer.
    """
    now = now_ms()
    checked_ms = (
        before.checked_ms
        if before is not None and before.newest is not None and before.has_fresh_checks
        else None
    )
    try:
        assessed = _assessed(table, lake)
    except Transient:
        raise
    except LakehouseError as error:
        unreadable = CheckResult(name="readable", ok=False, sentence=str(error), is_error=True)
        return _Seen(checked_ms=now), [evaluation_of(table, unreadable)]
    if assessed is None:
        return _Seen(checked_ms=now, is_made=False), []
    tags = {_DATA_VERSION: data_version(assessed.facts)}
    observation = dg.AssetObservation(
        table_key(table), metadata=table_metadata(table, assessed), tags=tags
    )
    results = list[CheckResult]()
    if checked_ms is None:
        results += judge(table, lake, assessed)
    elif is_maintained(table):
        results.append(health_result(table, lake, assessed))
    seen = _Seen(newest=assessed.facts.newest, checked_ms=now if checked_ms is None else checked_ms)
    return seen, [observation, *(evaluation_of(table, result) for result in results)]


def _read_cursor(cursor: str | None) -> dict[str, _Seen]:
    """The tables as last seen. If the cursor is unreadable, none, so this tick reads every log."""
    try:
        stored = json.loads(cursor or "{}")
        return {
            key: _Seen(**{**each, "newest": each["newest"] and LogFile(**each["newest"])})
            for key, each in stored.items()
        }
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}


def _as_cursor(seen: Mapping[str, _Seen], tables: Sequence[Table]) -> str:
    """The next cursor, without tables that the sensor no longer observes."""
    keys = {table.key for table in tables}
    return json.dumps({key: asdict(each) for key, each in seen.items() if key in keys})
