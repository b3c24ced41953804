"""Starts, stops and restarts the lake's Spark Connect server: one JVM on loopback.

1. Starting and stopping hold a lock, so two concurrent starts result in one server.
2. A start creates a token, in a file that only this user can read. Server and clients receive the
   token in the environment, never on a command line.
3. A start returns when the port answers. A JVM that does not answer in time is ended, and the error
   contains the end of the JVM's log.
4. `supervised` restarts the server when it dies. `base/processes.py` ends the server together with
   its supervising process, even if the supervising process is killed.

**Safety properties** (tests in `spark/server/test_server.py`)
- A process that reuses the server's pid is neither mistaken for the server nor signalled.
- A server that another process supervises is not stopped, because its supervisor would restart it.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.processes import (
    BoundProcess,
    Process,
    bound_log,
    hold_lock,
    identify,
    port_answers,
    port_is_free,
)
from lakehouse.base.settings import Settings
from lakehouse.spark.server import jars
from lakehouse.spark.server.conf import (
    TOKEN_VARIABLE,
    scratch_folder,
    spark_conf,
    storage_of,
    write_conf,
    write_private,
)
from lakehouse.spark.server.jars import find_java

Condition = Literal["running", "starting", "died", "stopped"]


@frozen
class ServerState:
    """The state of the lake's server.

    - `condition`: `running` if its port answers, `starting` if only its process is alive, `died` if
      it ended unexpectedly, `stopped` if it was stopped, or ended together with its supervisor.
    - `storage`: the storage that the server was started for (see `storage_of`).
    - `supervisor`: the running process, if any, that restarts the server when it dies.
    """

    condition: Condition
    port: int
    log: Path
    storage: str | None = None
    process: Process | None = None
    supervisor: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process is alive and its port answers."""
        return self.condition == "running"

    @property
    def pid(self) -> int | None:
        """The JVM's process id, if it is alive."""
        if self.process is None or self.condition not in ("running", "starting"):
            return None
        return self.process.pid


def folder(settings: Settings) -> Path:
    """The folder of the server's token, pid file, log and scratch files."""
    return settings.home / "server"


def status(settings: Settings) -> ServerState:
    """The server's current state, after checking its process and its port."""
    log = folder(settings) / "server.log"
    try:
        record = json.loads((folder(settings) / "pid").read_text())
    except FileNotFoundError:
        return ServerState(condition="stopped", port=settings.spark_port, log=log)
    process = Process(**record["process"])
    port = int(record["port"])
    supervisor = Process(**record["keeper"]) if record["keeper"] else None
    if supervisor and not supervisor.is_alive:
        supervisor = None
    if process.is_alive:
        condition: Condition = "running" if port_answers(port) else "starting"
    else:
        supervisor_was_killed = bool(record["keeper"]) and supervisor is None
        condition = "stopped" if supervisor_was_killed else "died"
    return ServerState(
        condition=condition,
        port=port,
        log=log,
        storage=record.get("storage"),
        process=process,
        supervisor=supervisor,
    )


def check_serves(settings: Settings, state: ServerState) -> None:
    """Refuses a running server with another port or, for a lake on S3, another storage."""
    if state.port != settings.spark_port:
        raise Refused(
            f"the Spark Connect server of this lake runs at port {state.port}, but "
            f"LAKEHOUSE_SPARK_PORT is {settings.spark_port}. Either set it to {state.port}, or run "
            "lakehouse server stop"
        )
    storage = storage_of(settings)
    if settings.on_s3 and state.storage not in (None, storage):
        raise Refused(
            f"the Spark Connect server of this lake was started for {state.storage}, but the "
            f"settings now name {storage}. Stop the server: use lakehouse server stop, or Ctrl-C "
            "where lakehouse up runs"
        )


def remember(settings: Settings, process: Process, supervisor: Process | None) -> None:
    """Records the launched server for `status`."""
    record = {
        "process": asdict(process),
        "keeper": asdict(supervisor) if supervisor else None,
        "port": settings.spark_port,
        "storage": storage_of(settings),
    }
    write_private(folder(settings) / "pid", json.dumps(record))


# A start takes 5 s on two free cores, and ten times as long on loaded CI machines.
_START_SECONDS = 120
_END_SECONDS = 15
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# If a server ran longer than this, the pause before its restart is the first pause again.
_STEADY_SECONDS = 60.0
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


def start(settings: Settings) -> ServerState:
    """Starts the lake's server, unless it is running. A server started here runs until `stop`.

    Raises:
        Refused: the port is in use, the running server has another port or storage, or there is no
            Java.
        Transient: the server has died, and its supervisor is about to restart it.
        Broken: the JVM ended, or did not answer in time.
    """
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.condition in ("running", "starting"):
            check_serves(settings, state)
            return wait_until_running(settings)
        if state.supervisor is not None:
            raise Transient(
                f"process {state.supervisor.pid} restarts the Spark Connect server, which has died."
                f" Try again in half a minute (log: {state.log})"
            )
        launch(settings, is_supervised=False)
        return wait_until_running(settings)


def stop(settings: Settings) -> bool:
    """Ends the server; returns whether the server was running.

    Raises:
        Refused: another process supervises the server.
    """
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.supervisor is not None:
            raise Refused(
                f"process {state.supervisor.pid} (`make run`, `dagster dev` or a command) "
                "supervises the Spark Connect server and would restart it. Press Ctrl-C where that "
                f"process runs (log: {state.log})"
            )
        clear(settings)
        return state.pid is not None


@contextlib.contextmanager
def supervised(
    settings: Settings, say: Callable[[str], None] = lambda _line: None, *, waits: bool = True
) -> Iterator[threading.Thread]:
    """Keeps a server running during the block. If the server dies, it is restarted.

    A restarted server has the same token. Yields the thread that restarts the server; this thread
    calls `say` with a sentence for each event. If a server is already running, it is used, and it
    is ended after the block only if it died and was restarted. With `waits=False`, the block begins
    while the server is still starting; call `wait_until_running` in the block.

    Raises:
        Refused, Broken: as for `start`.
        Transient: another process supervises the server.
    """
    supervisor = _Supervisor(settings, say)
    lock = folder(settings) / "lock"
    try:
        with hold_lock(lock):
            state = status(settings)
            if state.supervisor is not None:
                raise Transient(
                    f"process {state.supervisor.pid} already supervises this lake's Spark Connect "
                    f"server (log: {state.log}). Try again when that process has ended"
                )
            if state.pid is not None:
                check_serves(settings, state)
                supervisor.process = wait_until_running(settings).process
            else:
                supervisor.launch(waits=waits)
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop_event.set()
        if supervisor.is_alive():
            supervisor.join()
        if supervisor.launched is not None:  # otherwise, the server was running before
            with hold_lock(lock):
                clear(settings)
            supervisor.launched.end()


class _Supervisor(threading.Thread):
    """The thread that restarts the server; `launched` is the server that it started, if any."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        super().__init__(name="spark-server", daemon=True)
        self._settings = settings
        self._say = say
        self.process: Process | None = None
        self.launched: BoundProcess | None = None
        self.stop_event = threading.Event()

    def run(self) -> None:
        """Restarts the server with the same token whenever it dies, until `stop_event` is set."""
        token = read_token(self._settings)
        log = folder(self._settings) / "server.log"
        pause = _FIRST_PAUSE_SECONDS
        since = time.monotonic()
        assert token is not None
        while not self.stop_event.wait(0.5):
            if self.process and self.process.is_alive:
                bound_log(log)
                continue
            if time.monotonic() - since > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._say(f"the Spark Connect server died and restarts in {pause:.0f} s (log: {log})")
            if self.stop_event.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            since = time.monotonic()
            try:
                with hold_lock(folder(self._settings) / "lock"):
                    self.launch(token)
            except LakehouseError as error:
                self._say(str(error))
            else:
                port = self._settings.spark_port
                self._say(f"the Spark Connect server is up again at localhost:{port}")

    def launch(self, token: str | None = None, *, waits: bool = True) -> None:
        """Launches a server. Ends the server that this process launched before, if any."""
        if self.launched is not None:
            self.launched.end()
        self.launched = launch(self._settings, token=token, is_supervised=True)
        self.process = status(self._settings).process
        if waits:
            state = wait_until_running(self._settings, abandoned=self.stop_event.is_set)
            self.process = state.process


def wait_until_running(
    settings: Settings, *, abandoned: Callable[[], bool] = lambda: False
) -> ServerState:
    """Waits until the launched server answers.

    Raises:
        Broken: the server ended, did not answer in time, or the start was abandoned. `clear` has
            been called.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not (state := status(settings)).is_running:
        is_late = time.monotonic() > deadline
        if is_late or state.condition in ("died", "stopped") or abandoned():
            clear(settings)
            problem = (
                f"did not answer at port {settings.spark_port} within {_START_SECONDS} s"
                if is_late
                else "ended while it started"
            )
            raise Broken(
                f"the Spark Connect server {problem}; the end of {state.log}:\n{tail(state.log)}"
            )
        time.sleep(0.1)  # polls another process
    return state


def clear(settings: Settings) -> None:
    """Ends the server's process, and removes its pid file, token and scratch folder."""
    state = status(settings)
    if state.process is not None:
        state.process.end(seconds=_END_SECONDS)
    for name in ("pid", "token"):
        (folder(settings) / name).unlink(missing_ok=True)
    shutil.rmtree(scratch_folder(settings), ignore_errors=True)


def read_token(settings: Settings) -> str | None:
    """The token of the last started server, if any."""
    with contextlib.suppress(FileNotFoundError):
        return (folder(settings) / "token").read_text()
    return None


def launch(
    settings: Settings, *, is_supervised: bool, token: str | None = None
) -> BoundProcess | None:
    """Starts the JVM, and writes its token to a file. Call `wait_until_running` afterwards.

    Only a supervised server is returned; it ends with this process. Without `token`, a new token is
    created, and the previous server's log is renamed.
    """
    check_port_is_free(settings)
    here = folder(settings)
    log_path = here / "server.log"
    if token is None:
        token = secrets.token_urlsafe(32)
        with contextlib.suppress(FileNotFoundError):
            log_path.replace(here / "server.log.1")
    shutil.rmtree(scratch_folder(settings), ignore_errors=True)
    scratch_folder(settings).mkdir(parents=True)
    conf = spark_conf(settings, jars.fetch())
    write_conf(here / "conf", conf)
    spark_home = jars.spark_home()
    # These variables are for Spark's clients.
    client_variables = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    inherited = {name: value for name, value in os.environ.items() if name not in client_variables}
    environment = {
        **inherited,
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(here / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        TOKEN_VARIABLE: token,
    }
    # spark-submit and spark-class end in `exec`, so this pid becomes the JVM's pid.
    command = [spark_home / "bin" / "spark-submit", "--class", _MAIN, "spark-internal"]
    with log_path.open("ab") as log:
        if is_supervised:
            launched = BoundProcess(command, cwd=here, env=environment, output=log)
        else:
            launched = subprocess.Popen(
                command,
                cwd=here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    write_private(here / "token", token)
    process = identify(launched.pid)
    if process is None:
        raise Broken(
            f"the Spark Connect server ended immediately; the end of its log:\n{tail(log_path)}"
        )
    supervisor = identify(os.getpid()) if is_supervised else None
    remember(settings, process, supervisor)
    return launched if isinstance(launched, BoundProcess) else None


def check_port_is_free(settings: Settings) -> None:
    """Refuses a Spark port that another program uses."""
    if not port_is_free(settings.spark_port):
        raise Refused(
            f"port {settings.spark_port}, for the Spark Connect server, is in use by another "
            "program. Set LAKEHOUSE_SPARK_PORT to a free port"
        )


def tail(log: Path) -> str:
    """The last lines of a log."""
    with contextlib.suppress(FileNotFoundError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return "(no log)"
