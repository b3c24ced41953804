"""Dagster runs a small lake for real: landed files, bronze, silver, compaction, and what the events say afterwards."""

import json
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.lake.lake import Lake
from lakehouse.materialize.asset import table_asset
from lakehouse.watch.check import check_names, health_check
from lakehouse_tests.support.dagster_events import tick_of
from lakehouse_tests.support.example_assets import TABLES, latest_orders, orders, totals

pytestmark = pytest.mark.spark


class Runs:
    """Runs of the example's tables on one lake and one instance."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        made = (table_asset, compaction_asset, health_check)
        assets = [make(table, lake) for table in TABLES for make in made]
        resources = {"spark": spark_resource(lake.settings)}
        self.definitions = dg.Definitions(assets=assets, resources=resources)

    def of(self, *keys: dg.AssetKey) -> dg.ExecuteInProcessResult:
        """One run of these assets, with the checks that come with them."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, asset_selection=list(keys))

    def requested(self, cursor: Any = None) -> Any:
        """What the automation of the assets asks for."""
        return dg.evaluate_automation_conditions(self.definitions, self.instance, cursor=cursor)

    def compactions(self) -> list[dg.RunRequest]:
        """What the sensor asks for."""
        return tick_of(compaction_sensor(TABLES, self.lake), self.instance).run_requests or []

    def data_versions(self) -> list[str | None]:
        keys = map(table_key, TABLES)
        newest = [self.instance.fetch_materializations(key, limit=1).records[0] for key in keys]
        return [each.asset_materialization.tags.get("dagster/data_version") for each in newest]


def test_a_compaction_is_asked_for_runs_as_predicted_and_sets_off_nothing(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    runs = Runs(dagster_lake, instance)
    for number in range(4):
        line = json.dumps({"id": f"order-{number}", "amount": 7})
        dagster_lake.store.put(f"landing/orders/{number}.json", line.encode())
        runs.of(table_key(orders))
    runs.of(table_key(latest_orders), table_key(totals))
    cursor = runs.requested().cursor
    [request] = runs.compactions()
    assert request.asset_selection == [compaction_key(orders)]
    versions = runs.data_versions()

    result = runs.of(compaction_key(orders))

    [event] = result.get_asset_materialization_events()
    shown = event.materialization.metadata["lakehouse/compaction"].value["figures"]
    assert shown["files_removed"]["predicted"] == shown["files_removed"]["actual"] == 4
    assert shown["files_added"]["predicted"] == shown["files_added"]["actual"] == 1
    assert shown["bytes_removed"]["predicted"] == shown["bytes_removed"]["actual"] > 0
    assert newest_facts(instance, [orders])[orders.key].values["lakehouse/file_count"] == 1
    passed = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert passed == dict.fromkeys(check_names(orders, dagster_lake), True)
    assert runs.compactions() == []
    assert runs.requested(cursor).total_requested == 0
    runs.of(*map(table_key, TABLES))
    assert runs.data_versions() == versions
