"""A plain `dagster dev` in the checkout, as a person starts it who knows Dagster."""

import os
import signal
from pathlib import Path

import pytest

from benchmarks.demo import is_gold_green
from lakehouse.base.processes import port_is_free
from lakehouse_tests.conftest import wait_until
from lakehouse_tests.journeys.test_itself import run_status
from lakehouse_tests.journeys.world import World, wait_for


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_dagster_dev_alone_brings_gold_to_green_and_leaves_nothing_however_it_ends(
    end: signal.Signals, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with World(home, dagster_dev=True) as world:
        wait_for("gold is there and its checks are green", lambda: is_gold_green(world))
        launched = world.page.materialize("compaction/bronze/weather")
        wait_for("a run from the page", lambda: run_status(world, launched) == "SUCCESS")
        assert world.process is not None
        os.kill(world.process.pid, end)
        wait_until("no process of it is left", lambda: not world.processes())
        assert port_is_free(world.port)
        assert port_is_free(int(world.environment["LAKEHOUSE_SPARK_PORT"]))
    assert (home / "dagster" / "history" / "runs.db").exists()
