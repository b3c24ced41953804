"""What the sensor weighs the fleet by: readers, waiting, budget, hands off."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterEventType, DagsterInstance, SensorResult

from lakehouse import AfterWrite, Compaction, Prices, Table
from lakehouse.assets.dagster_records import (
    reader_runs,
    recent_runs,
    tag_as_read_nothing,
)
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Pause
from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse.compact.sensor import (
    COST_TAG,
    compaction_sensor,
    read_cursor,
)
from lakehouse.declare.prices import DEFAULT_PRICES
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table, record_operation
from lakehouse_tests.counting_store import CountingStore
from lakehouse_tests.support.dagster_events import (
    asked,
    begun,
    ended,
    materialized,
    requested,
    skip_text,
    tick_of,
)
from lakehouse_tests.support.example_assets import (
    TABLES,
    example_lake,
    latest_orders,
    orders,
    totals,
)
from lakehouse_tests.support.example_histories import failed

pytestmark = pytest.mark.usefixtures("no_java")
# A reader of all of bronze/orders: silver/orders reads its changes only.
DAILY = replace(totals, key="gold/daily", inputs=(orders,))
FACTS = {
    "file_count": 20,
    "mergeable_file_count": 10,
    "files_after": 11,
    "estimate_usd": 0.01,
    "usd_per_opening": usd_per_opening(DEFAULT_PRICES, on_s3=False),
}


def tick(
    instance: DagsterInstance,
    lake: Lake,
    tables: Sequence[Table] = TABLES,
    cursor: str | None = None,
) -> SensorResult:
    return tick_of(compaction_sensor(tables, lake), instance, cursor=cursor)


def three_failed(lake: Lake, table: Table, newest_ms: int, *, apart_ms: int = 1) -> None:
    """Three compactions of a table that failed."""
    for number in range(3):
        failure = failed(newest_ms - number * apart_ms, table=table.key, why="full")
        record_operation(lake, failure)


def read_by(instance: DagsterInstance, reader: Table, times: int) -> None:
    for _ in range(times):
        ended(instance, begun(instance, table_key(reader)), DagsterEventType.RUN_SUCCESS)


def test_the_table_whose_readers_gain_most_for_the_cost_goes_first(
    instance: DagsterInstance, dagster_lake: Lake
) -> None:
    materialized(instance, orders, version=7, **FACTS)
    materialized(instance, latest_orders, version=7, **(FACTS | {"mergeable_file_count": 90}))
    tables = (*TABLES, DAILY)
    read_by(instance, totals, 2)
    read_by(instance, latest_orders, 9)
    assert asked(tick(instance, dagster_lake, tables)) == ["compaction/silver/orders"]
    read_by(instance, DAILY, 3)
    assert asked(tick(instance, dagster_lake, tables)) == ["compaction/bronze/orders"]


def test_a_table_with_prices_of_its_own_is_ranked_by_them_on_both_sides(
    instance: DagsterInstance, dagster_lake: Lake
) -> None:
    # A hundred times the default, and so is its cost.
    dear = replace(orders, prices=Prices(usd_per_vcpu_hour=11))
    opening_usd = usd_per_opening(dear.prices, on_s3=False)
    priced = {"estimate_usd": 1.0, "usd_per_opening": opening_usd}
    materialized(instance, dear, version=7, **(FACTS | priced))
    materialized(instance, latest_orders, version=7, **FACTS)
    read_by(instance, totals, 2)
    read_by(instance, DAILY, 3)
    tables = (dear, latest_orders, totals, DAILY)
    assert asked(tick(instance, dagster_lake, tables)) == ["compaction/bronze/orders"]


def test_slower_readers_make_a_compaction_due(
    instance: DagsterInstance, dagster_lake: Lake
) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=3)
    for seconds in [2.0] * 5 + [3.0] * 5:
        run = begun(instance, table_key(latest_orders))
        ended(instance, run, DagsterEventType.RUN_START, seconds_ago=10 + seconds)
        ended(instance, run, DagsterEventType.RUN_SUCCESS, seconds_ago=10)
    assert asked(tick(instance, dagster_lake)) == ["compaction/bronze/orders"]


def test_reads_are_those_of_the_newest_day(instance: DagsterInstance) -> None:
    read_by(instance, latest_orders, 3)
    ended(instance, begun(instance, table_key(latest_orders)), DagsterEventType.RUN_FAILURE)
    _, today = recent_runs(instance, now_ms=now_ms() + 1)
    assert len(today) == 4
    assert len(reader_runs(instance, today, TABLES)) == 3
    assert len(recent_runs(instance, now_ms=now_ms() + 2 * DAY_MS)[1]) == 0


def test_runs_that_read_nothing_and_of_other_jobs_are_no_reads(instance: DagsterInstance) -> None:
    in_vain = begun(instance, table_key(latest_orders), table_key(totals))
    tag_as_read_nothing(instance, in_vain.run_id, totals)
    of_others = instance.add_run(dg.DagsterRun(job_name="rotate_keys", run_id=str(uuid4())))
    tags = (instance.get_run_by_id(in_vain.run_id) or in_vain).tags
    again = begun(instance, table_key(totals), tags=tags)
    for each in (in_vain, of_others, again):
        ended(instance, each, DagsterEventType.RUN_SUCCESS)

    def reads() -> list[list[str]]:
        _, today = recent_runs(instance, now_ms=now_ms() + 1)
        return [sorted(each.tables) for each in reader_runs(instance, today, TABLES)]

    assert reads() == [["gold/totals"], [], ["silver/orders"]]
    tag_as_read_nothing(instance, in_vain.run_id, latest_orders)
    assert reads() == [["gold/totals"], [], []]


def test_waiting_outlasts_a_tick_and_ends_with_the_request(
    instance: DagsterInstance, dagster_lake: Lake
) -> None:
    materialized(instance, orders, version=7, **FACTS)
    materialized(instance, totals, version=7, **FACTS)
    first = tick(instance, dagster_lake)
    assert asked(first) == ["compaction/bronze/orders"]
    waiting = read_cursor(first.cursor)
    assert set(waiting) == {"gold/totals"}
    read_by(instance, latest_orders, 3)
    long_ago = json.dumps({"gold/totals": now_ms() - 3_600_001})
    again = tick(instance, dagster_lake, cursor=first.cursor)
    assert asked(again) == ["compaction/bronze/orders"]
    assert read_cursor(again.cursor)["gold/totals"] == waiting["gold/totals"]
    assert asked(tick(instance, dagster_lake, cursor=long_ago)) == ["compaction/gold/totals"]


def test_the_requests_of_an_hour_share_a_budget(instance: DagsterInstance, tmp_path: Path) -> None:
    lake = example_lake(tmp_path, LAKEHOUSE_COMPACTION_BUDGET_USD="0.015")
    materialized(instance, orders, version=7, **FACTS)
    [request] = tick(instance, lake).run_requests or []
    assert request.tags[COST_TAG] == "0.010000"
    cost = {COST_TAG: request.tags[COST_TAG]}
    run = begun(instance, compaction_key(latest_orders), tags=cost)
    ended(instance, run, DagsterEventType.RUN_SUCCESS)
    waits = "it costs 0.01 USD, and only 0.005 of the hourly 0.015 USD are left"
    assert waits in skip_text(tick(instance, lake))


@pytest.mark.parametrize(
    ("slots", "wanted"), [("1", ["bronze/orders"]), ("2", ["bronze/orders", "gold/totals"])]
)
def test_so_many_compactions_are_under_way_at_once_as_the_setting_says(
    instance: DagsterInstance, tmp_path: Path, slots: str, wanted: list[str]
) -> None:
    lake = example_lake(tmp_path, LAKEHOUSE_COMPACTION_SLOTS=slots)
    late = replace(totals, key="gold/late")
    for each in (*TABLES, late):
        materialized(instance, each, version=7, **FACTS)
    begun(instance, table_key(latest_orders))
    first = tick(instance, lake)
    assert asked(first) == [f"compaction/{key}" for key in wanted]
    for request in first.run_requests or []:
        requested(instance, request)
    assert f"but at most {slots} compaction" in skip_text(tick(instance, lake, [*TABLES, late]))


def test_a_table_just_compacted_cools_down(instance: DagsterInstance, dagster_lake: Lake) -> None:
    materialized(instance, orders, version=7, last_compaction_ms=now_ms(), **FACTS)
    waits = "but the last compaction was only 0.0 min ago (cooldown 2 min)"
    assert waits in skip_text(tick(instance, dagster_lake))


def test_tables_that_are_to_be_left_alone_say_why_and_the_others_are_served(
    instance: DagsterInstance, dagster_lake: Lake
) -> None:
    recommend = replace(orders, compaction=Compaction(mode="recommend"))
    after_write = replace(latest_orders, compaction=Compaction(strategy=AfterWrite()))
    looping = replace(totals, key="gold/looping")
    paused, sick = replace(totals, key="gold/paused"), replace(totals, key="gold/sick")
    tables = (recommend, after_write, looping, paused, sick, totals)
    pause_table(dagster_lake, Pause(table="gold/paused", since_ms=0, why="an audit"))
    three_failed(dagster_lake, sick, now_ms())
    loop = {"times": 3, "bytes_rewritten": 900, "version": 6, "last_ms": now_ms()}
    loop = {f"rewrites_{name}": value for name, value in loop.items()}
    for each in tables:
        materialized(instance, each, version=7, **FACTS, **(loop if each is looping else {}))
    assert asked(tick(instance, dagster_lake, tables)) == ["compaction/gold/totals"]
    text = skip_text(tick(instance, dagster_lake, tables[:-1]))
    for line in (
        "bronze/orders: its declaration says mode recommend",
        "silver/orders: its strategy is AfterWrite",
        "gold/looping: the same bytes were rewritten 3 times",
        "gold/sick: 3 compactions in a row failed",
        "gold/paused: paused since 1970-01-01",
    ):
        assert line in text


def test_a_tick_asks_storage_on_s3_for_one_listing_and_for_what_is_new(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    store = CountingStore()
    lake = example_lake(tmp_path, store, LAKEHOUSE_ROOT="s3://bucket")
    three_failed(lake, orders, now_ms())
    sensor, taken = compaction_sensor(TABLES, lake), list[dict[str, int]]()

    def ticks() -> str:
        store.requests.clear()
        result = tick_of(sensor, instance)
        taken.append(store.taken())
        return skip_text(result)

    ticks()
    ticks()
    pause_table(lake, Pause(table=totals.key, since_ms=0))
    assert "gold/totals: paused" in ticks()
    # Two HEAD requests for each of the two state tables; one if the table does not exist.
    assert taken[1] == {"HEAD": 3}
    assert sensor.minimum_interval_seconds == 30
