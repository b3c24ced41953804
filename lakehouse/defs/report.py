"""The morning page as an asset, by default `report/daily`.

It usually runs after the night's inventory and vacuums. The page is stored below the lake's root,
and the asset's metadata contains its address.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg

from lakehouse.core.declaration.table import Table
from lakehouse.core.metrics.facts import DagsterRecords
from lakehouse.core.text import count_of
from lakehouse.defs.failures import errors_for_dagster
from lakehouse.defs.keys import report_key, table_key
from lakehouse.defs.metadata.fleet import fleet_metadata
from lakehouse.defs.sql_records import measured_records
from lakehouse.defs.upkeep_times import REPORT_CRON
from lakehouse.engine.lake import Lake


def report_asset(
    load_lake: Callable[[], tuple[Lake, Sequence[Table]]],
    *,
    name: str = "daily",
    after: Sequence[dg.AssetKey] = (),
) -> dg.AssetsDefinition:
    """The asset that writes the page of a lake.

    The asset runs every morning. The first run starts earlier, as soon as all assets in `after`
    exist. `load_lake` returns the lake and its tables. It is called in a run, never while
    definitions are loaded.
    """
    key = report_key(name)

    @dg.asset(
        key=key,
        deps=after,
        group_name="report",
        kinds={"html"},
        pool="_".join(key.path),
        automation_condition=_every_morning(after),
        description="The state of all tables, worst first. Each morning's run also writes one HTML "
        "page, as `lakehouse report` does. The page shows what needs attention, which upkeep ran, "
        "why other upkeep did not run, and what the tables cost.",
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        from lakehouse.engine.report.read import read_page
        from lakehouse.engine.report.stored_pages import NEWEST, store_page
        from lakehouse.report.render_page import render_page

        with errors_for_dagster(context):
            lake, tables = load_lake()
            page = read_page(
                lake,
                {table.key: table for table in tables},
                records=_records(context.instance),
            )
            html = render_page(page)
            store_page(lake.store, html, page.as_json(), now_ms=page.created_ms)
        address = f"{lake.settings.root}/{NEWEST}"
        context.log.info(f"{address}: {count_of(len(page.attention), 'item')} for your attention")
        keys = {table.key: table_key(table) for table in tables}
        return dg.MaterializeResult(
            metadata={
                **fleet_metadata(page.tables, keys),
                "lakehouse/page": dg.MetadataValue.path(address),
                "lakehouse/needs_person": len(page.attention),
                "lakehouse/bytes": len(html.encode("utf-8", "replace")),
            }
        )

    return report


def _records(instance: dg.DagsterInstance) -> DagsterRecords | None:
    """The size and checks of Dagster's records; `None` if they cannot be read."""
    with suppress(Exception):
        return measured_records(instance)
    return None


def _every_morning(after: Sequence[dg.AssetKey]) -> dg.AutomationCondition[Any]:
    """Requests a run every morning, and the first run as soon as all assets in `after` exist."""
    condition = dg.AutomationCondition
    morning = condition.cron_tick_passed(REPORT_CRON)
    if not after:
        return morning & ~condition.in_progress()
    handled = condition.newly_requested() | condition.newly_updated()
    first = (condition.missing() & ~condition.any_deps_missing()).newly_true().since(handled)
    return (morning | first) & ~condition.in_progress()
