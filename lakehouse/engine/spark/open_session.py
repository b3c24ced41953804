"""Opens a Spark session from settings: on a Connect server, or with a driver in this process."""

import contextlib
import importlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse.core.errors import Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.spark.errors import is_lost, translated
from lakehouse.engine.spark.prepare_session import connection_url, over_connect, prepare_session
from lakehouse.engine.spark.temporary_confs import discarded
from lakehouse.runtime import jars, server
from lakehouse.runtime.extras import require
from lakehouse.runtime.java import find_java
from lakehouse.runtime.processes import Process, late_interrupts, port_answers
from lakehouse.runtime.server_state import check_serves
from lakehouse.runtime.spark_conf import (
    CONNECT_PORT,
    TOKEN_VARIABLE,
    scratch_folder,
    session_conf,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER_PORT = 7077
# The open session of each server, with the server's process. PySpark itself keeps one session and
# returns it for any requested server, even if the session's own server is gone.
_sessions: dict[tuple[str, int], tuple[Process | None, "SparkSession"]] = {}
_OPENING = threading.Lock()
_starters: list[Callable[[], object]] = []


@contextlib.contextmanager
def started_by(start: Callable[[], object]) -> Iterator[None]:
    """Calls `start` before the block prepares its first session, if it prepares any."""
    _starters.append(start)
    try:
        yield
    finally:
        _starters.clear()


def prepare(settings: Settings) -> None:
    """Makes this process ready to open a session.

    With this project's server: checks that it runs, and puts its token into the environment. With a
    server at `sc://…`: checks that it answers. With a driver in this process: checks that the Spark
    master (`spark://…`, if any) answers, and finds Java and the jars.

    Raises:
        Transient: the server does not answer; the message says how to start it.
        Refused: no session is possible with this setting or on this machine.
    """
    require("pyspark", extra="spark", purpose="Spark")
    while _starters:
        _starters.pop()()
    # Without this, each session would stay on the server for an hour.
    os.environ["SPARK_CONNECT_RELEASE_SESSION_ON_EXIT"] = "true"
    if over_connect(settings):
        # PySpark's functions build Connect columns only while this variable is set. PySpark sets it
        # when it opens a session. A reused session may have been opened before the variable was
        # removed (below).
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    if settings.spark == "server":
        state = server.status(settings)
        token = server.read_token(settings)
        if not state.is_running or state.port != settings.spark_port or token is None:
            raise Transient(
                "Spark Connect server of this lake is not running at "
                f"localhost:{settings.spark_port}; start it with: lakehouse server start (or make "
                "run, or dagster dev)"
            )
        check_serves(settings, state)
        os.environ[TOKEN_VARIABLE] = token
    elif settings.spark.startswith("sc://"):
        url = urlsplit(settings.spark)
        host = url.hostname or ""
        port = url.port or CONNECT_PORT
        if not port_answers(port, host, seconds=5):
            raise Transient(
                f"no Spark Connect server answers at {host}:{port}. Start it, or correct "
                "LAKEHOUSE_SPARK"
            )
    else:
        _check_master(settings.spark)
        os.environ["JAVA_HOME"] = str(find_java())
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        jars.fetch()
        scratch_folder(settings).mkdir(parents=True, exist_ok=True)


def _check_master(master: str) -> None:
    """Checks that a master in `spark://host:port,…` answers. Spark would wait a minute for it."""
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        url = urlsplit(f"spark://{address}")
        if port_answers(url.port or _MASTER_PORT, url.hostname or "", seconds=5):
            return
    raise Transient(f"no Spark master answers at {master}. Start it, or correct LAKEHOUSE_SPARK")


def session_config(settings: Settings) -> dict[str, str]:
    """The options of a session builder, without secrets.

    For a Connect server, each call returns the id of a new session.
    """
    if over_connect(settings):
        return {"spark.remote": connection_url(settings, str(uuid.uuid4()))}
    return session_conf(settings, jars.fetch())


def connect(settings: Settings) -> "SparkSession":
    """A session that answers: this process's session for these settings, or a new one.

    Raises:
        Transient, Refused: as `prepare`.
    """
    prepare(settings)
    if not over_connect(settings):
        return prepare_session(_builder(settings).getOrCreate())
    address = (settings.spark, settings.spark_port)
    process = server.status(settings).process if settings.spark == "server" else None
    with _OPENING, translated():
        earlier_process, earlier = _sessions.get(address, (None, None))
        if earlier is not None:
            try:
                is_usable = earlier_process == process and earlier not in discarded
                if is_usable and not earlier.is_stopped:  # type: ignore[attr-defined]  # Connect
                    return prepare_session(earlier)  # sends a request, so a lost session raises
            except Exception as error:
                if not is_lost(error):
                    raise
            # The server may be gone, so `stop` must not retry its requests.
            earlier.client.set_retry_policies([])  # type: ignore[attr-defined]
            earlier.stop()
        session = prepare_session(_builder(settings).create())
        _sessions[address] = process, session
        return session


def _builder(settings: Settings) -> "SparkSession.Builder":
    # Importing PySpark may take seconds, and an interrupted import would leave PySpark unusable.
    with late_interrupts():
        importlib.import_module("pyspark.sql")
        if over_connect(settings):
            importlib.import_module("pyspark.sql.connect.session")
            importlib.import_module("delta.connect")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in session_config(settings).items():
        builder = builder.config(name, value)
    return builder
