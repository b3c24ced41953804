"""The lake by itself: a real page, a real server, real flights, and nobody touching it."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lakehouse_tests.journeys.world import World, wait_until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home: Path = tmp_path_factory.mktemp("world")
    world = World(home, LAKEHOUSE_REPLAY_HOURS="12", LAKEHOUSE_REPLAY_SECONDS="5", LAKEHOUSE_TABLES="lakehouse_tests.journeys.eager")
    with world:
        yield world
    assert world.processes() == []


def succeeded(world: World) -> set[str]:
    return {key for run in world.page.runs() if run["status"] == "SUCCESS" for key in run["assets"]}


def compacted(world: World) -> set[str]:
    return {key for key in succeeded(world) if key.startswith("compaction/")}


def test_files_land_tables_follow_and_the_sensor_compacts_one_of_them(world: World) -> None:
    wait_until("a table compacted by the sensor", lambda: compacted(world), seconds=420)
    started = [run for run in world.page.runs() if any(key.startswith("compaction/") for key in run["assets"])]
    assert all(run["tags"].get("dagster/sensor_name") for run in started)
    for key in (name.removeprefix("compaction/") for name in compacted(world)):
        counts = world.page.file_counts(key)
        assert any(later < earlier for earlier, later in pairwise(counts)), (key, counts)


def test_gold_is_there_and_nothing_failed(world: World) -> None:
    wanted = {"gold/carrier_daily", "gold/route_delays", "inventory/local"}
    wait_until("gold is materialized, and the storage is listed", lambda: wanted <= succeeded(world), seconds=240)
    assert [run for run in world.page.runs() if run["status"] in ("FAILURE", "CANCELED")] == []
    assert [tick for sensor in world.page.sensors().values() for tick in sensor["ticks"] if tick["error"]] == []


def test_the_vacuums_follow_the_inventory_by_themselves(world: World) -> None:
    keys = ("inventory/local", "vacuum/bronze/flight_events", "vacuum/silver/flights")
    wait_until("the storage is listed, and tables are vacuumed", lambda: all(map(world.page.materializations, keys)), seconds=120)
    (listed_at, listing), *vacuums = (world.page.materializations(key)[0] for key in keys)
    assert [vacuumed_at > listed_at for vacuumed_at, _ in vacuums] == [True] * 2
    runs = {run["runId"]: run for run in world.page.runs()}
    assert all(runs[each]["tags"].get("dagster/sensor_name") == "automation_sensor" for each in (listing, *(run for _, run in vacuums)))
    wait_until("these runs ended well", lambda: all(run_status(world, run) == "SUCCESS" for _, run in vacuums), seconds=120)


def test_a_compaction_refires_nothing_downstream(world: World) -> None:
    world.page.stop_sensor("compaction_sensor")
    wait_until("nothing compacts", lambda: not any(key.startswith("compaction/") for key in under_way(world)), seconds=120)
    wait_until("two small files of one table gather", lambda: mergeable(world), seconds=240)
    world.page.stop_sensor("replay_sensor")
    wait_until("nothing runs and nothing waits", lambda: quiet(world), seconds=240)
    before = {run["runId"] for run in world.page.runs()}
    key = mergeable(world)[0]
    launched = world.page.materialize(f"compaction/{key}")
    wait_until("the compaction ran", lambda: run_status(world, launched) == "SUCCESS", seconds=90)
    seen = {name: newest_tick(world, name) for name in ("landing_sensor", "automation_sensor")}
    wait_until("both sensors ticked again", lambda: all(newest_tick(world, name) > at for name, at in seen.items()), seconds=120)
    wait_until("nothing runs and nothing waits", lambda: quiet(world), seconds=120)
    assert {run["runId"] for run in world.page.runs()} - before == {launched}
    *_, small, merged = world.page.file_counts(key)
    assert merged < small


def test_at_rest_every_check_has_passed(world: World) -> None:
    checks = world.page.checks()
    assert len(checks) >= 3 * 9 and "inventory/local:missing" in checks
    assert [name for name, passed in checks.items() if not passed] == []


def mergeable(world: World) -> list[str]:
    """The tables that the terminal's plan would compact, and that others read."""
    plans = json.loads(world.command("plan", "--json").stdout)
    return [plan["table"] for plan in plans if plan["files_removed"] and plan["table"].startswith("bronze/")]


def quiet(world: World) -> bool:
    """No run is under way and the last tick of every sensor that is on asked for none, after the last run ended."""
    if under_way(world):
        return False
    ended = max(run["endTime"] for run in world.page.runs())
    ticking = [state for state in world.page.sensors().values() if state["status"] == "RUNNING"]
    return all(state["ticks"] and state["ticks"][0]["timestamp"] > ended and state["ticks"][0]["status"] == "SKIPPED" for state in ticking)


def under_way(world: World) -> set[str]:
    """The assets of all runs that have not ended."""
    waiting = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
    return {key for run in world.page.runs() if run["status"] in waiting for key in run["assets"]}


def run_status(world: World, run_id: str) -> str:
    return next(run["status"] for run in world.page.runs() if run["runId"] == run_id)


def newest_tick(world: World, sensor: str) -> float:
    return world.page.sensors()[sensor]["ticks"][0]["timestamp"]
