"""The landing sensor: what it sees, one run for all, and no file asked for while it is being loaded."""

from collections.abc import Callable
from dataclasses import replace

import dagster as dg
import pytest
from dagster import DagsterEventType, SensorResult

from lakehouse import Append, Landing, Overwrite, Table
from lakehouse.assets.dagster_records import ended_runs, is_canceled
from lakehouse.assets.keys import table_key
from lakehouse.base.text import DAY_MS
from lakehouse.delta.commits import ingest_app_id
from lakehouse.lake.lake import Lake
from lakehouse.land.asset import landing_assets, landing_sensor
from lakehouse.land.ledger import FOLD_EVERY, PlannedBatches, landed_files
from lakehouse.land.plan.batches import Batch, LandedFile, SetAside
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import (
    begun,
    ended,
    materialized,
    requested,
    skip_text,
    tick_of,
)
from lakehouse_tests.support.example_assets import TABLES, latest_orders, orders

pytestmark = pytest.mark.usefixtures("no_java")

shops = Table(
    key="bronze/shops",
    source=Landing(prefix="landing/shops/", format="csv", schema="shop STRING"),
    write=Overwrite(),
)
type_of_tick = Callable[[], SensorResult]


@pytest.fixture
def tick(dagster_lake: Lake, instance: dg.DagsterInstance) -> type_of_tick:
    """Ticks of one long-lived sensor."""
    sensor = landing_sensor((*TABLES, shops), dagster_lake)
    return lambda: tick_of(sensor, instance)


def land(lake: Lake, name: str) -> None:
    lake.store.put(f"landing/{name}", b"{}")


def folded(lake: Lake, *, count: int) -> None:
    """So many batches of orders whose manifests are folded, and whose files are gone and forgotten but for the newest."""
    batches = PlannedBatches(lake.store, "bronze/orders", prefix="landing/orders/")
    for number in range(1, count + 1):
        file = LandedFile(name=f"{number}.json", size_bytes=2, modified_ms=1, digest="d")
        batches.plan(Batch(number=number, files=(file,), prefix="landing/orders/"))
    batches.ledger()
    batches.fold(
        landed_paths={f"landing/orders/{count}.json"}, last_loaded_batch=count, now_ms=365 * DAY_MS
    )


def planned(lake: Lake, number: int, *names: str) -> None:
    """A batch of orders that was planned."""
    present = {file.name: file for file in landed_files(lake.store, orders.landing)}
    files = tuple(
        present.get(name, LandedFile(name=name, size_bytes=2, modified_ms=1)) for name in names
    )
    prefix = orders.landing.prefix
    PlannedBatches(lake.store, "bronze/orders", prefix=prefix).plan(
        Batch(number=number, files=files, prefix=prefix)
    )


def loaded(lake: Lake, instance: dg.DagsterInstance, number: int, *names: str) -> None:
    """One that arrived, too."""
    planned(lake, number, *names)
    materialized(instance, orders, landed_batch=number)


def test_files_wait_until_the_policy_releases_them_and_the_sensor_says_for_what(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    source = replace(shops.landing, release_files=2, release_minutes=60)
    sensor = landing_sensor([replace(shops, source=source)], dagster_lake)
    land(dagster_lake, "shops/1.csv")
    waits = "1 landed file (2 B) must wait for more: a batch is released at 2 files, or "
    assert waits in skip_text(tick_of(sensor, instance))
    land(dagster_lake, "shops/2.csv")
    [request] = tick_of(sensor, instance).run_requests or []
    assert request.asset_selection == [table_key(shops)]


def test_one_run_is_asked_for_all_new_files(dagster_lake: Lake, tick: type_of_tick) -> None:
    land(dagster_lake, "orders/1.json")
    land(dagster_lake, "shops/1.csv")
    [request] = tick().run_requests or []
    assert request.asset_selection == [table_key(orders), table_key(shops)]


def test_files_that_are_in_the_table_are_not_asked_for(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick
) -> None:
    land(dagster_lake, "orders/1.json")
    loaded(dagster_lake, instance, 1, "1.json")
    assert "bronze/orders: nothing new has landed; 1 file known" in skip_text(tick())
    land(dagster_lake, "orders/0.json")
    assert tick().run_requests


@pytest.mark.parametrize("arrived", [0, 1])
def test_the_oldest_batch_that_did_not_arrive_is_asked_for(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick, arrived: int
) -> None:
    for number in (1, 2, 3):
        planned(dagster_lake, number, f"{number}.json")
    if arrived:
        materialized(instance, orders, landed_batch=arrived)
    [request] = tick().run_requests or []
    assert request.tags["lakehouse/batch.bronze.orders"] == str(arrived + 1)


@pytest.mark.parametrize("is_reported_by_hand", [False, True])
def test_the_tables_log_tells_what_arrived_where_no_event_does(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick, is_reported_by_hand: bool
) -> None:
    folded(dagster_lake, count=FOLD_EVERY)
    LogBuilder(dagster_lake.store, "bronze/orders").create().append(
        [("f", 1)], transaction=(ingest_app_id("bronze/orders"), FOLD_EVERY)
    )
    if is_reported_by_hand:
        materialized(instance, orders)
    assert "bronze/orders: nothing new has landed" in skip_text(tick())
    land(dagster_lake, "orders/new.json")
    [request] = tick().run_requests or []
    assert request.tags["lakehouse/batch.bronze.orders"] == str(FOLD_EVERY + 1)


@pytest.mark.parametrize("is_anew", [True, False])
def test_a_table_made_elsewhere_whose_batches_nothing_tells_is_told_of_in_the_words_of_a_run_and_not_asked_for(
    dagster_lake: Lake, tick: type_of_tick, is_anew: bool
) -> None:
    log = LogBuilder(dagster_lake.store, "bronze/orders").create()
    if is_anew:
        folded(dagster_lake, count=FOLD_EVERY)
    else:
        log.append([("a", 1)])
    land(dagster_lake, "orders/1.json")
    text = skip_text(tick())
    assert "log has no transaction id of a landed batch" in text
    assert "lakehouse landing bronze/orders --arrived N" in text


@pytest.mark.parametrize(
    "key",
    [table_key(orders), dg.AssetKey(["compaction", "bronze", "orders"]), table_key(latest_orders)],
)
def test_nothing_is_asked_for_while_a_run_writes_the_table_and_not_one_downstream(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick, key: dg.AssetKey
) -> None:
    land(dagster_lake, "orders/1.json")
    begun(instance, key)
    if key == table_key(latest_orders):
        assert tick().run_requests
    else:
        assert "bronze/orders: a run of this table is under way" in skip_text(tick())


def failed(
    instance: dg.DagsterInstance, request: dg.RunRequest, *, seconds_ago: float
) -> dg.DagsterRun:
    run = requested(instance, request)
    return ended(instance, run, DagsterEventType.RUN_FAILURE, seconds_ago=seconds_ago)


def test_a_batch_that_failed_is_asked_for_again_later_under_another_key(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick
) -> None:
    land(dagster_lake, "orders/1.json")
    keys: list[str | None] = []
    for pause in (30, 60, 120, 240):
        [request] = tick().run_requests or []
        keys.append(request.run_key)
        run = failed(instance, request, seconds_ago=pause - 5)
        attempts = "1 attempt" if len(keys) == 1 else f"{len(keys)} attempts"
        assert f"{attempts} did not load batch 1; the next attempt" in skip_text(tick())
        instance.delete_run(run.run_id)
        failed(instance, request, seconds_ago=pause + 5)
    assert len(set(keys)) == 4


def test_canceled_and_repeated_runs_of_a_person_add_no_pause_and_the_next_key_is_new(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick
) -> None:
    land(dagster_lake, "orders/1.json")
    [first] = tick().run_requests or []
    run = ended(instance, requested(instance, first), DagsterEventType.RUN_CANCELED)
    copied = {**run.tags, "dagster/parent_run_id": run.run_id}
    ended(instance, begun(instance, table_key(orders), tags=copied), DagsterEventType.RUN_FAILURE)
    [second] = tick().run_requests or []
    assert second.run_key != first.run_key


def test_a_run_that_dagster_stops_at_its_time_limit_was_canceled_by_nobody() -> None:
    limit = {"run_monitoring": {"enabled": True, "max_runtime_seconds": 7200}}
    with dg.DagsterInstance.ephemeral(settings=limit) as instance:
        run = begun(instance, table_key(orders))
        ended(instance, run, DagsterEventType.RUN_START, seconds_ago=7200)
        ended(instance, run, DagsterEventType.RUN_CANCELED)
        [record] = ended_runs(instance, {})
        assert not is_canceled(instance, record)


def test_a_broken_table_is_named_and_stops_no_other(dagster_lake: Lake, tick: type_of_tick) -> None:
    dagster_lake.store.put(f"_lakehouse/ingest/bronze/orders/{1:020}.json", b"no manifest")
    text = skip_text(tick())
    assert f"{1:020}.json" in text and "bronze/shops: nothing new has landed" in text
    land(dagster_lake, "shops/1.csv")
    [request] = tick().run_requests or []
    assert request.asset_selection == [table_key(shops)]


def test_two_tables_on_one_prefix_hang_on_one_landing_area(dagster_lake: Lake) -> None:
    twin = Table(key="bronze/twin", source=orders.source, write=Append())
    specs = landing_assets((orders, twin, shops, latest_orders), dagster_lake)
    assert [spec.key.to_user_string() for spec in specs] == ["landing/orders", "landing/shops"]


def test_a_batch_of_refused_files_alone_whose_run_was_killed_is_asked_for_again(
    dagster_lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick
) -> None:
    """No file of it is to arrive in the table; its quarantine is still to be written, of which no event tells."""
    loaded(dagster_lake, instance, 1, "1.json")
    land(dagster_lake, "orders/1.json")
    LogBuilder(dagster_lake.store, "bronze/orders").create().append(
        [("a", 1)], transaction=(ingest_app_id("bronze/orders"), 1)
    )
    land(dagster_lake, "orders/bad.json.gz")
    refused = SetAside(
        name="bad.json.gz", size_bytes=2, modified_ms=1, why="no gzip", is_quarantined=True
    )
    PlannedBatches(dagster_lake.store, "bronze/orders", prefix="landing/orders/").plan(
        Batch(number=2, files=(), set_aside=(refused,))
    )
    [request] = tick().run_requests or []
    assert "2" in request.tags.values()
