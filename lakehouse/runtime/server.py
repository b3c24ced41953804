"""The life of the lake's Spark Connect server: one JVM on loopback, known by a file with its pid and birth.

1. Whoever starts or stops holds a lock, so two starts give one server.
2. A start makes a fresh token, readable by its owner only; server and clients get it by environment, never on a command line.
3. It returns when the port answers; a JVM that does not get there is ended, and the end of its log is in the error.
4. `supervised` brings it back when it dies. A supervisor (`supervisor.py`) ends it with the process that asked, however that ended.

**Safety properties** (tests in `runtime/test_server.py`)
- Another process that got the server's pid is never taken for the server, nor signalled.
- A server that another process supervises is not stopped: its supervisor would start it again at
  once.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.core.settings import Settings
from lakehouse.runtime import jars
from lakehouse.runtime.java import find_java
from lakehouse.runtime.processes import (
    Process,
    bound_log,
    hold_lock,
    identify,
    port_is_free,
)
from lakehouse.runtime.server_state import ServerState, check_serves, folder, remember, status
from lakehouse.runtime.spark_settings import (
    TOKEN_VARIABLE,
    scratch_folder,
    server_conf,
    write_conf,
    write_private,
)
from lakehouse.runtime.supervisor import Supervised, supervise

_START_SECONDS = (
    120  # it takes 5 s on 2 free cores; CI machines under load were seen to need ten times that
)
_END_SECONDS = 15
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0  # a server that lived this long starts again with the first pause
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


def start(settings: Settings) -> ServerState:
    """The server of this lake, started unless it runs; it stays until `stop`.

    Raises:
        Refused: the port is taken, the server runs elsewhere or for another storage than the settings say, or there is no Java.
        Broken: the JVM ended, or did not answer in time.
    """
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.condition in ("running", "starting"):
            check_serves(settings, state)
            return wait_until_running(settings)
        launch(settings, is_supervised=False)
        return wait_until_running(settings)


def stop(settings: Settings) -> bool:
    """Ends the server in order, unless another process supervises it; whether there was one."""
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.supervisor is not None:
            raise Refused(
                "the Spark Connect server belongs to a running `make run`, `dagster dev` or command "
                f"(process {state.supervisor.pid}); stop that one with Ctrl-C (log: {state.log})"
            )
        clear(settings)
        return state.pid is not None


@contextlib.contextmanager
def supervised(
    settings: Settings, tell: Callable[[str], None] = lambda _line: None
) -> Iterator[threading.Thread]:
    """A running server for as long as the block lasts: brought back with the same token when it dies, ended at the end.

    A server that `start` brought up before is used, and left as it was found. `tell` gets a sentence for each thing that
    happens, from the thread that brings the server back, which the block is given. A process that is killed leaves no server.

    Raises:
        Refused, Broken: as for `start`.
        Transient: another process supervises the server; it may end, or the server be used.
    """
    server = _SupervisedServer(settings, tell)
    again = threading.Thread(target=server.bring_back, name="spark-server", daemon=True)
    lock = folder(settings) / "lock"
    try:
        with hold_lock(lock):
            state = status(settings)
            if state.supervisor is not None:
                another = f"process {state.supervisor.pid} keeps its Spark Connect server (log: {state.log})"
                raise Transient(f"this lake is already up: {another}; try again")
            if state.pid is not None:
                check_serves(settings, state)
                server.process = wait_until_running(settings).process
            else:
                server.launch()
        again.start()
        yield again
    finally:
        server.ended.set()
        if again.is_alive():
            again.join()
        if server.supervised is not None:  # else it was found
            with hold_lock(lock):
                clear(settings)
            server.supervised.end()


class _SupervisedServer:
    """The server of a lake while this process wants it; `supervised` is the one that was launched here."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self._settings, self._tell = settings, tell
        self.process: Process | None = None
        self.supervised: Supervised | None = None
        self.ended = threading.Event()

    def bring_back(self) -> None:
        """Starts the server again, with the same token, each time that it died, until `ended` is set."""
        token, pause, since = read_token(self._settings), _FIRST_PAUSE_SECONDS, time.monotonic()
        assert token is not None
        while not self.ended.wait(0.5):
            if self.process and self.process.is_alive:
                bound_log(folder(self._settings) / "server.log")
                continue
            if time.monotonic() - since > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            log = folder(self._settings) / "server.log"
            self._tell(
                f"Spark Connect server died; starting it again in {pause:.0f} s (log: {log})"
            )
            if self.ended.wait(pause):
                return
            pause, since = min(2 * pause, _LONGEST_PAUSE_SECONDS), time.monotonic()
            try:
                with hold_lock(folder(self._settings) / "lock"):
                    self.launch(token)
            except LakehouseError as error:
                self._tell(str(error))
            else:
                self._tell(
                    f"Spark Connect server up again at localhost:{self._settings.spark_port}"
                )

    def launch(self, token: str | None = None) -> None:
        """A new server, in the place of one that was launched here before."""
        if self.supervised is not None:
            self.supervised.end()
        self.supervised = launch(self._settings, token=token, is_supervised=True)
        self.process = wait_until_running(self._settings, abandoned=self.ended.is_set).process


def wait_until_running(
    settings: Settings, *, abandoned: Callable[[], bool] = lambda: False
) -> ServerState:
    """The state of the server just launched, once its port answers.

    Raises:
        Broken: it ended, did not answer in time, or its start was abandoned; it is cleared away, the end of its log is in the text.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not (state := status(settings)).is_running:
        late = time.monotonic() > deadline
        if late or state.condition in ("died", "stopped") or abandoned():
            clear(settings)
            what = (
                f"did not answer at port {settings.spark_port} within {_START_SECONDS} s"
                if late
                else "ended while it started"
            )
            raise Broken(
                f"the Spark Connect server {what}; the end of {state.log}:\n{tail(state.log)}"
            )
        time.sleep(
            0.1
        )  # between two looks at another process; nothing is assumed of the time that passes
    return state


def clear(settings: Settings) -> None:
    """Ends the server's process, if it lives, and removes what belongs to it; the log stays."""
    state = status(settings)
    if state.process is not None:
        state.process.end(seconds=_END_SECONDS)
    for name in ("pid", "token"):
        (folder(settings) / name).unlink(missing_ok=True)
    shutil.rmtree(scratch_folder(settings), ignore_errors=True)


def read_token(settings: Settings) -> str | None:
    """The token of the running server, if one was started."""
    with contextlib.suppress(FileNotFoundError):
        return (folder(settings) / "token").read_text()
    return None


def launch(
    settings: Settings, *, is_supervised: bool, token: str | None = None
) -> Supervised | None:
    """A JVM on its way to serve, its token in a file for the owner of the lake; the caller waits with `wait_until_running`.

    If it is supervised, it ends with this process, and is given back; else it stays. Without a token it gets a fresh one, and the log
    of the server before is set aside.
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
    write_conf(here / "conf", server_conf(settings, jars.fetch()))
    spark_home = jars.spark_home()
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
        },
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(here / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        TOKEN_VARIABLE: token,
    }
    # spark-submit and spark-class end in `exec`: the pid stays that of the JVM.
    command = [spark_home / "bin" / "spark-submit", "--class", _MAIN, "spark-internal"]
    with log_path.open("ab") as log:
        if is_supervised:
            launched = supervise(command, cwd=here, env=environment, output=log)
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
            f"the Spark Connect server ended at once; the end of its log:\n{tail(log_path)}"
        )
    remember(settings, process, supervisor=identify(os.getpid()) if is_supervised else None)
    return launched if isinstance(launched, Supervised) else None


def check_port_is_free(settings: Settings) -> None:
    """Refuses a Spark port that somebody else listens on."""
    if not port_is_free(settings.spark_port):
        raise Refused(
            f"port {settings.spark_port}, the Spark Connect server's, is taken; set LAKEHOUSE_SPARK_PORT to a free one"
        )


def tail(log: Path) -> str:
    """The last lines of a log."""
    with contextlib.suppress(FileNotFoundError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return "(no log)"
