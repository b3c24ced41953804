"""The inventory of the lake's bucket, and one vacuum asset per table, downstream of the inventory.

A sensor loads reports of AWS. A new inventory requests the vacuums of all tables in one run, except
those that opt out. With `Vacuum(after_compaction=True)`, a compaction also requests the vacuum of
its table. A vacuum asset depends only on the inventory (`maintain` has none, and uses a cron) and,
with `after_compaction`, on the compaction. A dependency on the table would make Dagster show
"Unsynced" after each write (`assets/keys.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from lakehouse.assets.events import Event, Reporter, reporter_of
from lakehouse.assets.keys import (
    NIGHTLY_CRON,
    LoadLake,
    by_clock,
    compaction_key,
    inventory_key,
    table_key,
    upkeep_options,
    vacuum_key,
)
from lakehouse.assets.metadata import operation_metadata
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.stored_objects import MAX_AGE_HOURS
from lakehouse.base.text import count_of
from lakehouse.compact.asset import skip_reason
from lakehouse.declare.table import Table, undeclared_among, undeclared_sentence
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.store import TimeBudget
from lakehouse.vacuum.inventory.plan import CHECKS, assess_missing, assess_readable
from lakehouse.watch.check import check_fields

if TYPE_CHECKING:
    from lakehouse.vacuum.facts import LakeFacts
    from lakehouse.vacuum.inventory.run import InventoryOutcome
    from lakehouse.vacuum.plan.vacuum import VacuumOutcome

# Seconds between two ticks. AWS delivers one report a day, and a tick costs two or three listings.
_SECONDS = 300


class InventoryConfig(dg.Config):
    """Options of one run.

    `configuration`: load only a report of this configuration; empty loads the newest of any.
    """

    configuration: str = ""


def inventory_asset(tables: Sequence[Table], lake: Lake) -> dg.AssetsDefinition:
    """The inventory asset: adds an inventory to its table, and compares it with the tables' logs.

    The inventory is the newest complete report from AWS. If AWS delivers none, it is a scan.
    """
    key = inventory_key(lake)

    @dg.asset(
        key=key,
        group_name="inventory",
        kinds={"deltalake", "s3" if lake.settings.on_s3 else "file"},
        pool="_".join(key.path),
        description=f"Compares the contents of bucket {lake.store.bucket} with the tables' logs, "
        "to the byte. Deletes nothing.",
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=MAX_AGE_HOURS)),
        automation_condition=daily_and_once_soon(tables),
        metadata={
            "dagster/uri": lake.settings.table_uri("/".join(key.path)),
            "dagster/storage_kind": "deltalake",
        },
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=text) for name, text in CHECKS.items()
        ],
    )
    def inventory(context: dg.AssetExecutionContext, config: InventoryConfig) -> Iterator[Event]:
        from lakehouse.vacuum.inventory.run import update_inventory

        with errors_for_dagster(context):
            configuration = config.configuration or None
            outcome = update_inventory(lake, tables, now_ms=now_ms(), configuration=configuration)
        yield from inventory_events(reporter_of(context), lake, tables, outcome)

    return inventory


def inventory_events(
    reporter: Reporter, lake: Lake, tables: Sequence[Table], outcome: "InventoryOutcome"
) -> Iterator[Event]:
    """What a load reports: its figures, and the results of its checks."""
    missing = assess_missing(outcome.reconciliation)
    readable = assess_readable(outcome.reconciliation, address=lake.settings.root)
    key = inventory_key(lake)
    metadata: dict[str, Any] = {
        "lakehouse/report": outcome.inventory.name,
        "lakehouse/objects": outcome.inventory.object_count,
        "lakehouse/size_bytes": outcome.inventory.size_bytes,
        "lakehouse/rows_loaded": outcome.newly_loaded,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/missing_files": missing.numbers["missing_files"],
    }
    found = [table.table for table in outcome.reconciliation.tables]
    undeclared = undeclared_among(found, tables)
    if undeclared:
        metadata["lakehouse/not_declared"] = undeclared_sentence(undeclared)
    yield dg.MaterializeResult(asset_key=key, metadata=metadata)
    for result in (missing, readable):
        if not result.ok:
            reporter.tell(f"{result.name}: {result.sentence}")
        yield dg.AssetCheckResult(asset_key=key, **check_fields(result))


def daily_and_once_soon(tables: Sequence[Table]) -> dg.AutomationCondition[Any]:
    """Requests a run once a day, and the first run as soon as a final table exists.

    A final table has inputs, and no other table reads it; if there is no such table, every table
    counts as final. Before a final table exists, an inventory has little to show.
    """
    inputs = {source.key for table in tables for source in table.inputs}
    final = [table for table in tables if table.inputs and table.key not in inputs] or tables
    exists = ~dg.AutomationCondition.missing()
    any_exists = reduce(
        or_, (dg.AutomationCondition.asset_matches(table_key(table), exists) for table in final)
    )
    handled = dg.AutomationCondition.newly_requested() | dg.AutomationCondition.newly_updated()
    first = (
        (dg.AutomationCondition.missing() & any_exists)
        .newly_true()
        .since(handled)
        .with_label("first_tables_are_there")
    )
    daily = dg.AutomationCondition.on_cron(NIGHTLY_CRON)
    return (first | daily) & ~dg.AutomationCondition.in_progress()


def inventory_sensor(lake: Lake) -> dg.SensorDefinition:
    """Requests a load when an AWS report is complete, and otherwise reports what it waits for.

    A tick lists the names of the configurations, and the names of each configuration's reports. It
    then reads a few `manifest.checksum` files, which AWS writes last. It reads no report. A report
    is requested once (`run_key`): if its load fails, the daily run tries again.
    """
    key = inventory_key(lake)
    budget = TimeBudget()
    bounded = lake.within(budget)

    @dg.sensor(
        name="inventory_sensor",
        target=dg.AssetSelection.assets(key),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS,
        description="Requests a load when a new inventory report of the bucket is complete.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        try:
            report, text = _newest(bounded)
        except (Transient, Refused, Broken) as error:
            return dg.SensorResult(skip_reason=f"the reports cannot be listed now: {error}")
        if report is None:
            return dg.SensorResult(skip_reason=text)
        context.log.info(text)
        request = dg.RunRequest(run_key=report, tags={"lakehouse/report": report})
        return dg.SensorResult(run_requests=[request])

    return tick


def _newest(lake: Lake) -> tuple[str | None, str]:
    """The newest complete report, or `None` if the inventory table has it; and a sentence."""
    from lakehouse.vacuum.inventory.run import known_inventories
    from lakehouse.vacuum.inventory.stored_reports import newest_complete, report_names

    names = report_names(lake.store)
    if not names:
        scan = "the inventory scans the bucket itself once a day"
        return None, f"no report of bucket {lake.store.bucket} was delivered; {scan}"
    complete = newest_complete(lake.store)
    if complete is None:
        return None, f"report {names[0]} is not complete yet: it has no manifest.checksum"
    name = complete[0]
    if name in {each.name for each in known_inventories(lake)}:
        return None, f"report {name} is loaded, and no later one is complete"
    return name, f"report {name} is complete"


DELETED = "deleted"
_CHECKED = "No deletion of the last vacuum failed."


class VacuumConfig(dg.Config):
    """Options of one run.

    `anyway`: vacuum even if the table is paused or opted out. `mode`: use this mode instead of the
    cheapest one.
    """

    anyway: bool = False
    mode: str = ""


def vacuum_asset(
    table: Table,
    lake: Lake,
    load_lake: LoadLake,
    *,
    cron: str = "",
    resource: str = "spark",
) -> dg.AssetsDefinition:
    """The asset that vacuums a table.

    Unless the table opts out, it runs after each inventory or, if `cron` is given, at these times
    (UTC). `resource` is the key of the resource that opens its Spark session. `load_lake` returns
    the lake and all its tables, because other tables may read files of this table (shallow clones).
    It is called in a run, never while definitions are loaded.
    """
    triggers = [] if cron else [inventory_key(lake)]
    if table.vacuum.after_compaction:
        triggers.append(compaction_key(table))

    @dg.asset(
        **{
            **upkeep_options("vacuum", table, resource=resource),
            "op_tags": {"dagster/priority": "-2"},  # after the compactions of the same run
        },
        deps=triggers,
        automation_condition=_when(triggers, cron) if table.vacuum.mode == "automatic" else None,
        description=f"Deletes the files that no version of {table.key} within its retention needs. "
        "Does not change any rows.",
        check_specs=[dg.AssetCheckSpec(DELETED, asset=vacuum_key(table), description=_CHECKED)],
    )
    def vacuum(context: dg.AssetExecutionContext, config: VacuumConfig) -> Iterator[Event]:
        with errors_for_dagster(context):
            facts = _facts_of_run(context.run.run_id, load_lake)
            outcome = _vacuum_unless_skipped(context, config, facts, table, resource)
        if outcome is None:
            records = vacuum_records(lake, table.key)
            yield _deleted(table, records[-1].failed if records else {})
        else:
            yield from vacuum_events(table, outcome)

    return cast("dg.AssetsDefinition", vacuum)


def _vacuum_unless_skipped(
    context: dg.AssetExecutionContext,
    config: VacuumConfig,
    facts: "LakeFacts",
    table: Table,
    resource: str,
) -> "VacuumOutcome | None":
    """Vacuums a table in a run of its asset; `None` if there is a reason to skip it."""
    from lakehouse.assets.resources import open_session
    from lakehouse.vacuum.run import vacuum as run_vacuum

    reason = "" if config.anyway else skip_reason(context, facts.lake, table, "vacuum")
    if reason:
        context.log.info(reason)
        return None
    outcome = run_vacuum(
        facts,
        partial(open_session, context, getattr(context.resources, resource)),
        table,
        mode=config.mode or None,  # type: ignore[arg-type]  # unknown modes are refused
        owner=f"run {context.run.run_id}",
    )
    sentence = outcome.plan.sentence if outcome else "skipped, because it has not been written yet"
    context.log.info(f"{table.key}: {sentence}")
    return outcome


def vacuum_events(table: Table, outcome: "VacuumOutcome") -> Iterator[Event]:
    """What a vacuum reports: its figures, and whether every deletion succeeded."""
    metadata = operation_metadata("vacuum", outcome)
    yield dg.MaterializeResult(asset_key=vacuum_key(table), metadata=metadata)
    yield _deleted(table, outcome.failed)


@lru_cache(maxsize=1)
def _facts_of_run(run_id: str, load_lake: LoadLake) -> "LakeFacts":
    """The lake's facts, which the vacuums of one run share. Facts of other runs are dropped."""
    from lakehouse.vacuum.facts import LakeFacts

    del run_id  # only a key of the cache
    return LakeFacts(*load_lake())


def _when(triggers: Sequence[dg.AssetKey], cron: str) -> dg.AutomationCondition[dg.AssetKey]:
    """Requests a run after an update of any trigger, and at the times of `cron`, if given.

    This is Dagster's `eager`, limited to the triggers. A write to the table is not a trigger: the
    files it replaces cannot be deleted before the retention ends. A trigger that was never
    materialized does not block the vacuum, for example the compaction asset of a table that has
    never needed a compaction.
    """
    eager = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
    follows = eager.allow(dg.AssetSelection.assets(*triggers)).with_label("follows_triggers")
    if not cron:
        return follows
    return by_clock(cron) | follows if triggers else by_clock(cron)


def _deleted(table: Table, errors: Mapping[str, str]) -> dg.AssetCheckResult:
    """The result of the check: it passes if no deletion of the last vacuum failed."""
    description = "no deletion failed"
    if errors:
        name, error = next(iter(errors.items()))
        description = (
            f"{count_of(len(errors), 'file')} could not be deleted, for example {name}: {error}"
        )
    return dg.AssetCheckResult(
        asset_key=vacuum_key(table),
        check_name=DELETED,
        passed=not errors,
        description=description,
        metadata={"failed": len(errors)},
    )
