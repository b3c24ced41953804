"""The checks of a configuration: of this machine, of the storage, and of Spark.

Test files are written below `_lakehouse/doctor/<id>/`, and deleted at the end. On S3, the object
with which each write tests the bucket (`lake/commits.py`) stays.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.settings import Settings
from lakehouse.base.text import count_of
from lakehouse.lake.commits import refuse_unsafe_commits, refuse_unsafe_storage
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import Lake
from lakehouse.spark.errors import causes_of, first_line, innermost_cause, translated
from lakehouse.spark.server.conf import DELTA
from lakehouse.spark.server.jars import fetch, find_java
from lakehouse.spark.statements import path_table
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import S3Store
from lakehouse.store.s3 import translated_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark waits for executors without a limit. The limit must exceed the 60 s (three attempts of 20 s)
# after which Spark gives up on a master. Source: Spark 4.2.0, StandaloneAppClient.scala
_MOST_SECONDS = 180.0
_WRITTEN = b"written by lakehouse doctor\n"
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

Check = Callable[[], str]


@contextmanager
def scratch(lake: Lake) -> Iterator[str]:
    """Yields the name of a new folder in the lake, and deletes its files afterwards."""
    folder = f"_lakehouse/doctor/{uuid4().hex}"
    store = lake.store
    try:
        yield folder
    finally:
        if isinstance(store, S3Store):
            with suppress(LakehouseError), translated_s3(f"cannot delete {folder}", "delete"):
                # Includes the markers of folders that Spark writes, which are not files.
                keys = [{"Key": each.key} for each in store.walk(folder)]
                store.client.delete_objects(Bucket=store.bucket, Delete={"Objects": keys})
        else:
            shutil.rmtree(Path(lake.settings.root, folder), ignore_errors=True)


def checks_of_lake(lake: Lake, folder: str) -> dict[str, Check]:
    """The checks of the home folder, the declarations and the storage, by name."""
    settings = lake.settings
    return {
        "home": partial(_home, settings.home),
        "tables": partial(_tables, settings),
        "storage": partial(_storage, lake, folder),
    }


def checks_of_spark(
    lake: Lake, folder: str, open_session: "Callable[[], SparkSession]"
) -> dict[str, Check]:
    """The checks of Spark, by name. They read the file that the check of the storage wrote."""
    checks = dict[str, Check]()
    if not lake.settings.spark.startswith("sc://"):
        checks["java"] = lambda: f"Java for Spark's driver: {find_java()}"
        checks["jars"] = lambda: f"{len(fetch())} jars of Delta and S3A match their checksums"
    for name, check in (("spark", _session), ("spark's storage", _read), ("commit", _commit)):
        checks[name] = partial(_on_spark, check, open_session, lake, folder)
    return checks


def spark_version() -> str:
    """The version of PySpark in this environment."""
    return version("pyspark")


def _home(home: Path) -> str:
    probe = home / f".lakehouse-doctor-{uuid4().hex}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"cannot write to {home}: {error.strerror}. Give this user the right to write there, "
            "or use another folder for LAKEHOUSE_HOME"
        ) from error
    return f"{home} can be written"


def _tables(settings: Settings) -> str:
    tables = declared_tables(settings)
    return f"{count_of(len(tables), 'table')} in {settings.tables} and {settings.adopted.name}"


def _storage(lake: Lake, folder: str) -> str:
    store = lake.store
    root = lake.settings.root
    name = f"{folder}/file.txt"
    store.folders("")
    refuse_unsafe_storage(lake, asked="doctor")
    store.put_if_absent(f"{folder}/deleted", b"")
    store.put(name, _WRITTEN)
    store.delete([f"{folder}/deleted"])
    if store.read(name) != _WRITTEN or [file.name for file in store.list(folder)] != [name]:
        raise Refused(
            f"{root}/{name} does not have what was just written, or is not in a listing. Use "
            "storage that shows new content immediately after a write"
        )
    return f"files below {root} can be listed, read, written and deleted"


def _on_spark(
    check: "Callable[[SparkSession, Lake, str], str]",
    open_session: "Callable[[], SparkSession]",
    lake: Lake,
    folder: str,
) -> str:
    """Runs a check with a session, at most three minutes, and translates Spark's errors."""
    with translated():
        spark = open_session()
        limit = Timer(_MOST_SECONDS, spark.interruptAll)
        limit.start()
        try:
            return check(spark, lake, folder)
        except Exception as error:
            if limit.finished.is_set():
                raise Refused(
                    f"no answer within {_MOST_SECONDS:.0f} s. Check on the cluster's page that "
                    "there are workers with free cores and memory, and that they can reach this "
                    "machine and the storage"
                ) from error
            if type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise Refused(_spark_fault(error, lake)) from error
            raise
        finally:
            limit.cancel()


def _session(spark: "SparkSession", lake: Lake, folder: str) -> str:
    refuse_unsafe_commits(lake, spark, folder, asked="doctor")
    for name, value in DELTA.items():
        if value not in (spark.conf.get(name, "") or "").split(","):
            raise Refused(
                f"Spark runs without Delta: {name} lacks {value}. Start the server with Delta's "
                f"jars and --conf {name}={value}"
            )
    # Delta's jar is made for one minor version of Spark.
    ours = spark_version()
    theirs = spark.version
    if _minor(theirs) != _minor(ours):
        raise Refused(
            f"the server runs Spark {theirs}, but this environment has Spark {ours}. Use a server "
            f"with Spark {_minor(ours)}, or install the release of lakehouse for Spark "
            f"{_minor(theirs)}"
        )
    return f"a session with Spark {theirs} answers"


def _read(spark: "SparkSession", lake: Lake, folder: str) -> str:
    path = f"{lake.settings.spark_root}/{folder}/file.txt"
    lines = spark.read.options(**_WITHOUT_RETRIES).text(path).collect()
    if [line[0] for line in lines] != _WRITTEN.decode().splitlines():
        raise Refused(
            f"Spark reads other bytes from {path} than this process wrote. Check that both use the "
            "same storage"
        )
    return "Spark reads what this process writes"


def _commit(spark: "SparkSession", lake: Lake, folder: str) -> str:
    uri = f"{lake.settings.spark_root}/{folder}/table"
    for number in range(2):
        frame = spark.range(number, number + 1).selectExpr("id", "0 AS part")
        frame.write.format("delta").mode("append").partitionBy("part").save(uri)
    # A VACUUM makes executors list the folders of partitions through the log store.
    with session_confs(spark, _FEW_TASKS):
        spark.sql(f"VACUUM {path_table(uri)} DRY RUN").collect()
    rows = spark.read.format("delta").load(uri).count()
    if rows != 2:
        raise Broken(f"two appends of a row gave {rows} rows. Do not use this storage for a lake")
    return "Spark commits to a Delta table"


def _spark_fault(error: BaseException, lake: Lake) -> str:
    """A sentence about what Spark or its executors lack, with what to do."""
    trace = "\n".join(cause.message for cause in causes_of(error))
    if not_found := _NOT_FOUND.search(trace):
        return (
            f"Spark or its executors lack a jar: the class {not_found[1]} was not found. Start the "
            "server with the jars of Delta, S3A and the log store in spark.jars, or put them into "
            "the folder jars/ of Spark's driver and workers"
        )
    advice = (
        "A lake on a disk must be at the same path for Spark's driver and executors. Use S3, or a "
        "disk that all of them mount"
    )
    if lake.settings.on_s3:
        advice = (
            "Give Spark's driver and executors the jars of S3A, the endpoint, the region, and "
            "keys: spark.hadoop.fs.s3a.… or AWS_ variables"
        )
    return f"{innermost_cause(causes_of(error)).line or first_line(error)}. {advice}"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
