"""The report as an asset, by default `report/daily`.

It usually runs after the night's inventory and vacuums. The page is stored below the lake's root,
and the asset's metadata contains its address.
"""

from contextlib import suppress
from typing import Any

import dagster as dg

from lakehouse.assets.keys import REPORT_CRON, LoadLake, by_clock
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.text import count_of

# Each run replaces the page.
_PAGE = "_lakehouse/reports/report.html"


def report_asset(
    load_lake: LoadLake,
    *,
    name: str = "daily",
) -> dg.AssetsDefinition:
    """The asset that writes the page of a lake.

    The asset runs every morning. `load_lake` returns the lake and its tables. It is called in a
    run, never while definitions are loaded.
    """
    key = dg.AssetKey(["report", name])

    @dg.asset(
        key=key,
        group_name="report",
        kinds={"html"},
        pool="_".join(key.path),
        automation_condition=by_clock(REPORT_CRON),
        description="Writes one HTML page, as `lakehouse report` does: what needs attention, the "
        "state of all tables, which compactions ran and why, and what the tables cost.",
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        from lakehouse.report.run import read_report, render_page

        with errors_for_dagster(context):
            lake, tables = load_lake()
            document = read_report(
                lake,
                {table.key: table for table in tables},
                failed_checks=_failed_checks(context),
            )
            html = render_page(document)
            lake.store.put(_PAGE, html.encode("utf-8", "replace"))
        address = f"{lake.settings.root}/{_PAGE}"
        items = count_of(len(document["attention"]), "item")
        context.log.info(f"{address}: {items} for your attention")
        return dg.MaterializeResult(
            metadata={
                "lakehouse/page": dg.MetadataValue.path(address),
                "lakehouse/needs_person": len(document["attention"]),
            }
        )

    return report


def _failed_checks(context: dg.AssetExecutionContext) -> list[tuple[str, str]]:
    """The asset and the name of each check whose newest result is a failure.

    Empty if the check's results cannot be read: the page is more important.
    """
    with suppress(Exception):
        keys = [*context.repository_def.asset_graph.asset_check_keys]
        storage = context.instance.event_log_storage
        records = storage.get_latest_asset_check_execution_by_key(keys)
        return [
            (key.asset_key.to_user_string(), key.name)
            for key, record in records.items()
            if record.evaluation is not None and not record.evaluation.passed
        ]
    return []
