"""A Spark session from settings, and Spark's failures in our words."""

import atexit
import contextlib
import importlib
import os
import re
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse.core.errors import Refused, Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.spark.causes import Cause, broken_by, causes_in, innermost_cause
from lakehouse.runtime import jars, server
from lakehouse.runtime.interrupts import late_interrupts
from lakehouse.runtime.java import find_java
from lakehouse.runtime.processes import Process, port_answers
from lakehouse.runtime.server_state import check_serves
from lakehouse.runtime.spark_settings import (
    CONNECT_PORT,
    STORED_TIMES,
    scratch_folder,
    session_conf,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient

_SETTLE_SECONDS = 120
# Source: Spark 4.2.0, error-conditions.json
_GONE = ("INVALID_HANDLE.", "NO_ACTIVE_SESSION", "RESPONSE_ALREADY_RECEIVED")
# With the server's process. PySpark itself keeps one session and hands it out whatever server is asked for, also when that one is gone.
_opened: dict[tuple[str, int], tuple[Process | None, "SparkSession"]] = {}
_OPENING = threading.Lock()
# Sessions that `connect` hands out no more. It closes them when it is asked again: whoever works with one now may not be done.
discarded = weakref.WeakSet["SparkSession"]()
# A file of the table, a path that was asked for, a version.
# Source: Spark 4.2.0, error-conditions.json; Delta Lake 4.4.0, delta-error-classes.json
_MISSING = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "PATH_NOT_FOUND",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION_NOT_FOUND",
)


def prepare(settings: Settings) -> None:
    """Makes this process ready to open a session: probes the server, puts its token into the environment; or finds Java and jars.

    Raises:
        Transient: nothing answers; the text says how to start it.
        Refused: the setting, or this machine, cannot give a session.
    """
    os.environ["SPARK_CONNECT_RELEASE_SESSION_ON_EXIT"] = (
        "true"  # else each session stays on the server for an hour
    )
    if settings.spark == "server":
        state, token = server.status(settings), server.read_token(settings)
        if not state.is_running or state.port != settings.spark_port or token is None:
            raise Transient(
                f"Spark Connect server of this lake is not running at localhost:{settings.spark_port}; "
                "start it with: lakehouse server start (or make run, or dagster dev)"
            )
        check_serves(settings, state)
        os.environ[server.TOKEN_VARIABLE] = token
    elif settings.spark.startswith("sc://"):
        url = urlsplit(settings.spark)
        host, port = url.hostname or "", url.port or CONNECT_PORT
        if not port_answers(port, host, seconds=5):
            raise Transient(f"no Spark Connect server answers at {host}:{port} (LAKEHOUSE_SPARK)")
    else:
        os.environ["JAVA_HOME"] = str(find_java())
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        jars.fetch()
        scratch_folder(settings).mkdir(parents=True, exist_ok=True)


def over_connect(settings: Settings) -> bool:
    """Whether Spark is spoken to by Spark Connect: a server of this project's, or a URL `sc://…`."""
    return settings.spark == "server" or settings.spark.startswith("sc://")


def session_config(settings: Settings) -> dict[str, str]:
    """The options of a session builder. No secret is among them; for a Connect server they name a session of its own, new at each call."""
    if over_connect(settings):
        return {"spark.remote": _remote(settings, str(uuid.uuid4()))}
    return session_conf(settings, jars.fetch())


def connect(settings: Settings) -> "SparkSession":
    """A session of this process that answers, for these settings: opened, or opened anew if its server is gone. It raises as `prepare`."""
    prepare(settings)
    if not over_connect(settings):
        return adopt(_builder(settings).getOrCreate())
    place, process = (
        (settings.spark, settings.spark_port),
        server.status(settings).process if settings.spark == "server" else None,
    )
    with _OPENING, translated():
        opened_on, kept = _opened.get(place, (None, None))
        if kept is not None:
            try:
                if opened_on == process and kept not in discarded and not kept.is_stopped:  # type: ignore[attr-defined]  # of Connect
                    return adopt(kept)
            except Exception as error:
                if not is_lost(error):
                    raise
            kept.client.set_retry_policies([])  # type: ignore[attr-defined]  # its server may be gone: not knocked at for long
            kept.stop()
        _opened[place] = process, adopt(_builder(settings).create())
        return _opened[place][1]


def adopt(spark: "SparkSession") -> "SparkSession":
    """The same session, made to fail soon and in Delta's own words; every session should pass here before its first statement.

    The call it makes also fixes the server's identity in the client: without it, PySpark would send the first statement a second
    time to a server that was restarted in between.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if isinstance(spark, ConnectSession):
        import delta.connect

        _fail_soon(spark.client)
        # A server elsewhere may have another zone, in which it would read times without a zone.
        for name, value in {"spark.sql.session.timeZone": "UTC", **STORED_TIMES}.items():
            spark.conf.set(name, value)
    else:
        import delta.exceptions  # noqa: F401
    return spark


def session_id(spark: "SparkSession") -> str:
    """The identity under which a session's statements can be interrupted from elsewhere."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    return (
        spark.session_id
        if isinstance(spark, ConnectSession)
        else str(spark.sparkContext.applicationId)
    )


def interrupt_session(
    settings: Settings,
    session_id: str,
    known: Sequence[str] = (),
    *,
    note: Callable[[Sequence[str]], None] = lambda _: None,
) -> tuple[str, ...]:
    """Interrupts whatever runs in that session and waits for its end, and for that of the operations `known`; the ids of all of them.

    A session that the server does not know, or of a driver that died with its process, has none. `note` gets the ids before the wait: no
    later interrupt names an operation that was interrupted and has not ended. Source: Spark 4.2.0, ExecuteThreadRunner.scala, interrupt

    Raises:
        Transient: the server does not answer, or an operation does not end.
    """
    if not over_connect(settings):
        return ()
    from pyspark.sql.connect.client import SparkConnectClient

    prepare(settings)
    client = SparkConnectClient(connection=_remote(settings, session_id))
    _fail_soon(client)
    try:
        with translated():
            operations = (*known, *(client.interrupt_all() or ()))
            if operations:
                note(operations)
            _wait_until_ended(client, operations)
            return operations
    except Transient as error:
        if error.__cause__ is not None and _is_gone(error.__cause__):
            return ()
        raise
    finally:
        client.close()


@contextlib.contextmanager
def translated(table_key: str | None = None, *, operation: str = "") -> Iterator[None]:
    """Raises `Transient` for a server that died, a session that it ended, and a lost race for a commit.

    Where the `operation` on a table is named, every other error of Spark becomes `Broken`, with its innermost cause; else it passes as it is.
    """
    try:
        yield
    except Exception as error:
        if is_conflict(error):
            raise Transient(
                f"another writer changed the table first: {first_line(error)}"
            ) from error
        if _is_unreachable(error):
            raise Transient(
                f"the Spark server stopped answering in the middle of a statement: {first_line(error)}"
            ) from error
        if _is_gone(error):
            raise Transient(
                f"the Spark server ended this session, or was started again: {first_line(error)}"
            ) from error
        if any(
            cause.condition == "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" for cause in causes_of(error)
        ):
            raise Transient(
                f"rows that were kept for the statement are lost with their executor: {first_line(error)}"
            ) from error
        if _grpc_code(error) == "UNAUTHENTICATED":
            raise Refused(
                f"the Spark Connect server refused the token in {server.TOKEN_VARIABLE}"
            ) from error
        if table_key is not None and _is_of_spark(error):
            asked = f"{operation} of {table_key}"
            raise broken_by(causes_of(error), asked=asked, table_key=table_key) from error
        raise


@contextlib.contextmanager
def causes_named(asked: str) -> Iterator[None]:
    """Raises `Broken` with the innermost cause for an error of Spark that says nothing by itself; every other one passes as it is."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("pyspark."):  # without importing PySpark
            causes = causes_of(error)
            if causes[0].is_empty:
                raise broken_by(causes, asked=asked) from error
        raise


def _builder(settings: Settings) -> "SparkSession.Builder":
    """The opener of a session. PySpark, and its libraries for Connect, are imported in seconds on a busy machine: an interrupt waits."""
    with late_interrupts():
        for name in (
            "pyspark.sql",
            *(("pyspark.sql.connect.session", "delta.connect") if over_connect(settings) else ()),
        ):
            importlib.import_module(name)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in session_config(settings).items():
        builder = builder.config(name, value)
    return builder


def _remote(settings: Settings, session: str) -> str:
    # The literal name localhost: only with it PySpark sends a token over a local channel without TLS.
    base = (
        f"sc://localhost:{settings.spark_port}/"
        if settings.spark == "server"
        else settings.spark.rstrip(";")
    )
    separator = "" if urlsplit(base).path else "/"
    named = "" if ";user_id=" in base else ";user_id=lakehouse"
    return f"{base}{separator}{named};session_id={session}"


def _fail_soon(client: "SparkConnectClient") -> None:
    """About ten seconds of retries in place of PySpark's ten minutes, and none when the process ends."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings(
        "ignore", message=r"\[RETRIES_EXCEEDED\]"
    )  # the error that follows says it
    client.set_retry_policies(
        [
            DefaultPolicy(
                max_retries=5,
                initial_backoff=100,
                backoff_multiplier=3.0,
                max_backoff=4000,
                jitter=100,
            )
        ]
    )
    atexit.register(
        client.set_retry_policies, []
    )  # runs before the client's own farewells to a server that may be gone


def _wait_until_ended(client: "SparkConnectClient", operations: Sequence[str]) -> None:
    """An interrupt is a request: the operation may still be in its commit."""
    from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

    status = GetStatusResponse.OperationStatus
    busy = (status.OPERATION_STATE_RUNNING, status.OPERATION_STATE_TERMINATING)
    deadline = time.monotonic() + _SETTLE_SECONDS
    while operations:
        answer = client._get_operation_statuses(list(operations))  # no public call asks for it
        operations = [each.operation_id for each in answer.operation_statuses if each.state in busy]
        if operations and time.monotonic() > deadline:
            raise Transient(
                f"operation {operations[0]} of an interrupted session has not ended after {_SETTLE_SECONDS} s; stop the Spark server "
                "(lakehouse server stop, or Ctrl-C where lakehouse up runs), start it, and try again"
            )
        time.sleep(
            0.1 if operations else 0
        )  # between two questions to the server; nothing is assumed of the time that passes


def _condition(error: BaseException) -> str:
    from pyspark.errors import PySparkException

    return (error.getCondition() or "") if isinstance(error, PySparkException) else ""


def _is_of_spark(error: BaseException) -> bool:
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException)


def is_conflict(error: BaseException) -> bool:
    """Whether another writer won the race for a commit."""
    from pyspark.errors import PySparkException

    is_commit_conflict = (
        isinstance(error, PySparkException) and error.getSqlState() == "2D521"
    )  # Delta's state for all of them
    return is_commit_conflict or _condition(error).startswith("DELTA_CONCURRENT_")


def is_missing(error: BaseException) -> bool:
    """Whether a file is not there, or the log no longer reaches a version: asking again cannot help."""
    return any(cause.condition.startswith(_MISSING) for cause in causes_of(error))


def is_lost(error: BaseException) -> bool:
    """Whether the server, or our session on it, is gone, so that each further call would only wait for nothing."""
    return any(
        each is not None and (_is_unreachable(each) or _is_gone(each))
        for each in (error, error.__cause__)
    )


def _is_unreachable(error: BaseException) -> bool:
    return _grpc_code(error) == "UNAVAILABLE" or type(error).__name__ == "Py4JNetworkError"


def _is_gone(error: BaseException) -> bool:
    return _condition(error).startswith(_GONE) or "incorrect server side session identifier" in str(
        error
    )


def _grpc_code(error: BaseException) -> str | None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return error.getGrpcStatusCode().name if isinstance(error, SparkConnectGrpcException) else None


def first_line(error: BaseException) -> str:
    """The first line of an error; of an error that only says that it waited for another one, that other one."""
    told = re.search(
        r'details = "(.+?)"\n', str(error)
    )  # gRPC's own text begins with the name of a Python class
    line = told[1] if told else (str(error).splitlines() or [type(error).__name__])[0]
    causes = causes_of(error)
    return innermost_cause(causes).line if causes[0].is_empty else line[:300]


def causes_of(error: BaseException) -> tuple[Cause, ...]:
    """An error and its causes on the server, outermost first."""
    # Over Connect, and of a driver in this process.
    trace = getattr(error, "_stacktrace", None) or getattr(error, "_stackTrace", None) or ""
    return causes_in(str(error), _condition(error), trace)
