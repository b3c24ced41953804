"""Dagster runs a small lake for real: landed files, bronze, silver, compaction, and what the events say afterwards."""

import json
from collections.abc import Mapping, Sequence

import dagster as dg
import pytest

from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.asset import table_asset
from lakehouse.spark.server.conf import TOKEN_VARIABLE
from lakehouse.watch.check import health_check
from lakehouse_tests.support.dagster_events import tick_of
from lakehouse_tests.support.example_assets import TABLES, latest_orders, orders, totals

pytestmark = pytest.mark.spark
CHECKS = ("readable", "small_files", "log_debt", "breaker", "declaration", "quarantine")


class Runs:
    """Runs of the example's tables on one lake and one instance."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.resources = {"spark": spark_resource(lake.settings)}
        self.assets = [
            make(table, lake)
            for table in TABLES
            for make in (table_asset, compaction_asset, health_check)
        ]

    def land(self, name: str, *ids: str) -> None:
        """A landed file with one order per id."""
        lines = "".join(json.dumps({"id": each, "amount": len(each)}) + "\n" for each in ids)
        self.lake.store.put(f"landing/orders/{name}", lines.encode())

    def of(
        self, *keys: dg.AssetKey, tags: Mapping[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        """One run of these assets, with the checks that come with them."""
        return dg.materialize(
            self.assets,
            selection=list(keys),
            resources=self.resources,
            instance=self.instance,
            tags=tags,
        )

    def definitions(self) -> dg.Definitions:
        return dg.Definitions(assets=self.assets, resources=self.resources)

    def data_versions(self) -> dict[str, str | None]:
        return {table.key: self._data_version(table) for table in TABLES}

    def all_tables(self) -> dg.ExecuteInProcessResult:
        """One run of all of them."""
        return self.of(*map(table_key, TABLES))

    def _data_version(self, table: Table) -> str | None:
        [record] = self.instance.fetch_materializations(table_key(table), limit=1).records
        return record.asset_materialization.tags.get("dagster/data_version")

    def file_count(self, table: Table) -> int | None:
        return newest_facts(self.instance, [table])[table.key].values["lakehouse/file_count"]


@pytest.fixture
def runs(dagster_lake: Lake, instance: dg.DagsterInstance) -> Runs:
    return Runs(dagster_lake, instance)


def passed(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {
        evaluation.check_name: evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
    }


def ask(sensor: dg.SensorDefinition, instance: dg.DagsterInstance) -> Sequence[dg.RunRequest]:
    return tick_of(sensor, instance).run_requests or []


def test_landed_files_become_rows_and_checked_events_without_a_secret(runs: Runs) -> None:
    runs.land("1.json", "a", "bb")
    result = runs.all_tables()
    [event] = [
        event
        for event in result.get_asset_materialization_events()
        if event.asset_key == table_key(orders)
    ]
    metadata = event.materialization.metadata
    assert (metadata["dagster/row_count"].value, metadata["lakehouse/landed_batch"].value) == (2, 1)
    assert passed(result) == dict.fromkeys(CHECKS, True)
    assert all(map(runs.file_count, TABLES))
    # No secret is in the events.
    token = (runs.lake.settings.home / "server" / "token").read_text().strip()
    events = "\n".join(entry.to_json() for entry in runs.instance.all_logs(result.run_id))
    assert token not in events and TOKEN_VARIABLE not in events
    # A line that does not parse turns the check of the quarantine.
    runs.lake.store.put("landing/orders/2.json", b'{"id": "b", "amount": 1}\nnot json\n')
    assert passed(runs.of(table_key(orders)))["quarantine"] is False


def test_a_compaction_is_asked_for_runs_as_predicted_and_sets_off_nothing(runs: Runs) -> None:
    for number in range(4):
        runs.land(f"{number}.json", f"order-{number}")
        runs.of(table_key(orders))
    runs.of(table_key(latest_orders), table_key(totals))
    cursor = dg.evaluate_automation_conditions(runs.definitions(), runs.instance).cursor
    [request] = ask(compaction_sensor(TABLES, runs.lake), runs.instance)
    assert request.asset_selection == [compaction_key(orders)]
    versions = runs.data_versions()

    result = runs.of(compaction_key(orders))

    [event] = result.get_asset_materialization_events()
    shown = event.materialization.metadata["lakehouse/compaction"].value["figures"]
    assert shown["files_removed"]["predicted"] == shown["files_removed"]["actual"] == 4
    assert shown["files_added"]["predicted"] == shown["files_added"]["actual"] == 1
    assert shown["bytes_removed"]["predicted"] == shown["bytes_removed"]["actual"] > 0
    assert runs.file_count(orders) == 1
    assert passed(result) == dict.fromkeys(CHECKS, True)
    assert ask(compaction_sensor(TABLES, runs.lake), runs.instance) == []
    assert (
        dg.evaluate_automation_conditions(
            runs.definitions(), runs.instance, cursor=cursor
        ).total_requested
        == 0
    )
    runs.all_tables()
    assert runs.data_versions() == versions
