"""Who compacts under each strategy: the clock asks, the writer's own run does, nobody does."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse.core.errors import Broken, LakehouseError, Transient
from lakehouse.core.policy import Compaction
from lakehouse.core.strategy import AfterWrite, BySensor, NoCompaction, Scheduled, type_of_strategy
from lakehouse.core.table import Table
from lakehouse.defs.compaction import compaction_asset
from lakehouse.defs.instance import newest_facts
from lakehouse.defs.keys import compaction_key, pool_of, table_key
from lakehouse.defs.medallion import table_asset
from lakehouse.defs.resources import spark_resource
from lakehouse.defs.schedule import compaction_schedules
from lakehouse.engine import compaction
from lakehouse.engine.lake import Lake
from lakehouse_tests.defs.example import TABLES, begun, example_lake, latest_orders, orders

NIGHTLY = Scheduled(cron="0 3 * * *")
THREE = datetime(2026, 11, 21, 3, tzinfo=UTC)


def under(strategy: type_of_strategy, **more: Any) -> Table:
    return replace(orders, compaction=Compaction(strategy=strategy, min_small_files=4, **more))


def tick(schedule: dg.ScheduleDefinition, instance: dg.DagsterInstance, lake: Lake, table: Table) -> Any:
    resources = {"spark": spark_resource(lake.settings)}
    repository = dg.Definitions(assets=assets_of(lake, table), schedules=[schedule], resources=resources).get_repository_def()
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=THREE, repository_def=repository)
    return schedule.evaluate_tick(context)


def assets_of(lake: Lake, table: Table) -> list[Any]:
    return [table_asset(table, lake), compaction_asset(table, lake)]


def test_only_a_scheduled_table_has_a_schedule_which_is_on_and_in_utc(tmp_path: Path) -> None:
    lake = example_lake(tmp_path)
    [schedule] = compaction_schedules([under(NIGHTLY), latest_orders], lake)
    assert (schedule.name, schedule.cron_schedule, schedule.execution_timezone) == (f"compaction_of_{pool_of(orders)}", "0 3 * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert compaction_schedules(TABLES, lake) == []


def test_a_tick_asks_for_the_compaction_once_unless_one_is_under_way_or_hands_are_off(tmp_path: Path) -> None:
    table, lake = under(NIGHTLY), example_lake(tmp_path)
    [schedule] = compaction_schedules([table], lake)
    with dg.instance_for_test() as instance:
        [request] = tick(schedule, instance, lake, table).run_requests
        assert request.run_key == "bronze/orders 2026-11-21T03:00"
        assert [key.to_user_string() for key in request.asset_selection] == ["compaction/bronze/orders"]
        begun(instance, table_key(table))
        assert tick(schedule, instance, lake, table).run_requests
        run = begun(instance, compaction_key(table))
        found = tick(schedule, instance, lake, table)
        assert not found.run_requests and found.skip_message == f"bronze/orders: a run of it is under way ({run.run_id[:8]})"
        advised = under(NIGHTLY, mode="recommend")
        found = tick(compaction_schedules([advised], lake)[0], instance, lake, advised)
    assert not found.run_requests and "its declaration says mode recommend" in found.skip_message


def load(lake: Lake, instance: dg.DagsterInstance, table: Table, name: str) -> dg.ExecuteInProcessResult:
    """A run of the table after one more file has landed."""
    lake.store.put(f"landing/orders/{name}.json", b'{"id": "a", "amount": 1}\n')
    return dg.materialize(
        assets_of(lake, table),
        selection=[table_key(table)],
        resources={"spark": spark_resource(lake.settings)},
        instance=instance,
        raise_on_error=False,
    )


def files_after(lake: Lake, instance: dg.DagsterInstance, table: Table, name: str) -> int:
    """Live files after such a run, which records as many."""
    assert load(lake, instance, table, name).success
    facts = lake.facts(table.key)
    newest = newest_facts(instance, table)
    assert facts is not None and newest is not None
    assert newest.whole("lakehouse/file_count") == facts.layout.file_count
    return facts.layout.file_count


@pytest.mark.spark
def test_after_each_write_the_files_fall_in_the_same_run(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert [files_after(lake, instance, under(NoCompaction()), name) for name in "abc"] == [1, 2, 3]
    assert files_after(lake, instance, under(AfterWrite(), mode="recommend"), "d") == 4
    assert files_after(lake, instance, under(AfterWrite()), "e") == 1
    [event] = instance.fetch_materializations(compaction_key(orders), limit=9).records
    assert event.asset_materialization is not None
    told = {name.removeprefix("lakehouse/"): entry.value for name, entry in event.asset_materialization.metadata.items()}
    assert (told["predicted_files_removed"], told["actual_files_removed"], told["rows_verified"]) == (5, 5, 5)
    [record] = instance.fetch_materializations(table_key(orders), limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["lakehouse/strategy"].value == "its declaration says AfterWrite"
    assert [files_after(lake, instance, under(BySensor()), name) for name in "fg"] == [2, 3]


@pytest.mark.spark
@pytest.mark.parametrize(("error", "succeeds"), [(Transient("held by another"), True), (Broken("5 rows were 6"), False)])
def test_what_was_written_stays_and_is_told_also_where_the_compaction_fails(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, error: LakehouseError, succeeds: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(compaction, "compact", fail)
    result = load(lake, instance, under(AfterWrite()), "a")
    assert result.success is succeeds
    newest = newest_facts(instance, orders)
    assert newest is not None and newest.whole("lakehouse/landed_batch") == 1
    told = " ".join(entry.user_message for entry in instance.all_logs(result.run_id))
    assert ("bronze/orders was written, and not compacted: Transient: held by another" in told) is succeeds
