"""Checks of Spark: a session, versions, Delta, executors, its view of the storage, and commits."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.settings import Settings
from lakehouse.base.text import count_of
from lakehouse.doctor.machine_checks import Examination, client_versions
from lakehouse.doctor.plan import Verdict, extension_verdict, log_store_verdict, versions_verdict
from lakehouse.doctor.storage_checks import WRITTEN
from lakehouse.lake.lake import Lake
from lakehouse.spark.errors import causes_of, first_line, innermost_cause, translated
from lakehouse.spark.server.log_store import is_conditional, log_store_setting
from lakehouse.spark.session import connect
from lakehouse.spark.statements import optimize, path_table
from lakehouse.spark.temporary_confs import session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSIONS = {
    "Spark": "split_part(version(), ' ', 1)",
    "Delta": "java_method('io.delta.package', 'VERSION')",
    "Scala": "java_method('scala.util.Properties', 'versionNumberString')",
    "Java": "java_method('java.lang.System', 'getProperty', 'java.version')",
}
# Counts the tasks of a job, and asks the executors for a version.
_TASKS = (
    "SELECT count(DISTINCT task), min(version) FROM "
    "(SELECT spark_partition_id() AS task, {version} AS version FROM range(0, 1000))"
)
# Makes Spark open a separate file system, which reports a wrong endpoint after seconds. The cached
# file system would retry for three minutes.
_WITHOUT_RETRIES = {
    "fs.s3a.impl.disable.cache": "true",
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "1",
}
# Limits the tasks of a listing. Spark's default is 10,000 tasks, which take 176 CPU seconds even
# for a single folder.
_FEW_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}
_NOT_FOUND = re.compile(
    r"(?:ClassNotFoundException: (?:Class )?|NoClassDefFoundError: "
    # Spark reports a missing class of a function in this form.
    r"|instance of (?=java\.lang\.invoke\.SerializedLambda))([\w.$/]+)"
)


def check_spark(examination: Examination, lake: Lake, folder: str) -> None:
    """Checks what a run needs from Spark.

    In `folder`, a folder of the lake for test files, `check_storage` wrote the file to read.
    """
    sessions = list["SparkSession"]()

    def check(name: str, run_check: Callable[["SparkSession"], Verdict], *, after: str) -> None:
        def translate() -> Verdict:
            with translated():
                try:
                    return run_check(sessions[0])
                except Exception as error:
                    if type(error).__module__.startswith(("pyspark.", "py4j.")):
                        raise Refused(_missing_jar(error) or _cause(error)) from error
                    raise

        examination.check(name, translate, after=after, limited=True)

    examination.check("spark", lambda: _open(lake.settings, sessions), limited=True)
    check("executors", _executors, after="spark")
    check("versions", _versions, after="executors")
    check("delta", _extension, after="spark")
    check("log store", lambda spark: _log_store(spark, lake.settings), after="spark")
    if examination.state_of("write") in ("ok", "warning"):
        check("spark's storage", lambda spark: _read(spark, lake, folder), after="executors")
        check("commit", lambda spark: _commit(spark, lake, folder), after="spark's storage")


def _open(settings: Settings, sessions: list["SparkSession"]) -> Verdict:
    started = time.monotonic()
    sessions.append(connect(settings))
    address = f"localhost:{settings.spark_port}" if settings.spark == "server" else settings.spark
    return f"a session at {address.partition(';')[0]} answers, after {_seconds(started)}"


def _versions(spark: "SparkSession") -> Verdict:
    versions = {name: _value(spark, expression) for name, expression in _VERSIONS.items()}
    # If Java's version is known, Java methods may be called, and it is Delta's class that is
    # missing.
    if versions["Delta"] is None and versions["Java"] is not None:
        raise Refused(
            "Spark has no Delta Lake on its class path. Start the server with --packages "
            f"io.delta:delta-spark_{spark.version.rpartition('.')[0]}_2.13:"
            f"{client_versions()['Delta']}, or with that jar in its folder jars/"
        )
    return versions_verdict(versions, client_versions())


def _value(spark: "SparkSession", expression: str) -> str | None:
    """The value of an expression; `None` if its class does not exist or calling it is forbidden."""
    from pyspark.errors import AnalysisException

    try:
        return str(spark.sql(f"SELECT {expression}").collect()[0][0])
    except AnalysisException:
        return None


def _extension(spark: "SparkSession") -> Verdict:
    return extension_verdict(
        spark.conf.get("spark.sql.extensions", "") or "",
        spark.conf.get("spark.sql.catalog.spark_catalog", "") or "",
    )


def _log_store(spark: "SparkSession", settings: Settings) -> Verdict:
    if settings.log_store == "platform":
        return "the platform makes Spark's commits safe, as LAKEHOUSE_LOG_STORE says; not checked"
    log_store = spark.conf.get(log_store_setting("s3a" if settings.on_s3 else "file"), "") or ""
    return log_store_verdict(log_store, is_conditional=is_conditional(log_store))


def _executors(spark: "SparkSession") -> Verdict:
    started = time.monotonic()
    has_delta = _value(spark, _VERSIONS["Delta"]) is not None
    version = _VERSIONS["Delta"] if has_delta else "NULL"
    task_count, delta = spark.sql(_TASKS.format(version=version)).collect()[0]
    with_delta = f" with Delta {delta}" if delta else ""
    tasks = count_of(task_count, "task")
    return (
        f"{tasks} can run at the same time{with_delta}; a job with as many tasks took "
        f"{_seconds(started)}"
    )


def _read(spark: "SparkSession", lake: Lake, folder: str) -> Verdict:
    name = f"{folder}/file.txt"
    try:
        reader = spark.read.options(**_WITHOUT_RETRIES)
        lines = reader.text(f"{lake.settings.spark_root}/{name}").collect()
    except Exception as error:
        if _missing_jar(error):
            raise
        raise Refused(
            f"Spark cannot read {lake.settings.root}/{name}, which this process wrote: "
            f"{_cause(error)}. {_give_access(lake.settings)}"
        ) from error
    if [line[0] for line in lines] != WRITTEN.decode().splitlines():
        raise Refused(
            f"Spark reads other bytes from {name} than this process wrote. Check that both use the "
            "same storage"
        )
    return "Spark reads what this process writes"


def _give_access(settings: Settings) -> str:
    if not settings.on_s3:
        return (
            "A lake on a disk must be at the same path for Spark's driver and executors. Use S3, "
            "or a disk that all of them mount"
        )
    return (
        "Give Spark's driver and executors the jars of S3A, the endpoint, the region, and keys: "
        "spark.hadoop.fs.s3a.… or AWS_ variables"
    )


def _commit(spark: "SparkSession", lake: Lake, folder: str) -> Verdict:
    key = f"{folder}/table"
    uri = f"{lake.settings.spark_root}/{key}"
    started = time.monotonic()
    for number in range(2):
        frame = spark.range(number, number + 1).selectExpr("id", "0 AS part")
        frame.write.format("delta").mode("append").partitionBy("part").save(uri)
    appended = _seconds(started)
    started = time.monotonic()
    spark.sql(optimize(uri, None)).collect()
    optimized = _seconds(started)
    # A VACUUM makes executors list the folders of partitions through the log store.
    with session_confs(spark, _FEW_TASKS):
        spark.sql(f"VACUUM {path_table(uri)} DRY RUN").collect()
    rows = spark.read.format("delta").load(uri).count()
    commits = [
        file.name for file in lake.store.list(f"{key}/_delta_log") if file.name.endswith(".json")
    ]
    if rows != 2 or len(commits) != 3:
        raise Broken(
            f"two appends and an OPTIMIZE gave {rows} rows and {len(commits)} versions instead of "
            "2 and 3. Do not use this storage for a lake"
        )
    return f"Spark commits to a Delta table: two appends in {appended}, an OPTIMIZE in {optimized}"


def _missing_jar(error: BaseException) -> str | None:
    """A sentence about a class that Spark did not find; `None` if the error has another cause."""
    trace = "\n".join(cause.message for cause in causes_of(error))
    not_found = _NOT_FOUND.search(trace)
    if not_found is None:
        return None
    return (
        f"Spark or its executors lack a jar: the class {not_found[1]} was not found. Start the "
        "server with the jars of Delta, S3A and the log store in spark.jars, or put them into the "
        "folder jars/ of Spark's driver and workers"
    )


def _cause(error: BaseException) -> str:
    cause = innermost_cause(causes_of(error))
    return cause.line or first_line(error)


def _seconds(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"
