"""A compaction on demand in the lake that runs by itself, and what follows from it: nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse_tests.journeys.test_itself import run_status
from lakehouse_tests.journeys.world import World, wait_for


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home: Path = tmp_path_factory.mktemp("world")
    with World(home, LAKEHOUSE_REPLAY_HOURS="12", LAKEHOUSE_REPLAY_SECONDS="5") as world:
        yield world
    assert world.processes() == []


def test_a_compaction_refires_nothing_downstream(world: World) -> None:
    world.page.stop_sensor("compaction_sensor")
    wait_for(
        "nothing compacts",
        lambda: not any(key.startswith("compaction/") for key in under_way(world)),
    )
    wait_for("two small files of one table gather", lambda: mergeable(world))
    world.page.stop_sensor("replay_sensor")
    wait_for("nothing runs and nothing waits", lambda: quiet(world))
    before = {run["runId"] for run in world.page.runs()}
    key = mergeable(world)[0]
    launched = world.page.materialize(f"compaction/{key}")
    wait_for("the compaction ran", lambda: run_status(world, launched) == "SUCCESS")
    seen = {name: newest_tick(world, name) for name in ("landing_sensor", "automation_sensor")}
    wait_for(
        "both sensors ticked again",
        lambda: all(newest_tick(world, name) > at for name, at in seen.items()),
    )
    wait_for("nothing runs and nothing waits", lambda: quiet(world))
    after = [run for run in world.page.runs() if run["runId"] not in before]
    by_the_clock = {"maintenance/records"}
    assert [run["runId"] for run in after if run["assets"] != by_the_clock] == [launched]
    *_, small, merged = world.page.file_counts(key)
    assert merged < small


def test_at_rest_every_check_has_passed(world: World) -> None:
    checks = world.page.checks()
    assert len(checks) >= 3 * 9 and "inventory/local:missing" in checks
    assert [name for name, passed in checks.items() if not passed] == []


def mergeable(world: World) -> list[str]:
    """The tables that the terminal's plan would compact, and that others read."""
    plans = json.loads(world.command("plan", "--json").stdout)
    return [
        plan["table"]
        for plan in plans
        if plan["operation"] == "compact"
        and plan["size_bytes"]
        and plan["table"].startswith("bronze/")
    ]


def quiet(world: World) -> bool:
    """No run is under way and the last tick of every sensor that is on asked for none, after the last run ended."""
    if under_way(world):
        return False
    ended = max(run["endTime"] for run in world.page.runs())
    ticking = [state for state in world.page.sensors().values() if state["status"] == "RUNNING"]
    return all(
        state["ticks"]
        and state["ticks"][0]["timestamp"] > ended
        and state["ticks"][0]["status"] == "SKIPPED"
        for state in ticking
    )


def under_way(world: World) -> set[str]:
    """The assets of all runs that have not ended."""
    waiting = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
    return {key for run in world.page.runs() if run["status"] in waiting for key in run["assets"]}


def newest_tick(world: World, sensor: str) -> float:
    return world.page.sensors()[sensor]["ticks"][0]["timestamp"]
