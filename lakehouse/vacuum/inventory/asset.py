"""The inventory of the lake's bucket: an asset, its checks, and a sensor that loads reports."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse.assets.dagster_records import run_ids_in_flight
from lakehouse.assets.events import Event, Reporter, reporter_of
from lakehouse.assets.keys import NIGHTLY_CRON, inventory_key, table_key
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.stored_objects import MAX_AGE_HOURS
from lakehouse.declare.table import Table, undeclared_among, undeclared_sentence
from lakehouse.lake.lake import Lake
from lakehouse.store import TimeBudget
from lakehouse.vacuum.inventory.plan import CHECKS, assess_missing, assess_readable
from lakehouse.watch.check import check_fields

if TYPE_CHECKING:
    from lakehouse.vacuum.inventory.run import InventoryOutcome

# Seconds between two ticks. AWS delivers one report a day. On S3, a tick costs two or three
# listings; on a disk, nothing.
_SECONDS_ON_DISK = 10
_SECONDS_ON_S3 = 300


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
    results = (
        assess_missing(outcome.reconciliation),
        assess_readable(outcome.reconciliation, address=lake.settings.root),
    )
    key = inventory_key(lake)
    metadata: dict[str, Any] = {
        "lakehouse/report": outcome.inventory.name,
        "lakehouse/objects": outcome.inventory.object_count,
        "lakehouse/size_bytes": outcome.inventory.size_bytes,
        "lakehouse/rows_loaded": outcome.newly_loaded,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/missing_files": outcome.missing_count,
    }
    found = [table.table for table in outcome.reconciliation.tables]
    undeclared = undeclared_among(found, tables)
    if undeclared:
        metadata["lakehouse/not_declared"] = undeclared_sentence(undeclared)
    yield dg.MaterializeResult(asset_key=key, metadata=metadata)
    for result in results:
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
        minimum_interval_seconds=_SECONDS_ON_S3 if lake.settings.on_s3 else _SECONDS_ON_DISK,
        description="Requests a load when a new inventory report of the bucket is complete.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        budget.begin()
        try:
            report, text = _newest(bounded)
        except (Transient, Refused, Broken) as error:
            return dg.SensorResult(skip_reason=f"the reports cannot be listed now: {error}")
        runs = [] if report is None else run_ids_in_flight(context.instance, key)
        if runs:
            text = f"{text}; a run of the inventory is under way: {', '.join(runs)}"
        if report is None or runs:
            return dg.SensorResult(skip_reason=text)
        context.log.info(text)
        request = dg.RunRequest(run_key=report, tags={"lakehouse/report": report})
        return dg.SensorResult(run_requests=[request])

    return tick


def _newest(lake: Lake) -> tuple[str | None, str]:
    """The newest complete report, or `None` if the inventory table has it; and a sentence."""
    from lakehouse.vacuum.inventory.run import known_inventories
    from lakehouse.vacuum.inventory.stored_reports import complete_reports, stamps_of

    stamps = stamps_of(lake.store)
    if not stamps:
        scan = "the inventory scans the bucket itself once a day"
        return None, f"no report of bucket {lake.store.bucket} was delivered; {scan}"
    for configuration, stamp, _ in complete_reports(lake.store):
        name = f"{configuration}/{stamp}"
        if name in {each.name for each in known_inventories(lake)}:
            return None, f"report {name} is loaded, and no later one is complete"
        return name, f"report {name} is complete"
    newest = "/".join(stamps[0])
    return None, f"report {newest} is not complete yet: it has no manifest.checksum"
