"""The lake by itself: a real page, a real server, real flights, and nobody touching it. Weather was loaded by hand once before.

The replay lands once: work that ends costs the same on each machine, and a delivery a minute makes more of it on a slow one.

The server is that of all tests: the lake finds it running, as after `lakehouse server start`.
"""

import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lakehouse.base.settings import Settings
from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World, wait_for
from lakehouse_tests.spark_server import lend_server
from lakehouse_tests.watch.metrics.test_command import parsed


@pytest.fixture(scope="module")
def world(
    shared_settings: Settings, prepared_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    home = link_year(prepared_home, tmp_path_factory.mktemp("world"))
    lend_server(shared_settings, home)
    world = World(
        home,
        LAKEHOUSE_SPARK_PORT=str(shared_settings.spark_port),
        LAKEHOUSE_REPLAY_HOURS="12",
        LAKEHOUSE_REPLAY_SECONDS="3600",
        LAKEHOUSE_TABLES="lakehouse_tests.journeys.eager_tables",
    )
    world.ask("server", "start")
    world.ask("replay", "--hours", "8")
    # Weather, which begins at six, has the first of the two files that make its compaction due.
    world.ask("materialize", "bronze/weather")
    with world:
        yield world
    assert world.ask("server")["condition"] == "running"
    assert world.processes() == []


def succeeded(world: World) -> set[str]:
    return {key for run in world.page.runs() if run["status"] == "SUCCESS" for key in run["assets"]}


def compacted(world: World) -> set[str]:
    return {key for key in succeeded(world) if key.startswith("compaction/")}


def test_files_land_tables_follow_and_the_sensor_compacts_one_of_them(world: World) -> None:
    wait_for("a table compacted by the sensor", lambda: compacted(world))
    started = [
        run
        for run in world.page.runs()
        if any(key.startswith("compaction/") for key in run["assets"])
    ]
    assert all(run["tags"].get("dagster/sensor_name") for run in started)
    for key in (name.removeprefix("compaction/") for name in compacted(world)):
        counts = world.page.file_counts(key)
        assert any(later < earlier for earlier, later in pairwise(counts)), (key, counts)


def test_gold_is_there_and_nothing_failed(world: World) -> None:
    wanted = {"gold/carrier_daily", "inventory/local"}
    wait_for("gold is materialized, and the storage is listed", lambda: wanted <= succeeded(world))
    assert [run for run in world.page.runs() if run["status"] in ("FAILURE", "CANCELED")] == []
    ticks = [tick for sensor in world.page.sensors().values() for tick in sensor["ticks"]]
    assert [tick for tick in ticks if tick["error"]] == []


def test_the_vacuums_follow_the_inventory_by_themselves(world: World) -> None:
    keys = ("inventory/local", "vacuum/bronze/flight_events", "vacuum/silver/flights")
    wait_for(
        "the storage is listed, and tables are vacuumed",
        lambda: all(map(world.page.materializations, keys)),
    )
    (listed_at, listing), *vacuums = (world.page.materializations(key)[0] for key in keys)
    assert [vacuumed_at > listed_at for vacuumed_at, _ in vacuums] == [True] * 2
    runs = {run["runId"]: run for run in world.page.runs()}
    assert all(
        runs[each]["tags"].get("dagster/sensor_name") == "automation_sensor"
        for each in (listing, *(run for _, run in vacuums))
    )
    wait_for(
        "these runs ended well",
        lambda: all(run_status(world, run) == "SUCCESS" for _, run in vacuums),
    )


def test_prometheus_sees_what_ran_and_what_was_checked(world: World) -> None:
    address = f"http://127.0.0.1:{world.environment['LAKEHOUSE_METRICS_PORT']}/metrics"

    def metrics() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return parsed(answer.read().decode())

    [key, *_] = (name.removeprefix("compaction/") for name in compacted(world))
    wait_for(
        "the metrics count the compaction",
        lambda: metrics().get(("lakehouse_operations_total", f"{key},compaction,succeeded")),
    )
    found = metrics()
    assert found["lakehouse_check_passed", f"{key},readable"] == 1
    assert found["lakehouse_dagster_records_bytes", ""] > 0
    assert {name for name, value in found.items() if "readable" in name[0] and not value} == set()


def run_status(world: World, run_id: str) -> str:
    return next(run["status"] for run in world.page.runs() if run["runId"] == run_id)
