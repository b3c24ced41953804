"""Opens Spark sessions on a Connect server, or with a driver in this process, and prepares them.

Settings that hold for every session are in `spark/server/conf.py`.
"""

import atexit
import importlib
import os
import re
import threading
import uuid
import warnings
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse.base.errors import Transient
from lakehouse.base.installation import require
from lakehouse.base.processes import Process, late_interrupts, port_answers
from lakehouse.base.settings import Settings
from lakehouse.spark.errors import is_lost, translated
from lakehouse.spark.server import jars, server
from lakehouse.spark.server.conf import (
    CONNECT_PORT,
    SESSION_CONF,
    TOKEN_VARIABLE,
    scratch_folder,
    spark_conf,
)
from lakehouse.spark.server.jars import find_java
from lakehouse.spark.server.server import check_serves
from lakehouse.spark.temporary_confs import change_confs, discarded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SPLITS = re.compile(r"\bsplits=(\d+)")


def over_connect(settings: Settings) -> bool:
    """Whether sessions use Spark Connect: on this project's server, or on a server at `sc://…`."""
    return settings.spark == "server" or settings.spark.startswith("sc://")


def connection_url(settings: Settings, session: str) -> str:
    """The URL of a session on a Spark Connect server."""
    base = settings.spark.rstrip(";")
    if settings.spark == "server":
        # Without TLS, PySpark sends a token only if the host is literally `localhost`.
        base = f"sc://localhost:{settings.spark_port}/"
    separator = "" if urlsplit(base).path else "/"
    user = "" if ";user_id=" in base else ";user_id=lakehouse"
    return f"{base}{separator}{user};session_id={session}"


def prepare_session(spark: "SparkSession") -> "SparkSession":
    """Prepares a session for its first statement, and returns it. Loads Delta's exceptions.

    Over Connect, this also limits retries and sends options. From the server's answer, the client
    knows the server's session id. Without it, PySpark would send the first statement again if the
    server were restarted during that statement.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if isinstance(spark, ConnectSession):
        import delta.connect
        from pyspark.sql.connect.client.retries import DefaultPolicy

        # PySpark's functions build columns of Connect only with this mark. PySpark sets it for new
        # sessions, and this process may use one that was opened before the mark went.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        # Retries take ten seconds instead of PySpark's ten minutes. The warning about their end
        # only repeats the error that follows.
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
        policy = DefaultPolicy(
            max_retries=5,
            initial_backoff=100,
            backoff_multiplier=3.0,
            max_backoff=4000,
            jitter=100,
        )
        spark.client.set_retry_policies([policy])
        # At exit the client sends cleanup requests, and the server may be gone.
        atexit.register(spark.client.set_retry_policies, [])
        change_confs(spark, SESSION_CONF)
    else:
        import delta.exceptions  # noqa: F401
    return spark


def task_slots(spark: "SparkSession") -> int:
    """The number of tasks that Spark runs at once: the cores of all registered executors.

    No Connect method returns this number. It is read from the plan of a range, which has one
    partition for each core. EXPLAIN starts no job.
    Source: Spark 4.2.0, basicPhysicalOperators.scala, RangeExec
    """
    [[plan]] = spark.sql("EXPLAIN SELECT * FROM range(1)").collect()
    splits = _SPLITS.search(plan)
    return int(splits[1]) if splits else 1


_MASTER_PORT = 7077
# The open session of each server, with the server's process. PySpark itself keeps one session and
# returns it for any requested server, even if the session's own server is gone.
_sessions: dict[tuple[str, int], tuple[Process | None, "SparkSession"]] = {}
_OPENING = threading.Lock()


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
    # Without this, each session would stay on the server for an hour.
    os.environ["SPARK_CONNECT_RELEASE_SESSION_ON_EXIT"] = "true"
    if settings.spark == "server":
        state = server.status(settings)
        token = server.read_token(settings)
        if not state.is_running or token is None:
            raise Transient(
                "Spark Connect server of this lake is not running at "
                f"localhost:{settings.spark_port}; start it with: lakehouse server start (or make "
                "run, or dagster dev)"
            )
        check_serves(settings, state)
        os.environ[TOKEN_VARIABLE] = token
    elif settings.spark.startswith("sc://"):
        _check_answers("Spark Connect server", settings.spark.partition(";")[0], CONNECT_PORT)
    else:
        if settings.spark.startswith("spark://"):
            _check_answers("Spark master", settings.spark, _MASTER_PORT)
        os.environ["JAVA_HOME"] = str(find_java())
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        jars.fetch()
        scratch_folder(settings).mkdir(parents=True, exist_ok=True)


def _check_answers(program: str, address: str, default_port: int) -> None:
    """Checks that a program answers at `scheme://host:port,…`. Spark would wait for a minute."""
    for place in address.partition("://")[2].split(","):
        url = urlsplit(f"//{place}")
        if port_answers(url.port or default_port, url.hostname or "", seconds=5):
            return
    raise Transient(f"no {program} answers at {address}. Start it, or correct LAKEHOUSE_SPARK")


def session_config(settings: Settings) -> dict[str, str]:
    """The options of a session builder, without secrets.

    For a Connect server, each call returns the id of a new session.
    """
    if over_connect(settings):
        return {"spark.remote": connection_url(settings, str(uuid.uuid4()))}
    return spark_conf(settings, jars.fetch())


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
