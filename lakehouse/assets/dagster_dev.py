"""Starts the Spark Connect server for a plain `dagster dev`, and ends both together.

1. A run finds the `dagster dev` process among its ancestors. If no server runs, the run starts a
   companion (`python -m lakehouse.assets.dagster_dev PID BORN`) in a separate session, and waits.
2. The companion holds a lock, so at most one per home supervises the server. It does so while its
   `dagster dev` is alive.
3. When this `dagster dev` has ended, the companion ends its descendants, and then the server that
   the companion started. A run of another `dagster dev` of the same home starts the next companion.

**Safety properties** (tests in `assets/test_dagster_dev.py`)
- A process is identified by its pid and start time. Another process that gets the same pid later
  does not keep the server alive, and is not ended.
- Besides the server, only descendants of this `dagster dev` are ended, and only after `dagster dev`
  itself has ended. Descendants end before the server.
- If the companion is killed, the server also ends (`base/processes.py`).
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil

from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.installation import ROOT
from lakehouse.base.processes import Process, hold_lock, identify
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.spark.server.server import folder, status, supervised, tail, wait_until_running

_WAIT_SECONDS = 180.0  # longer than the companion waits for its server
_PROGRESS_SECONDS = 5.0
_END_SECONDS = 20.0
# Longer than another companion takes from its lock to the start of its server, which runs then see.
_LOCK_SECONDS = 5.0
_ERRORS = {kind.exit_code: kind for kind in (Broken, Refused, Transient)}


def wait_for_server(settings: Settings, say: Callable[[str], None]) -> None:
    """Waits until the server answers. Starts it if this process descends from a `dagster dev`.

    Returns without a server if nothing will start one. `say` receives a line every few seconds.

    Raises:
        Refused, Broken, Transient: the server could not be started, or did not answer in time.
    """
    began = time.monotonic()
    reported = began
    companion: subprocess.Popen[bytes] | None = None
    while not (state := status(settings)).is_running:
        dagster_dev = find_dagster_dev()
        if state.supervisor is None and dagster_dev is None:
            return
        waited = time.monotonic() - began
        if waited > _WAIT_SECONDS:
            raise Transient(
                f"the Spark Connect server did not answer at port {settings.spark_port} within "
                f"{_WAIT_SECONDS:.0f} s. See its log: {state.log}"
            )
        if companion is not None and companion.poll():  # it has ended with an error
            kind = _ERRORS.get(companion.returncode, Broken)
            raise kind(f"the Spark Connect server could not be started: {tail(_log(settings))}")
        is_starting = companion is not None and companion.poll() is None
        if dagster_dev is not None and state.supervisor is None and not is_starting:
            companion = _start_companion(settings, dagster_dev)
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            say(
                f"waiting for the Spark Connect server, which is starting "
                f"({waited:.0f} s so far; log: {state.log})"
            )
        time.sleep(0.2)  # polls another process
    if companion is not None:
        say(f"Spark Connect server up after {time.monotonic() - began:.1f} s")


def _start_companion(settings: Settings, dagster_dev: Process) -> "subprocess.Popen[bytes]":
    _log(settings).parent.mkdir(parents=True, exist_ok=True)
    with _log(settings).open("wb") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "lakehouse.assets.dagster_dev"),
                *(str(dagster_dev.pid), dagster_dev.born),
            ],
            cwd=ROOT,
            env={**os.environ, **settings.as_environ()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C in the terminal does not reach it
        )


def find_dagster_dev() -> Process | None:
    """The `dagster dev` process that this process descends from; `None` if there is none."""
    for ancestor in psutil.Process().parents():
        with contextlib.suppress(psutil.Error):
            if is_dagster_dev(ancestor.cmdline()):
                return identify(ancestor.pid)
    return None


def is_dagster_dev(command_line: list[str]) -> bool:
    """Whether the command line starts `dagster dev`, as a script or as a module."""
    return any(
        Path(program).name == "dagster" and argument == "dev"
        for program, argument in pairwise(command_line)
    )


def _wait_for_end(
    settings: Settings, dagster_dev: Process, restarter: threading.Thread
) -> set[Process]:
    """Waits until `dagster_dev` has ended, and returns its descendants.

    Also returns if the thread that restarts the server has ended.
    """
    descendants = _descendants(dagster_dev)
    wait_until_running(settings)
    while restarter.is_alive() and dagster_dev.is_alive:
        descendants = _descendants(dagster_dev) or descendants
        time.sleep(1)  # polls other processes
    return descendants


def _descendants(dagster_dev: Process) -> set[Process]:
    """The descendants of a `dagster dev`, without this process's; empty if it has ended.

    They are the web server, the daemon, the code servers and the runs. If it ends while they are
    listed, the list may lack some: the kernel gives them to another parent.
    """
    this = psutil.Process()
    own_pids = {each.pid for each in (this, *this.children(recursive=True))}
    pids = set[int]()
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(dagster_dev.pid).children(recursive=True)
        pids.update(each.pid for each in children)
    processes = set(filter(None, map(identify, pids - own_pids)))
    return processes if dagster_dev.is_alive else set()


def _log(settings: Settings) -> Path:
    return folder(settings) / "dagster_dev.log"


def main() -> int:
    """Runs the companion of a `dagster dev`; returns the exit code of an error, otherwise 0.

    Supervises the server while this `dagster dev` is alive. Returns soon if another companion
    supervises the server.
    """
    dagster_dev = Process(pid=int(sys.argv[1]), born=sys.argv[2])
    settings = parse_settings(os.environ, base=ROOT)
    say = partial(print, flush=True)
    try:
        lock = hold_lock(folder(settings) / "dagster_dev.lock", seconds=_LOCK_SECONDS)
        with contextlib.suppress(BlockingIOError), lock:
            while dagster_dev.is_alive:
                if status(settings).supervisor is not None:
                    time.sleep(0.5)  # a command supervises the server and will end it
                    continue
                with supervised(settings, say, waits=False) as restarter:
                    descendants = _wait_for_end(settings, dagster_dev, restarter)
                    if not dagster_dev.is_alive:
                        for process in descendants:
                            process.end(seconds=_END_SECONDS)
                say("dagster dev has ended; the Spark Connect server is stopped")
    except LakehouseError as error:
        say(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
