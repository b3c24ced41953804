"""Tables that others write, as observable assets, and the one sensor that reads their logs when
they have changed.

The sensor asks of each table whether its newest commit is still the newest, and still the same: two
small requests. Only if not is the log read; what it says becomes an observation of the table,
without a run. No Spark. It is made again where others have told so much of the table since that it
is no longer among the newest, where the compaction sensor looks for it.
"""

import json
import warnings
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg

from lakehouse.core.checks import CheckResult
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.defs.dagster_records import newest_facts
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.health import evaluation_of, judge
from lakehouse.defs.keys import table_key
from lakehouse.defs.metadata.table import declared_metadata, table_metadata
from lakehouse.defs.table_assets import data_version
from lakehouse.engine.adoption.find_tables import facts_of, is_table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import TimeBudget
from lakehouse.engine.table_health import Assessment, assess

# A look costs two HEADs for each table on S3, and nothing on a disk.
_SECONDS_ON_DISK, _SECONDS_ON_S3 = 10, 60
_ASKED_AT_ONCE = 16
# The part of a tick in which tables are asked whether they have changed; the rest is for reading
# them.
_ASKED_SHARE = 0.25
# Whether all files are there takes a listing of them; a log that could not be read is read again
# after this time, too.
_CHECK_AGAIN_MS = 3_600_000
# Source: dagster 1.13, dagster/_core/definitions/data_version.py
_DATA_VERSION = "dagster/data_version"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A table as it was observed last: the newest file of its log, `None` where it could not be
    read or is not made yet; and its checks.
    """

    newest: LogFile | None = None
    is_made: bool = True
    checked_ms: int = 0

    @property
    def sentence(self) -> str:
        if self.newest is not None:
            return f"version {self.newest.version}"
        return "it cannot be read" if self.is_made else "it is not made yet"

    @property
    def has_fresh_checks(self) -> bool:
        """Whether its checks were made within the hour; any that lie ahead are of a clock that was
        set back since.
        """
        return 0 <= now_ms() - self.checked_ms < _CHECK_AGAIN_MS


def observed_asset(table: Table, lake: Lake) -> Any:
    """The asset of a table that others write: a run of it reads the log, and tells the table's
    counts and its data version.
    """

    def observe(context: dg.OpExecutionContext) -> dg.ObserveResult:
        with dagster_words(context):
            assessed = _assessed(table, lake)
        assert (
            assessed is not None
        )  # it has no asset but this one, so that it is refused where it is not there
        return dg.ObserveResult(
            metadata=table_metadata(table, assessed),
            data_version=dg.DataVersion(data_version(assessed.facts)),
        )

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", dg.BetaWarning
        )  # of 1.13: its name may change, and Dagster is pinned
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
    """Observes those tables whose logs have changed, and checks them at most once an hour.

    The page shows it with their assets where `assets_are_known`; Dagster refuses a target that no
    asset of the project has. Tables that a tick leaves follow in the next one, the one whose last
    look is the longest ago first. So a table whose storage does not answer comes last.
    """
    budget = budget or TimeBudget()
    bounded = lake.within(budget)

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*(table_key(table) for table in tables))
        if assets_are_known
        else None,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS_ON_S3
        if any(lake.on_s3(table.key) for table in tables)
        else _SECONDS_ON_DISK,
        description="Reads the logs of the tables that others write, where they have changed.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        seen = _read_cursor(context.cursor)
        known = [
            table for table in tables if table.key in seen and seen[table.key].newest is not None
        ]
        hidden = {table.key for table in known} - newest_facts(context.instance, known).keys()
        events, told = list[dg.AssetObservation | dg.AssetCheckEvaluation](), list[str]()
        changed, silent = _changed(tables, bounded, seen, budget, hidden=hidden)
        for number, table in enumerate(changed):
            if number and budget.is_late():
                told.append(f"{len(changed) - number} more left for the next tick")
                break
            before = seen.pop(table.key, None)  # it is put back behind all others
            try:
                seen[table.key], found = _observe(table, bounded, before)
            except Transient as error:
                seen[table.key] = before or _Seen()
                told.append(f"{table.key}: {error}")
                continue
            events += found
            told.append(f"{table.key}: {seen[table.key].sentence}")
        for key, error in silent.items():
            seen[key] = seen.pop(key)
            told.append(f"{key}: {error}")
        cursor = json.dumps(
            {
                key: asdict(each)
                for key, each in seen.items()
                if key in {table.key for table in tables}
            }
        )
        text = "; ".join(told) or f"nothing new in {len(tables)} tables"
        return dg.SensorResult(asset_events=events, cursor=cursor, skip_reason=text)

    return look


def _assessed(table: Table, lake: Lake) -> Assessment | None:
    """The table now; `None` if the project's asset has not written it yet."""
    is_awaited = isinstance(table.write, Adopted) and bool(table.write.asset_key)
    facts = lake.facts(table.key) if is_awaited else facts_of(lake, table)
    return facts and assess(lake, table, facts)


def _changed(
    tables: Sequence[Table],
    lake: Lake,
    seen: Mapping[str, _Seen],
    budget: TimeBudget,
    *,
    hidden: Set[str],
) -> tuple[list[Table], dict[str, Transient]]:
    """The tables to read now, those longest unseen first; and those whose storage does not answer,
    with the error.

    Read is what was never seen, is hidden, has a newer commit, or another one as its newest. `seen`
    is in the order in which the tables were read last.
    """
    silent: dict[str, Transient] = {}

    def is_changed(table: Table) -> bool:
        before = seen.get(table.key)
        if (
            before is None
            or table.key in hidden
            or (before.newest is None and not before.has_fresh_checks)
        ):
            return True
        if budget.is_late(_ASKED_SHARE):
            return False
        try:
            if before.newest is not None:
                return lake.has_moved_on(table.key, before.newest)
            return not before.is_made and is_table(lake.store, table.key)
        except Transient as error:
            silent[table.key] = error
            return False
        except LakehouseError:
            return True  # reading it says what is wrong

    turns = {key: number for number, key in enumerate(seen)}
    in_turn = sorted(tables, key=lambda table: turns.get(table.key, -1))
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
        changed = [*pool.map(is_changed, in_turn)]
    found = [table for table, is_new in zip(in_turn, changed, strict=True) if is_new]
    return found, silent


def _observe(
    table: Table, lake: Lake, before: _Seen | None
) -> tuple[_Seen, list[dg.AssetObservation | dg.AssetCheckEvaluation]]:
    """A tick's sight of one table, and the events that tell it.

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
    results = (
        [evaluation_of(table, result) for result in judge(table, lake, assessed)]
        if checked_ms is None
        else []
    )
    seen = _Seen(newest=assessed.facts.newest, checked_ms=now if checked_ms is None else checked_ms)
    return seen, [observation, *results]


def _read_cursor(cursor: str | None) -> dict[str, _Seen]:
    """The tables as seen before; a cursor that cannot be read costs one reading of every log."""
    try:
        told = json.loads(cursor or "{}")
        return {
            key: _Seen(**{**each, "newest": each["newest"] and LogFile(**each["newest"])})
            for key, each in told.items()
        }
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}
