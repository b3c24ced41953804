"""`lakehouse up`: runs Spark, Dagster's UI and its daemon in the foreground, also for `make run`.

Dagster and the server start at the same time. A run that begins before the server answers waits for
the server.

**Safety properties** (tests in `test_foreground.py`)
- Every started process ends with this process, even if this process is killed: each child's guard
  has a pipe that the kernel then closes (`base/processes.py`).
- Dagster ends before the server, so its runs are interrupted and recorded while the server still
  answers.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click

from lakehouse.assets.home import dagster_home, has_open_runs
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.installation import ROOT, require
from lakehouse.base.processes import BoundProcess, bound_log, hold_lock, port_is_free
from lakehouse.base.settings import Settings
from lakehouse.cli.output import show_lines, tell
from lakehouse.cli.services import DagsterServices
from lakehouse.cli.settings import settings_in_force
from lakehouse.spark.server import server

_PAGE_SECONDS = 180  # how long Dagster's page may take to answer
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ALARM = re.compile(r" - (ERROR|CRITICAL) - ")
_SHOWN_CHARACTERS = 220


class _Stopped(BaseException):
    """A signal asked this process to stop."""


def run_all(settings: Settings) -> int:
    """Runs everything until a signal (returns 0), or until Dagster ends by itself (returns 1).

    Also returns 1 if the thread that restarts the Spark Connect server has ended.

    Prints events and the error lines of Dagster's log.

    Raises:
        Refused: a port is in use, this lake is already running, or a package is missing.
        Broken, Transient: the server or Dagster's UI did not start.

    After an error, no started process is left.
    """
    is_up = Refused(
        f"this lake is already running: lakehouse up runs with the home {settings.home}. For "
        "another lake, use another LAKEHOUSE_HOME"
    )
    with hold_lock(settings.home / "up.lock", seconds=0, refusal=is_up):
        if not port_is_free(settings.port):
            raise Refused(
                f"port {settings.port}, for Dagster's page, is in use by another program. Set "
                "LAKEHOUSE_PORT to a free port"
            )
        require("dagster_webserver", extra="demo", purpose="Dagster's page")
        home = dagster_home(settings)
        log = home / "dagster.log"
        spark_server = contextlib.nullcontext()
        if settings.spark == "server":
            show_lines("starting the Spark Connect server and Dagster ...")
            spark_server = server.supervised(settings, show_lines, waits=False)
        try:
            with _stopped_by_signals() as check_stop, spark_server as spark:
                close_dead_runs(home)
                with contextlib.suppress(FileNotFoundError):
                    log.replace(home / "dagster.log.1")
                with tempfile.TemporaryDirectory() as folder:
                    dagster = DagsterServices(settings, log, Path(folder))
                    try:
                        dagster.start("web server")
                        dagster.start("code server")
                        _wait_until_up(settings, dagster, log, check_stop)
                        with _metrics(settings, home):
                            _watch(dagster, spark, log, check_stop)
                    finally:
                        show_lines("stopping ...")
                        dagster.end()
        except _Stopped:
            show_lines("stopped")
            return 0
        return 1


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[Callable[[], None]]:
    """Ends the block at the first signal by `_Stopped`. Later signals are ignored in the block.

    `_Stopped` may be lost if it is raised inside a destructor or an import. Therefore, the block
    has to call the yielded function regularly, which raises it again.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    has_signal = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        has_signal.set()
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise _Stopped

    def check_stop() -> None:
        if has_signal.is_set():
            raise _Stopped

    previous_actions = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield check_stop
    finally:
        for number, action in previous_actions.items():
            signal.signal(number, action)


@contextlib.contextmanager
def _metrics(settings: Settings, home: Path) -> Iterator[None]:
    """Serves the metrics in a separate process, because computing them takes memory and may fail.

    No other process depends on the metrics, so a port in use is only reported.
    """
    port = settings.metrics_port
    if port == 0:
        yield
        return
    if not port_is_free(port):
        show_lines(
            f"no metrics: port {port} is in use by another program. Set LAKEHOUSE_METRICS_PORT to "
            "a free port, or to 0 for no metrics"
        )
        yield
        return
    show_lines(f"metrics at http://127.0.0.1:{port}/metrics")
    command = [sys.executable, "-m", "lakehouse", "metrics", "--serve"]
    with (home / "metrics.log").open("wb") as output:
        environment = {**os.environ, **settings.as_environ()}
        process = BoundProcess(command, cwd=ROOT, env=environment, output=output)
    try:
        yield
    finally:
        process.end()


def _wait_until_up(
    settings: Settings,
    dagster: DagsterServices,
    log: Path,
    check_stop: Callable[[], None],
) -> None:
    since = time.monotonic()
    deadline = since + _PAGE_SECONDS
    while not _answers(settings.port):
        check_stop()
        if name := dagster.check(show_lines):
            raise Broken(f"the {name} ended while it started; the end of {log}:\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise Broken(
                f"Dagster's page did not answer at port {settings.port} within {_PAGE_SECONDS} s; "
                f"the end of {log}:\n{_tail(log)}"
            )
        time.sleep(0.2)  # polls another process
    show_lines(f"page at http://127.0.0.1:{settings.port}  (Ctrl-C stops everything)")
    if settings.spark == "server":
        server.wait_until_running(settings)
        seconds = time.monotonic() - since
        show_lines(
            f"Spark Connect server up at localhost:{settings.spark_port} after {seconds:.1f} s"
        )
    check_stop()


def _answers(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5),
    ):
        return True
    return False


def _watch(
    dagster: DagsterServices,
    spark: threading.Thread | None,
    log: Path,
    check_stop: Callable[[], None],
) -> None:
    """Shows Dagster's errors, one line each, until a process or the thread `spark` has ended."""
    with log.open(errors="replace") as lines:
        while True:
            check_stop()
            for line in lines:
                text = _COLOUR.sub("", line)
                if _ALARM.search(text):
                    show_lines(text.strip()[:_SHOWN_CHARACTERS])
            if bound_log(log):  # the log was emptied
                lines.seek(0)
            if name := dagster.check(show_lines):
                show_lines(f"the {name} ended by itself; the end of {log}:\n{_tail(log)}")
                return
            if spark is not None and not spark.is_alive():
                show_lines("the thread that restarts the Spark Connect server has ended")
                return
            time.sleep(0.5)  # polls the log and the processes


def _tail(log: Path) -> str:
    return _COLOUR.sub("", server.tail(log))


@click.command("up", epilog="Example: LAKEHOUSE_PORT=3001 lakehouse up")
def up_command() -> int | None:
    """Run Spark, Dagster's web page and the sensors in the foreground, until Ctrl-C.

    Spark runs here only with LAKEHOUSE_SPARK=server.
    """
    return run_all(settings_in_force())


def close_dead_runs(home: Path) -> None:
    """Starts a process that closes the Dagster runs whose own process has ended.

    In a new home, this process also makes Dagster's SQLite files, which no two processes can make
    at once. `lakehouse up` runs for days, and would keep Dagster in memory if it imported Dagster.
    The process is started only if needed, because the import takes over a second.
    """
    if not has_open_runs(home):
        return
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse.assets.runs", str(home)]
    environ = {**os.environ, "DAGSTER_HOME": str(home)}
    result = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        tell(
            f"runs whose process has ended could not be closed (exit code {result.returncode}); "
            "Dagster's page shows them as started"
        )
