"""Prepares open Spark sessions for use, and interrupts abandoned ones.

Settings that hold for every session are in `runtime/spark_conf.py`.
"""

import atexit
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse.core.errors import Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.spark.errors import is_of_unknown_session, translated
from lakehouse.engine.spark.temporary_confs import change_confs
from lakehouse.runtime.spark_conf import STORED_TIMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient

# The longest wait for the end of interrupted operations.
_SETTLE_SECONDS = 120
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

        _limit_retries(spark.client)
        # Otherwise, a remote server would interpret times without a zone in its own time zone.
        change_confs(spark, {"spark.sql.session.timeZone": "UTC", **STORED_TIMES})
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


def session_id(spark: "SparkSession") -> str:
    """Over Connect, the id by which another process can interrupt the session's statements.

    Otherwise, the id of the Spark application, which ends with this process.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if isinstance(spark, ConnectSession):
        return spark.session_id
    return str(spark.sparkContext.applicationId)


def interrupt_session(
    settings: Settings,
    session_id: str,
    known: Sequence[str] = (),
    *,
    note: Callable[[Sequence[str]], None] = lambda _: None,
) -> tuple[str, ...]:
    """Interrupts the operations of a session and waits for their end; returns their ids.

    Also waits for the `known` operations, which an earlier interrupt returned, because Spark
    returns each operation only once, even if it is still running. If there are any, `note` is
    called with all ids before the wait. A session that the server does not know has no operations.
    Without Connect, there are none either: the driver died with the process that had opened it.
    Source: Spark 4.2.0, ExecuteThreadRunner.scala, interrupt

    Raises:
        Transient: the server does not answer, or an operation does not end.
    """
    if not over_connect(settings):
        return ()
    # Imported here, because only recovery from a dead process needs the code that starts servers.
    from lakehouse.engine.spark.open_session import prepare

    prepare(settings)
    from pyspark.sql.connect.client import SparkConnectClient

    client = SparkConnectClient(connection=connection_url(settings, session_id))
    _limit_retries(client)
    try:
        with translated():
            operations = (*known, *(client.interrupt_all() or ()))
            if operations:
                note(operations)
            _wait_until_ended(client, operations)
            return operations
    except Transient as error:
        if is_of_unknown_session(error):
            return ()
        raise
    finally:
        client.close()


def _limit_retries(client: "SparkConnectClient") -> None:
    """Limits retries to ten seconds instead of PySpark's ten minutes, and disables them at exit."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # The warning only repeats the error that follows.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    policy = DefaultPolicy(
        max_retries=5,
        initial_backoff=100,
        backoff_multiplier=3.0,
        max_backoff=4000,
        jitter=100,
    )
    client.set_retry_policies([policy])
    # At exit the client sends cleanup requests, and the server may be gone.
    atexit.register(client.set_retry_policies, [])


def _wait_until_ended(client: "SparkConnectClient", operations: Sequence[str]) -> None:
    """Waits until interrupted operations have ended: an operation may still be committing.

    Raises:
        Transient: an operation does not end within `_SETTLE_SECONDS`.
    """
    from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

    status = GetStatusResponse.OperationStatus
    busy = (status.OPERATION_STATE_RUNNING, status.OPERATION_STATE_TERMINATING)
    deadline = time.monotonic() + _SETTLE_SECONDS
    while operations:
        answer = client._get_operation_statuses(list(operations))  # there is no public method
        operations = [each.operation_id for each in answer.operation_statuses if each.state in busy]
        if operations and time.monotonic() > deadline:
            raise Transient(
                f"operation {operations[0]} of an interrupted session has not ended after "
                f"{_SETTLE_SECONDS} s; stop the Spark server (lakehouse server stop, or Ctrl-C "
                "where lakehouse up runs), start it, and try again"
            )
        if operations:
            time.sleep(0.1)
