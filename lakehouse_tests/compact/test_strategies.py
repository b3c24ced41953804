"""Who compacts under each strategy: the clock asks, the writer's own run does, nobody does."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse import AfterWrite, BySensor, Compaction, Scheduled, Table
from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.keys import compaction_key, pool_of, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.assets.runs import asked_by_person
from lakehouse.base.errors import Broken, LakehouseError, Transient
from lakehouse.compact import run
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_schedules
from lakehouse.declare.policies import Strategy
from lakehouse.lake.lake import Lake
from lakehouse.materialize.asset import table_asset
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import begun
from lakehouse_tests.support.example_assets import TABLES, example_lake, latest_orders, orders

NIGHTLY = Scheduled(cron="0 3 * * *")
THREE = datetime(2026, 11, 21, 3, tzinfo=UTC)


@pytest.fixture(scope="module")
def on_disk() -> Iterator[dg.DagsterInstance]:
    """Records that a schedule's tick can open again; to make them takes seconds."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def kept(on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """Records of an instance that nothing happened on yet, made once for all tests."""
    on_disk.wipe()
    return on_disk


def under(strategy: Strategy, **more: Any) -> Table:
    return replace(orders, compaction=Compaction(strategy=strategy, min_small_files=2, **more))


def tick(
    schedule: dg.ScheduleDefinition, instance: dg.DagsterInstance, lake: Lake, table: Table
) -> Any:
    resources = {"spark": spark_resource(lake.settings)}
    defs = dg.Definitions(assets_of(lake, table), schedules=[schedule], resources=resources)
    more: Any = {"scheduled_execution_time": THREE, "repository_def": defs.get_repository_def()}
    return schedule.evaluate_tick(dg.build_schedule_context(instance=instance, **more))


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


def test_only_a_scheduled_table_has_a_schedule_which_is_on_and_in_utc(dagster_lake: Lake) -> None:
    [schedule] = compaction_schedules([under(NIGHTLY), latest_orders], dagster_lake)
    assert schedule.name == f"compaction_of_{pool_of(orders)}"
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 3 * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert compaction_schedules(TABLES, dagster_lake) == []


def test_a_tick_asks_for_the_compaction_once_unless_one_is_under_way_or_hands_are_off(
    tmp_path: Path, kept: dg.DagsterInstance
) -> None:
    table, lake = under(NIGHTLY), example_lake(tmp_path)
    [schedule] = compaction_schedules([table], lake)
    [request] = tick(schedule, kept, lake, table).run_requests
    assert request.run_key == "bronze/orders 2026-11-21T03:00"
    assert [key.to_user_string() for key in request.asset_selection] == ["compaction/bronze/orders"]
    begun(kept, table_key(table))
    assert tick(schedule, kept, lake, table).run_requests
    run = begun(kept, compaction_key(table))
    found = tick(schedule, kept, lake, table)
    waits = f"bronze/orders: a run of this table is under way ({run.run_id[:8]})"
    assert (found.run_requests, found.skip_message) == ([], waits)
    advised = under(NIGHTLY, mode="recommend")
    found = tick(compaction_schedules([advised], lake)[0], kept, lake, advised)
    assert not found.run_requests and "its declaration says mode recommend" in found.skip_message


def test_an_unreadable_log_gets_a_run_to_tell_why(tmp_path: Path, kept: dg.DagsterInstance) -> None:
    table, lake = under(NIGHTLY), example_lake(tmp_path)
    LogBuilder(lake.store, table.key).create()
    lake.store.put(f"{table.key}/_delta_log/{1:020}.json", b"no JSON")
    with pytest.raises(Broken):
        lake.facts(table.key)
    assert tick(compaction_schedules([table], lake)[0], kept, lake, table).run_requests


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
    committed_ms = round(metadata["lakehouse/committed"].value * 1000)
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
