"""The server that a plain `dagster dev` brings: one for all of its runs, and for as long as it lives."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakehouse.assets import dagster_dev as companion
from lakehouse.assets.dagster_dev import (
    is_dagster_dev,
    wait_for_server,
)
from lakehouse.base.processes import identify, port_is_free
from lakehouse.base.settings import Settings
from lakehouse.spark.server import server
from lakehouse_tests.conftest import own_settings, wait_until

# Waits for the server as a run does, says how that ended, and stays.
RUN = """
import os, time
from pathlib import Path
from lakehouse.base.errors import LakehouseError
from lakehouse.base.settings import parse_settings
from lakehouse.assets.dagster_dev import wait_for_server
from lakehouse.spark.server.server import status
settings = parse_settings(os.environ, base=Path.cwd())
try:
    wait_for_server(settings, lambda line: None)
    said = f"up {status(settings).pid}"
except LakehouseError as error:
    said = f"{type(error).__name__} {error}"
# One write per line: the runs share a pipe, and an unbuffered print writes word by word.
os.write(1, f"{os.getpid()} {said}\\n".encode())
time.sleep(600)
"""
# A process that looks like `dagster dev` to its descendants: the real one takes half a minute (lakehouse_tests/long).
DAGSTER = f"""
import subprocess, sys
runs = [subprocess.Popen([sys.executable, "-c", {RUN!r}]) for _ in range(int(sys.argv[2]))]
for run in runs:
    run.wait()
"""


@contextmanager
def dagster_dev(settings: Settings, folder: Path, runs: int) -> "Iterator[subprocess.Popen[str]]":
    """A process with the command line of `dagster dev`, and that many runs below it that wait for the server."""
    script = folder / "dagster"
    script.write_text(DAGSTER)
    with subprocess.Popen(
        [sys.executable, str(script), "dev", str(runs)],
        env={**os.environ, **settings.as_environ()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            yield started
        finally:
            os.killpg(started.pid, signal.SIGKILL)


@pytest.mark.long
def test_runs_of_a_dagster_dev_share_a_server_that_ends_with_it(tmp_path: Path) -> None:
    settings = own_settings(tmp_path / "home")
    with dagster_dev(settings, tmp_path, runs=2) as started:
        assert started.stdout is not None
        first, second = (started.stdout.readline().split() for _ in range(2))
        assert first[1] == "up" and first[1:] == second[1:]
        runs = [identify(int(words[0])) for words in (first, second)]
        os.kill(started.pid, signal.SIGKILL)
        wait_until("the server has ended", lambda: server.status(settings).condition == "stopped")
        wait_until("its port is free", lambda: port_is_free(settings.spark_port))
        assert not [run for run in runs if run is not None and run.is_alive]


def test_a_server_that_cannot_start_is_an_error_of_the_run_in_its_own_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        settings = own_settings(tmp_path / "home", LAKEHOUSE_SPARK_PORT=port)
        with dagster_dev(settings, tmp_path, runs=1) as started:
            assert started.stdout is not None
            said = started.stdout.readline()
    assert f"Refused the Spark Connect server could not be started: port {port}" in said
    assert "Set LAKEHOUSE_SPARK_PORT to a free port" in said


def test_descendants_are_those_of_a_living_dagster_dev_without_the_companion_s_own() -> None:
    this = identify(os.getpid())
    assert this is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
        assert companion._descendants(this) == set()
    ended = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = identify(ended.pid)
    assert process is not None
    ended.communicate()
    assert companion._descendants(process) == set()


def test_below_no_dagster_dev_nothing_is_started_nor_waited_for(tmp_path: Path) -> None:
    settings = own_settings(tmp_path)
    said = list[str]()
    wait_for_server(settings, said.append)
    assert said == [] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python /lake/.venv/bin/dagster dev -p 3000", True),
        ("python -m dagster dev", True),
        ("python -m dagster code-server start", False),
        ("python -m dagster._daemon run", False),
        ("vi dagster dev-notes.md", False),
        ("", False),
    ],
)
def test_a_dagster_dev_is_known_by_its_command_line(command: str, expected: bool) -> None:
    assert is_dagster_dev(command.split()) is expected
