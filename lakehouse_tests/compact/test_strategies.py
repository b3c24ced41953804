"""Who compacts under each strategy: the clock asks, the writer's own run does, nobody does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from lakehouse import AfterWrite, BySensor, Compaction, Scheduled, Table
from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.keys import by_clock, compaction_key, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.assets.runs import AUTOMATION_TAG, asked_by_person
from lakehouse.base.errors import Broken, LakehouseError, Transient
from lakehouse.base.operation import Pause
from lakehouse.compact import run
from lakehouse.compact.asset import compaction_asset
from lakehouse.declare.policies import Strategy
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table
from lakehouse.materialize.asset import table_asset
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import begun
from lakehouse_tests.support.example_assets import latest_orders, orders

NIGHTLY = Scheduled(cron="0 3 * * *")
THREE = datetime(2026, 11, 21, 3, tzinfo=UTC)


def under(strategy: Strategy, **more: Any) -> Table:
    return replace(orders, compaction=Compaction(strategy=strategy, min_small_files=2, **more))


def assets_of(lake: Lake, table: Table) -> list[Any]:
    return [table_asset(table, lake), compaction_asset(table, lake)]


def run_of(
    lake: Lake, instance: dg.DagsterInstance, table: Table, key: dg.AssetKey, **more: Any
) -> dg.ExecuteInProcessResult:
    resources = {"spark": spark_resource(lake.settings)}
    return dg.materialize(
        assets_of(lake, table),
        selection=[key],
        resources=resources,
        instance=instance,
        raise_on_error=False,
        **more,
    )


def test_only_a_scheduled_table_has_a_clock(dagster_lake: Lake) -> None:
    by_table = [
        [*compaction_asset(table, dagster_lake).automation_conditions_by_key.values()]
        for table in (under(NIGHTLY), latest_orders)
    ]
    assert by_table == [[by_clock("0 3 * * *")], []]


def test_the_clock_asks_for_the_compaction_once_unless_one_is_under_way(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    table = under(NIGHTLY)
    defs = dg.Definitions(
        assets_of(dagster_lake, table),
        resources={"spark": spark_resource(dagster_lake.settings)},
    )
    requested = list[int]()
    cursor = None
    for hours in (-1, 1, 2, 25):
        if hours == 25:
            begun(instance, compaction_key(table))
        result = dg.evaluate_automation_conditions(
            defs,
            instance,
            asset_selection=dg.AssetSelection.assets(compaction_key(table)),
            evaluation_time=THREE + timedelta(hours=hours),
            cursor=cursor,
        )
        cursor = result.cursor
        requested.append(result.total_requested)
    assert requested == [0, 1, 0, 0]


@pytest.mark.parametrize("mode", ["recommend", "automatic"])
def test_a_run_by_the_clock_leaves_a_held_table_alone_even_if_its_log_is_unreadable(
    dagster_lake: Lake, instance: dg.DagsterInstance, mode: str
) -> None:
    table = under(NIGHTLY, mode=mode)
    LogBuilder(dagster_lake.store, table.key).create()
    dagster_lake.store.put(f"{table.key}/_delta_log/{1:020}.json", b"no JSON")
    with pytest.raises(Broken):
        dagster_lake.facts(table.key)
    waits = "skipped, because its declaration says mode recommend"
    if mode == "automatic":
        pause_table(dagster_lake, Pause(table=table.key, since_ms=0))
        waits = "skipped, because paused since 1970-01-01"
    key = compaction_key(table)
    result = run_of(dagster_lake, instance, table, key, tags={AUTOMATION_TAG: "true"})
    told = " ".join(entry.user_message for entry in instance.all_logs(result.run_id))
    assert result.success and waits in told
    assert not run_of(dagster_lake, instance, table, key).success


SENSOR = {"dagster/sensor_name": "compaction_sensor"}
AGAIN = {**SENSOR, "dagster/parent_run_id": "0f"}


@pytest.mark.parametrize(
    ("tags", "by_person"),
    [
        (SENSOR, False),
        ({"dagster/schedule_name": "nightly"}, False),
        ({}, True),
        (AGAIN, True),
        ({**AGAIN, "dagster/retry_number": "1"}, False),
    ],
)
def test_who_asked_for_a_run_is_in_its_tags(tags: dict[str, str], by_person: bool) -> None:
    assert asked_by_person(tags) is by_person


def load(
    lake: Lake, instance: dg.DagsterInstance, table: Table, name: str
) -> dg.ExecuteInProcessResult:
    """A run of the table after one more file has landed."""
    lake.store.put(f"landing/orders/{name}.json", b'{"id": "a", "amount": 1}\n')
    return run_of(lake, instance, table, table_key(table))


def files_after(lake: Lake, instance: dg.DagsterInstance, table: Table, name: str) -> int:
    """Live files after such a run, which records as many."""
    assert load(lake, instance, table, name).success
    count = lake.facts(table.key).snapshot.file_count
    assert newest_facts(instance, [table])[table.key].values["lakehouse/file_count"] == count
    return count


@pytest.mark.spark
def test_after_each_write_the_files_fall_in_the_same_run(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert files_after(dagster_lake, instance, under(BySensor(), mode="off"), "a") == 1
    assert files_after(dagster_lake, instance, under(AfterWrite(), mode="recommend"), "b") == 2
    assert files_after(dagster_lake, instance, under(AfterWrite()), "c") == 1
    [event] = instance.fetch_materializations(compaction_key(orders), limit=9).records
    metadata = event.asset_materialization.metadata
    document = metadata["lakehouse/compaction"].value
    removed = document["figures"]["files_removed"]
    assert (removed["predicted"], removed["actual"], document["rows_verified"]) == (3, 3, 3)
    state = newest_facts(instance, [orders])[orders.key].values["lakehouse/state"]
    committed_ms = dagster_lake.facts(orders.key).history.committed_ms_of(document["version_after"])
    assert state["last_compaction_ms"] == committed_ms
    assert files_after(dagster_lake, instance, under(BySensor()), "d") == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("error", "succeeds"), [(Transient("held by another"), True), (Broken("5 rows were 6"), False)]
)
def test_what_was_written_stays_and_is_told_also_where_the_compaction_fails(
    dagster_lake: Lake,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    error: LakehouseError,
    succeeds: bool,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run, "compact", fail)
    result = load(dagster_lake, instance, under(AfterWrite()), "a")
    assert result.success is succeeds
    assert newest_facts(instance, [orders])[orders.key].values["lakehouse/landed_batch"] == 1
    told = " ".join(entry.user_message for entry in instance.all_logs(result.run_id))
    waits = "bronze/orders was written, and not compacted: Transient: held by another"
    assert (waits in told) is succeeds
