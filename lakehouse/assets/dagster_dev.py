"""Starts the Spark Connect server for a plain `dagster dev`, and ends both together.

1. A run, or the landing sensor, finds the `dagster dev` process among its ancestors and records its
   pid and start time in `<home>/server/dagster_dev/`.
2. If no server runs, the run or the sensor starts a companion (`python -m
   lakehouse.assets.dagster_dev`) in a separate session. A run waits for the server.
3. The companion holds a lock, so each home has at most one. It supervises the server while a
   recorded `dagster dev` is alive.
4. When a recorded `dagster dev` has ended, the companion ends its descendants. After the last one,
   it ends the server that it started.

**Safety properties** (tests in `assets/test_dagster_dev.py`)
- A process is identified by its pid and start time. Another process that gets the same pid later
  does not keep the server alive, and is not ended.
- Besides the server, only descendants of a recorded `dagster dev` are ended, and only after
  `dagster dev` itself has ended. Descendants end before the server.
- If the companion is killed, the server also ends (`base/processes.py`).
"""

import contextlib
import os
import signal
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
from lakehouse.base.processes import Process, hold_lock, identify, wait_until
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.spark.server.server import folder, status, supervised, tail, wait_until_running

_WAIT_SECONDS = 180.0  # longer than the companion waits for its server
_PROGRESS_SECONDS = 5.0
_END_SECONDS = 20.0
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
        if not _is_expected(settings):
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
        if companion is None or companion.poll() is not None:
            companion = request_server(settings)
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            say(
                f"waiting for the Spark Connect server, which is starting "
                f"({waited:.0f} s so far; log: {state.log})"
            )
        time.sleep(0.2)  # polls another process
    if companion is not None:
        say(f"Spark Connect server up after {time.monotonic() - began:.1f} s")


def request_server(settings: Settings) -> "subprocess.Popen[bytes] | None":
    """Starts the companion of this `dagster dev`, unless the server is running or supervised.

    Returns the companion, or `None` if none was started.
    """
    dagster_dev = find_dagster_dev()
    if settings.spark != "server" or dagster_dev is None:
        return None
    record(settings, dagster_dev)
    state = status(settings)
    if state.is_running or state.supervisor is not None or _has_supervisor(settings):
        return None
    with _log(settings).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "lakehouse.assets.dagster_dev"],
            cwd=ROOT,
            env={**os.environ, **settings.as_environ()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C in the terminal does not reach it
        )


def record(settings: Settings, dagster_dev: Process) -> None:
    """Records a `dagster dev`, for which the companion keeps the server running.

    Each call of `request_server` records it again. The record is the name of an empty file, so it
    is never half-written. The companion would take a half-written record for a `dagster dev` that
    has ended, and end its runs.
    """
    _records(settings).mkdir(parents=True, exist_ok=True)
    (_records(settings) / f"{dagster_dev.pid} {dagster_dev.born}").touch()


def recorded(settings: Settings) -> list[Process]:
    """The recorded `dagster dev` processes that are alive; deletes the records of the others."""
    living: list[Process] = []
    for file in _records(settings).iterdir():
        pid, _, born = file.name.partition(" ")
        process = Process(pid=int(pid), born=born)
        if process.is_alive:
            living.append(process)
        else:
            file.unlink(missing_ok=True)
    return living


def server_sentence(settings: Settings) -> str | None:
    """Explains why runs wait for the server; `None` if it runs, or if nothing would start it."""
    if settings.spark != "server":
        return None
    state = status(settings)
    if state.is_running or not _is_expected(settings):
        return None
    return f"runs wait for the Spark Connect server, which is starting (log: {state.log})"


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


def _end_descendants(settings: Settings, restarter: threading.Thread) -> None:
    """Waits until all recorded `dagster dev` have ended, and ends the descendants of each.

    Also returns if the thread that restarts the server has ended. Collects descendants already
    while the server starts, because a `dagster dev` may end before the server is ready.
    """
    descendants: dict[Process, set[Process]] = {}

    def is_abandoned() -> bool:  # `wait_until_running` calls it repeatedly
        descendants.update(_living_descendants(settings))
        return False

    wait_until_running(settings, abandoned=is_abandoned)
    while restarter.is_alive():
        living = _living_descendants(settings)
        for dead_process in descendants.keys() - living.keys():
            _end(descendants.pop(dead_process))
        if not living:
            return
        descendants |= living
        time.sleep(1)  # polls other processes


def _living_descendants(settings: Settings) -> dict[Process, set[Process]]:
    """The descendants of each recorded `dagster dev` that is alive, without this process's.

    They are the web server, the daemon, the code servers and the runs. A `dagster dev` that ended
    while its descendants were listed is left out: the kernel has given them to another parent, so
    the list lacks them.
    """
    this = psutil.Process()
    own_pids = {each.pid for each in (this, *this.children(recursive=True))}
    descendants: dict[Process, set[Process]] = {}
    for dagster_dev in recorded(settings):
        pids = set[int]()
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(dagster_dev.pid).children(recursive=True)
            pids.update(each.pid for each in children)
        processes = set(filter(None, map(identify, pids - own_pids)))
        if dagster_dev.is_alive:
            descendants[dagster_dev] = processes
    return descendants


def _is_expected(settings: Settings) -> bool:
    """Whether the server will start, by its supervisor or by our `dagster dev`'s companion."""
    return status(settings).supervisor is not None or find_dagster_dev() is not None


def _end(processes: set[Process]) -> None:
    """Terminates all processes, and kills the processes that do not end in time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.is_alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        wait_until(lambda: not any(process.is_alive for process in processes), _END_SECONDS)


def _has_supervisor(settings: Settings) -> bool:
    """Whether a companion or `lakehouse up` supervises the server of this home."""
    for lock in (_lock(settings), settings.home / "up.lock"):
        try:
            with hold_lock(lock, seconds=0):
                continue
        except BlockingIOError:
            return True
    return False


def _records(settings: Settings) -> Path:
    return folder(settings) / "dagster_dev"


def _lock(settings: Settings) -> Path:
    return folder(settings) / "dagster_dev.lock"


def _log(settings: Settings) -> Path:
    return folder(settings) / "dagster_dev.log"


def main() -> int:
    """Runs the companion; returns the exit code of an error, otherwise 0.

    Supervises the server while a recorded `dagster dev` is alive. Returns immediately if another
    companion supervises the server.
    """
    settings = parse_settings(os.environ, base=ROOT)
    say = partial(print, flush=True)
    try:
        with contextlib.suppress(BlockingIOError), hold_lock(_lock(settings), seconds=0):
            while recorded(settings):
                if status(settings).supervisor is not None:
                    time.sleep(0.5)  # a command supervises the server and will end it
                    continue
                with supervised(settings, say, waits=False) as restarter:
                    _end_descendants(settings, restarter)
                say("dagster dev has ended; the Spark Connect server is stopped")
    except LakehouseError as error:
        say(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
