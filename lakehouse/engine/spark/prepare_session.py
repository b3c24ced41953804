"""Prepares open Spark sessions for use.

Settings that hold for every session are in `runtime/spark_conf.py`.
"""

import atexit
import os
import re
import warnings
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse.core.settings import Settings
from lakehouse.engine.spark.temporary_confs import change_confs
from lakehouse.runtime.spark_conf import STORED_TIMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient

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

        # PySpark's functions build columns of Connect only with this mark. PySpark sets it for new
        # sessions, and this process may use one that was opened before the mark went.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
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
    """The id of the session on its Connect server; otherwise, the id of the Spark application."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    if isinstance(spark, ConnectSession):
        return spark.session_id
    return str(spark.sparkContext.applicationId)


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
