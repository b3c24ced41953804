"""A terminal that is interrupted, or killed, in the middle of a run: a real process each time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest
from dagster import DagsterEventType, DagsterRunStatus

from lakehouse.base.settings import Settings
from lakehouse_tests.cli.test_through_dagster import ORDERS, land, records, run
from lakehouse_tests.cli.test_through_dagster import settings as settings
from lakehouse_tests.conftest import wait_until

pytestmark = pytest.mark.spark


def test_an_interrupted_or_killed_terminal_blocks_nobody(settings: Settings) -> None:
    land(settings, "1.json", {"id": "a", "amount": 1, "d": "1"})
    with somebody_holds(settings, ORDERS):
        process = start(settings, "materialize", ORDERS, "--json")
        stopped = wait_until_it_writes(settings, process, ORDERS)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 130, (out, err)
        assert json.loads(out)["error"]["kind"] == "Interrupted"
        process = start(settings, "materialize", ORDERS)
        dead = wait_until_it_writes(settings, process, ORDERS)
        process.kill()
        process.communicate()
    assert [each["rows_written"] for each in run(settings, "materialize", ORDERS)] == [1]
    with records(settings) as instance:
        ended = [instance.get_run_by_id(each).status for each in (stopped, dead)]
    assert ended == [DagsterRunStatus.CANCELED, DagsterRunStatus.FAILURE]


def environ_of(settings: Settings) -> dict[str, str]:
    """The environment of a terminal with these settings."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")},
        **settings.as_environ(),
    }


def start(settings: Settings, *arguments: str) -> "subprocess.Popen[str]":
    """`lakehouse …` under way."""
    command = [sys.executable, "-m", "lakehouse", *arguments]
    return subprocess.Popen(
        command, env=environ_of(settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def somebody_holds(settings: Settings, key: str) -> Iterator[None]:
    """A table is locked by another process of this machine."""
    path = settings.home / "locks" / f"{key.replace('/', '.')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wait_until_it_writes(settings: Settings, process: "subprocess.Popen[str]", key: str) -> str:
    """The id of the run in which the table's step has started: it holds the table's pool, and waits for its lock."""

    def started(instance: dg.DagsterInstance) -> Iterator[str]:
        for each in instance.get_runs(dg.RunsFilter(statuses=[DagsterRunStatus.STARTED])):
            steps = [
                entry.dagster_event
                for entry in instance.all_logs(each.run_id, of_type=DagsterEventType.STEP_START)
            ]
            if any(event and event.step_key == key.replace("/", "__") for event in steps):
                yield each.run_id

    found: list[str] = []

    def is_writing() -> bool:
        assert process.poll() is None, process.communicate()
        found.extend(started(instance))
        return bool(found)

    with records(settings) as instance:
        wait_until(f"the step of {key} started", is_writing, every=0.2)
    return found[0]
