"""The life of the lake's Spark Connect server: one JVM on loopback, known by a file with its pid and birth.

1. Whoever starts or stops holds a lock, so two starts give one server.
2. A start makes a fresh token, readable by its owner only; server and clients get it by environment, never on a command line.
3. It returns when the port answers; a JVM that does not get there is ended, and the end of its log is in the error.
4. `supervised` puts a keeper (`keeper.py`) between itself and the JVM, which ends the JVM when the supervisor is gone, however it went.

**Safety properties**
- A pid that came back as another process is never taken for the server, nor signalled.
- A server that a keeper holds is not stopped by anybody else: it would be brought back at once.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
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
from lakehouse.runtime.private_files import write_private
from lakehouse.runtime.processes import Process, die_with_parent, hold_lock, identify, port_is_free
from lakehouse.runtime.server_state import ServerState, check_serves, folder, remember, status
from lakehouse.runtime.spark_settings import scratch_folder, server_conf, write_conf

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_START_SECONDS = 120  # it takes 5 s on 2 free cores; CI machines under load were seen to need ten times that
_END_SECONDS = 15
_ERRORS: dict[str, type[LakehouseError]] = {kind.__name__: kind for kind in (Refused, Transient, Broken)}
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


def start(settings: Settings) -> ServerState:
    """The server of this lake, started unless it runs; it stays until `stop`.

    Raises:
        Refused: the port is taken by somebody else, the server runs elsewhere or for another storage than the settings say, or there
            is no Java.
        Broken: the JVM ended, or did not answer in time.
    """
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.condition in ("running", "starting"):
            check_serves(settings, state)
            return wait_until_running(settings)
        launch(settings, token=make_token(settings), keeper=None)
        return wait_until_running(settings)


def stop(settings: Settings) -> bool:
    """Ends the server in order; whether there was one.

    Raises:
        Refused: a running `lakehouse up` holds it.
    """
    with hold_lock(folder(settings) / "lock"):
        state = status(settings)
        if state.keeper is not None:
            raise Refused(
                f"the Spark Connect server belongs to a running `lakehouse up` (make run); stop that one with Ctrl-C (log: {state.log})"
            )
        clear(settings)
        return state.pid is not None


@contextlib.contextmanager
def supervised(settings: Settings, tell: Callable[[str], None] = lambda _line: None) -> Iterator["Supervision"]:
    """A running server for as long as the block lasts: brought back with the same token when it dies, ended at the end.

    A server that `start` brought up before is used, and left as it was found. `tell` gets a sentence for each thing that
    happens, from another thread. A supervisor that is killed leaves no server: the keeper sees its pipe close.

    Raises:
        Refused, Broken: as for `start`.
        Transient: another supervisor holds the server; it may end, or the server be used.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-m", "lakehouse.runtime.keeper"],
        env={**os.environ, **settings.as_environ()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _read_first_report(keeper)
        reader = threading.Thread(target=_pass_on, args=(keeper, tell), name="server-reports", daemon=True)
        reader.start()
        yield Supervision(keeper)
    finally:
        _dismiss(keeper)


class Supervision:
    """The keeper of a supervised server, seen from its supervisor."""

    def __init__(self, keeper: subprocess.Popen[str]) -> None:
        self._keeper = keeper

    @property
    def is_kept(self) -> bool:
        """Whether the keeper lives; without it nobody brings the server back."""
        return self._keeper.poll() is None


def wait_until_running(settings: Settings, *, abandoned: Callable[[], bool] = lambda: False) -> ServerState:
    """The state of the server just launched, once its port answers.

    Raises:
        Broken: it ended, did not answer in time, or its start was abandoned; it is cleared away, the end of its log is in the text.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not (state := status(settings)).is_running:
        late = time.monotonic() > deadline
        if late or state.condition in ("died", "stopped") or abandoned():
            clear(settings)
            what = f"did not answer at port {settings.spark_port} within {_START_SECONDS} s" if late else "ended while it started"
            raise Broken(f"the Spark Connect server {what}; the end of {state.log}:\n{_tail(state.log)}")
        time.sleep(0.1)  # between two looks at another process; nothing is assumed of the time that passes
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


def make_token(settings: Settings) -> str:
    """A fresh token for `launch`; the log of the server before is set aside."""
    log = folder(settings) / "server.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    return secrets.token_urlsafe(32)


def launch(settings: Settings, *, token: str, keeper: Process | None) -> None:
    """A JVM on its way to serve, its token in a file for the owner of the lake; the caller waits with `wait_until_running`.

    With a `keeper`, which must be the calling process, the kernel kills the JVM when the keeper dies (on Linux).

    Raises:
        Refused: the port is taken, or there is no Java.
    """
    check_port_is_free(settings)
    here = folder(settings)
    shutil.rmtree(scratch_folder(settings), ignore_errors=True)
    scratch_folder(settings).mkdir(parents=True)
    write_conf(here / "conf", server_conf(settings, jars.fetch()))
    spark_home = jars.spark_home()
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")},
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(here / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        TOKEN_VARIABLE: token,
    }
    with (here / "server.log").open("ab") as log:
        # spark-submit and spark-class end in `exec`: the pid stays that of the JVM.
        jvm = subprocess.Popen(
            [spark_home / "bin" / "spark-submit", "--class", _MAIN, "spark-internal"],
            cwd=here,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=keeper is None,
            preexec_fn=None if keeper is None else die_with_parent,
        )
    write_private(here / "token", token)
    process = identify(jvm.pid)
    if process is None:
        raise Broken(f"the Spark Connect server ended at once; the end of its log:\n{_tail(here / 'server.log')}")
    remember(settings, process, keeper)


def check_port_is_free(settings: Settings) -> None:
    """Refuses a Spark port that somebody else listens on."""
    if not port_is_free(settings.spark_port):
        raise Refused(f"port {settings.spark_port}, the Spark Connect server's, is taken; set LAKEHOUSE_SPARK_PORT to a free one")


def _tail(log: Path, lines: int = 15) -> str:
    with contextlib.suppress(FileNotFoundError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return "(no log)"


def _read_first_report(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    report = json.loads(line) if line else {"kind": "Broken", "text": "the keeper of the Spark Connect server ended without a word"}
    if (error := _ERRORS.get(report["kind"])) is not None:
        raise error(report["text"])


def _pass_on(keeper: subprocess.Popen[str], tell: Callable[[str], None]) -> None:
    assert keeper.stdout is not None
    for line in keeper.stdout:
        tell(json.loads(line)["text"])


def _dismiss(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()
    try:
        keeper.wait(timeout=2 * _END_SECONDS + 5)
    except subprocess.TimeoutExpired:
        os.killpg(keeper.pid, signal.SIGKILL)  # its group: the JVM is in it
        keeper.wait()
