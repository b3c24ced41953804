"""The inventory as Dagster shows it: a report is noticed, loaded and judged; the first one is made soon, and a day later the next."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import SensorResult

from lakehouse.assets.keys import inventory_key
from lakehouse.base.clock import now_ms
from lakehouse.base.stored_objects import StoredObject
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.asset import inventory_asset, inventory_sensor
from lakehouse.vacuum.inventory.run import update_inventory
from lakehouse.vacuum.inventory.stored_reports import REPORTS
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import materialized, skip_text, tick_of
from lakehouse_tests.support.example_assets import (
    TABLES,
    AwayStore,
    example_lake,
    latest_orders,
    orders,
    totals,
)
from lakehouse_tests.support.reports import row_of, write_report

HOUR = 3_600_000
type_of_tick = Callable[[], SensorResult]


def deliver(lake: Lake, stamp: str, *, complete: bool = True, configuration: str = "daily") -> None:
    """What a sensor sees of a report of AWS."""
    folder = f"{REPORTS}/{lake.store.bucket}/{configuration}/{stamp}"
    lake.store.put(f"{folder}/manifest.json", b"{}")
    if complete:
        lake.store.put(f"{folder}/manifest.checksum", b"0")


@pytest.fixture
def tick(dagster_lake: Lake, instance: dg.DagsterInstance) -> type_of_tick:
    """Ticks of one sensor."""
    return partial(tick_of, inventory_sensor(dagster_lake), instance)


def said(result: SensorResult) -> str:
    assert not result.run_requests
    return skip_text(result)


def asked(result: SensorResult) -> list[str | None]:
    return [request.run_key for request in result.run_requests or []]


@pytest.mark.usefixtures("no_java")
def test_a_report_is_waited_for_until_it_is_complete_and_asked_for_by_its_name(
    dagster_lake: Lake, tick: type_of_tick
) -> None:
    assert "no report of bucket local was delivered" in said(tick())
    deliver(dagster_lake, "2026-11-19T01-00Z", complete=False)
    waits = "is not complete yet: it has no manifest.checksum"
    assert said(tick()) == f"report daily/2026-11-19T01-00Z {waits}"
    deliver(dagster_lake, "2026-11-19T01-00Z")
    assert asked(tick()) == asked(tick()) == ["daily/2026-11-19T01-00Z"]  # Dagster makes one run
    deliver(dagster_lake, "2026-11-20T01-00Z")
    deliver(dagster_lake, "2026-11-21T01-00Z", complete=False)
    assert asked(tick()) == ["daily/2026-11-20T01-00Z"]


@pytest.mark.usefixtures("no_java")
def test_a_report_that_is_loaded_asks_for_nothing(dagster_lake: Lake, tick: type_of_tick) -> None:
    # Earlier versions of this program stored scans as reports.
    deliver(dagster_lake, "2026-11-19T01-00Z", configuration="lakehouse-scan")
    assert "was delivered" in said(tick())
    deliver(dagster_lake, "2026-11-19T01-00Z")
    assert asked(tick()) == ["daily/2026-11-19T01-00Z"]
    row = row_of(StoredObject(bucket="local", key="x", size_bytes=1, modified_ms=now_ms()))
    write_report(dagster_lake.store, [row], created_ms=now_ms(), file_format="CSV")
    name = update_inventory(dagster_lake, [], now_ms=now_ms()).inventory.name
    assert said(tick()) == f"report {name} is loaded, and no later one is complete"


@pytest.mark.usefixtures("no_java")
def test_silent_storage_is_waited_for(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    sensor = inventory_sensor(example_lake(tmp_path, AwayStore()))
    assert said(tick_of(sensor, instance)).startswith("the reports cannot be listed now: ")


@pytest.mark.usefixtures("no_java")
def test_the_first_inventory_waits_for_the_last_tables_and_the_next_for_the_day(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    definitions = dg.Definitions(assets=[inventory_asset(TABLES, dagster_lake), *map(spec, TABLES)])
    began = datetime.now(tz=UTC).replace(hour=12)
    more: dict[str, Any] = {
        "asset_selection": dg.AssetSelection.assets(inventory_key(dagster_lake)),
        "cursor": None,
    }

    def requests(**after: float) -> int:
        more["evaluation_time"] = began + timedelta(**after)
        result = dg.evaluate_automation_conditions(definitions, instance, **more)
        more["cursor"] = result.cursor
        return result.total_requested

    assert requests() == 0
    for table in (orders, latest_orders):
        materialized(instance, table)
    assert requests(minutes=1) == 0
    materialized(instance, totals)
    assert requests(minutes=2) == 1
    instance.report_runless_asset_event(dg.AssetMaterialization(inventory_key(dagster_lake)))
    assert [requests(minutes=3), requests(hours=10), requests(hours=20)] == [0, 0, 1]
    assert requests(hours=21) == 0


def spec(table: Any) -> dg.AssetSpec:
    return dg.AssetSpec(table.key.split("/"))


@pytest.mark.usefixtures("no_java")
def test_the_asset_scans_and_judges(dagster_lake: Lake, instance: dg.DagsterInstance) -> None:
    def run() -> dg.ExecuteInProcessResult:
        assets = [inventory_asset(TABLES, dagster_lake)]
        return dg.materialize(assets, instance=instance, raise_on_error=False)

    for key, files in (("bronze/orders", [("a", 5), ("b", 6)]), ("bronze/orders[x]", [("a", 5)])):
        LogBuilder(dagster_lake.store, key).create().append(files).store_data()
    dagster_lake.store.put("landing/orders/1.json", b"x" * 9)
    first = run()
    all_pass = dict.fromkeys(("readable", "missing"), True)
    assert first.success and results(first) == all_pass
    told = metadata(first)
    assert told["objects"] == told["rows_loaded"] > 4
    assert "which nothing maintains: bronze/orders[x]. Declare" in told["not_declared"]

    dagster_lake.store.delete(["bronze/orders/a"])
    second = run()
    assert second.success and results(second) == {**all_pass, "missing": False}
    assert metadata(second)["missing_files"] == 1

    deliver(dagster_lake, "2026-11-19T01-00Z")
    third = run()
    assert not third.success and results(third) == {}


def results(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = result.get_asset_materialization_events()
    entries = event.materialization.metadata.items()
    return {name.removeprefix("lakehouse/"): entry.value for name, entry in entries}
