"""Dagster runs a small lake for real: landed files, bronze, silver, compaction, and what the events say afterwards."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from lakehouse.assets.dagster_records import newest_facts, reader_runs, recent_runs
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.land.asset import landing_sensor
from lakehouse.materialize.asset import table_asset
from lakehouse.spark.server.conf import TOKEN_VARIABLE
from lakehouse.watch.check import health_check
from lakehouse_tests.support.dagster_events import tick_of
from lakehouse_tests.support.example_assets import TABLES, latest_orders, orders, totals

pytestmark = pytest.mark.spark


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

    def warnings(self, run: dg.ExecuteInProcessResult) -> str:
        return "\n".join(
            entry.user_message
            for entry in self.instance.all_logs(run.run_id)
            if entry.level == logging.WARNING
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

    def stale_causes(self, table: Table) -> list[str]:
        """Why the page shows the table as out of date, by the resolver that it asks."""
        graph = self.definitions().resolve_asset_graph()
        resolver = CachingStaleStatusResolver(
            self.instance, graph, LoadingContextForTest(self.instance)
        )
        return [cause.reason for cause in resolver.get_stale_causes(table_key(table))]

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


def test_a_table_without_any_landed_file_records_nothing_and_fails_nothing(runs: Runs) -> None:
    result = runs.of(table_key(orders))
    assert result.success
    assert newest_facts(runs.instance, [orders]) == {}


def test_files_that_are_not_read_are_named_in_the_log_also_where_there_is_no_table_yet(
    runs: Runs,
) -> None:
    runs.lake.store.put("landing/orders/readme.txt", b"x")
    assert "readme.txt (1 bytes): its name ends in none of" in runs.warnings(
        runs.of(table_key(orders))
    )


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
    assert passed(result) == {
        "readable": True,
        "small_files": True,
        "log_debt": True,
        "breaker": True,
        "declaration": True,
        "quarantine": True,
    }
    assert all(map(runs.file_count, TABLES))
    # No secret is in the events.
    token = (runs.lake.settings.home / "server" / "token").read_text().strip()
    events = "\n".join(entry.to_json() for entry in runs.instance.all_logs(result.run_id))
    assert token not in events and TOKEN_VARIABLE not in events
    # A line that does not parse turns the check of the quarantine.
    runs.lake.store.put("landing/orders/2.json", b'{"id": "b", "amount": 1}\nnot json\n')
    assert passed(runs.of(table_key(orders)))["quarantine"] is False


@pytest.mark.long
def test_a_second_run_with_nothing_new_keeps_the_data_version_and_the_mark_of_changed_code(
    runs: Runs,
) -> None:
    runs.land("1.json", "a")
    runs.all_tables()
    before = runs.data_versions()
    again = runs.all_tables()
    assert runs.data_versions() == before
    reads = reader_runs(runs.instance, recent_runs(runs.instance, now_ms=now_ms() + 1), TABLES)
    # The second run read no input, and loaded nothing that had landed.
    assert (again.success, [sorted(each.tables) for each in reads]) == (
        True,
        [["bronze/orders"], sorted(table.key for table in TABLES)],
    )
    checks = dg.AssetSelection.checks_for_assets(table_key(orders))
    assert dg.materialize(
        runs.assets, selection=checks, resources=runs.resources, instance=runs.instance
    ).success
    reads = reader_runs(runs.instance, recent_runs(runs.instance, now_ms=now_ms() + 1), TABLES)
    assert len(reads) == 3 and not reads[0].tables  # it made no table

    changed = replace(latest_orders, transform=lambda orders: orders.select("amount", "id"))
    seen = dg.evaluate_automation_conditions(runs.definitions(), runs.instance).cursor
    runs.assets = [
        *(table_asset(each, runs.lake) for each in (orders, totals)),
        table_asset(changed, runs.lake),
    ]
    assert runs.stale_causes(changed) == ["has a new code version"]
    event = runs.of(table_key(changed)).get_asset_materialization_events()[0].materialization
    assert event.metadata["lakehouse/code_changed_since_version"].value == 0
    assert "Use lakehouse rebuild silver/orders" in str(event.metadata["lakehouse/outcome"])
    assert runs.data_versions() == before
    # The table still has the rows of the earlier code. Nothing downstream is out of date.
    assert runs.stale_causes(changed) == ["has a new code version"]
    assert runs.stale_causes(totals) == []
    asked = dg.evaluate_automation_conditions(runs.definitions(), runs.instance, cursor=seen)
    assert asked.total_requested == 0


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
    assert passed(result) == {
        "readable": True,
        "small_files": True,
        "log_debt": True,
        "breaker": True,
        "declaration": True,
        "quarantine": True,
    }
    assert ask(compaction_sensor(TABLES, runs.lake), runs.instance) == []
    assert (
        dg.evaluate_automation_conditions(
            runs.definitions(), runs.instance, cursor=cursor
        ).total_requested
        == 0
    )
    runs.all_tables()
    assert runs.data_versions() == versions


def test_what_was_loaded_is_not_asked_for_again(runs: Runs) -> None:
    runs.land("1.json", "a")
    sensor = landing_sensor(TABLES, runs.lake)
    assert ask(sensor, runs.instance)
    runs.of(table_key(orders))
    assert not ask(sensor, runs.instance)
    runs.land("2.json", "b")
    assert ask(sensor, runs.instance)
