"""The checks of a configuration: of this machine, of the storage, and of Spark.

Everything is written below `_lakehouse/doctor/<id>/`, and deleted at the end. On S3, each run also
deletes the files that a killed run wrote at least an hour before.
"""

import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from itertools import takewhile
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.settings import Settings, s3_region
from lakehouse.base.text import HOUR_MS, count_of
from lakehouse.doctor.plan import (
    Doubt,
    Finding,
    State,
    clock_verdict,
    extension_verdict,
    log_store_verdict,
    region_verdict,
    versions_verdict,
)
from lakehouse.lake.lake import Lake
from lakehouse.spark.errors import causes_of, first_line, innermost_cause, translated
from lakehouse.spark.server.jars import FOLDER, find_java, pinned, wrong_jars
from lakehouse.spark.server.log_store import is_conditional, log_store_setting
from lakehouse.spark.session import connect
from lakehouse.spark.statements import optimize, path_table
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import DiskStore, S3Store
from lakehouse.store.s3 import PERMISSIONS, translated_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The time limit of a check with `limited`. It must exceed the 60 s (three attempts of 20 s) after
# which Spark gives up on a master. Source: Spark 4.2.0, StandaloneAppClient.scala
_MOST_SECONDS = 180.0
_MOST_CHARACTERS = 400
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Examination:
    """The findings so far. `show` is called with each finding as soon as it is known."""

    def __init__(self, show: Callable[[Finding], None]) -> None:
        self.findings: list[Finding] = []
        self._show = show

    def check(
        self, name: str, run_check: Callable[[], str], *, after: str = "", limited: bool = False
    ) -> bool:
        """Runs a check; returns whether it passed, perhaps with a warning.

        The check is skipped unless the check `after` passed. With `limited`, it fails after three
        minutes, because Spark waits for executors without a limit.
        """
        if after and self.state_of(after) not in ("ok", "warning"):
            return self.note(name, "skipped", f"needs {after}, which did not pass")
        try:
            verdict = _within_limit(run_check) if limited else run_check()
        except LakehouseError as error:
            return self.note(name, "failed", str(error))
        except Exception as error:
            line = (str(error).splitlines() or [""])[0][:_MOST_CHARACTERS]
            return self.note(name, "failed", f"{type(error).__name__}: {line}")
        return self.note(name, "warning" if isinstance(verdict, Doubt) else "ok", verdict)

    def note(self, name: str, state: State, sentence: str) -> bool:
        """Records a finding; returns whether later checks may depend on it."""
        finding = Finding(name=name, state=state, sentence=sentence)
        self.findings.append(finding)
        self._show(finding)
        return state in ("ok", "warning")

    def state_of(self, name: str) -> State:
        """The state of an earlier check; `skipped` if it did not run."""
        for each in self.findings:
            if each.name == name:
                return each.state
        return "skipped"


def _within_limit(run_check: Callable[[], str]) -> str:
    """Calls `run_check` in a separate thread, which is abandoned after `_MOST_SECONDS`."""
    results = list[str]()
    errors = list[BaseException]()

    def work() -> None:
        try:
            results.append(run_check())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_MOST_SECONDS)
    if errors:
        raise errors[0]
    if not results:
        raise Refused(
            f"no answer within {_MOST_SECONDS:.0f} s. Check on the cluster's page that there are "
            "workers with free cores and memory, and that they can reach this machine and the "
            "storage"
        )
    return results[0]


def check_machine(examination: Examination, settings: Settings) -> None:
    """Checks what every run needs on this machine, without requests to other machines."""
    examination.check("home", lambda: _home(settings.home))
    if settings.spark.startswith("sc://"):
        examination.note("java", "skipped", "Java is not needed: Spark's driver is on the server")
        return
    examination.check("java", lambda: f"Java for Spark's driver: {find_java()}")
    examination.check("jars", _jars)


def client_versions() -> dict[str, str]:
    """The versions of Spark's and Delta's Python packages in this environment."""
    return {"Spark": version("pyspark"), "Delta": version("delta-spark")}


def nearest_folder(path: Path) -> Path:
    """The folder itself if it exists, otherwise the nearest existing folder above it."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _home(home: Path) -> str:
    folder = nearest_folder(home)
    if not folder.is_dir():
        raise Refused(f"{folder} is a file. Use a folder for LAKEHOUSE_HOME")
    probe = folder / f".lakehouse-doctor-{uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"cannot write to {folder}: {error.strerror}. Give this user the right to write there, "
            "or use another folder for LAKEHOUSE_HOME"
        ) from error
    if folder != home:
        return f"{home} does not exist yet and can be created"
    if home.stat().st_mode & _OTHERS_MAY_WRITE:
        return Doubt(
            f"other users may write to {home}, which holds the Spark server's token. Use: "
            f"chmod go-w {home}"
        )
    return f"{home} can be written"


def _jars() -> str:
    wrong = wrong_jars()
    if not wrong:
        return f"all {len(pinned())} jars of Delta and S3A match their checksums"
    missing = [name for name in wrong if not os.path.exists(FOLDER / name)]
    if missing:
        return Doubt(
            f"{len(missing)} of {len(pinned())} jars are missing, for example "
            f"{missing[0]}. The next start fetches them. To fetch them now, use: make setup"
        )
    raise Refused(
        f"wrong checksum of {count_of(len(wrong), 'jar')}, for example {wrong[0]}. Use: make setup"
    )


_FOLDER = "_lakehouse/doctor"
_DELETE_BATCH = 1_000
WRITTEN = b"written by lakehouse doctor\n"


@contextmanager
def scratch(lake: Lake) -> Iterator[str]:
    """Yields the name of a new folder in the lake, and deletes the folder afterwards.

    On a disk, empty folders above it that did not exist before are removed, too.
    """
    root = Path(lake.settings.root)
    existing = nearest_folder(root / _FOLDER) if isinstance(lake.store, DiskStore) else None
    folder = f"{_FOLDER}/{uuid4().hex}"
    try:
        yield folder
    finally:
        with suppress(LakehouseError):  # the check `delete` reports this; the next run tries again
            _delete_all(lake, folder)
        if existing is not None:
            top = root / _FOLDER
            for created in takewhile(lambda each: each != existing, (top, *top.parents)):
                with suppress(OSError):  # it is not empty
                    created.rmdir()


def check_storage(examination: Examination, lake: Lake, folder: str) -> None:
    """Checks what this process may do with the lake's storage."""
    store = lake.store
    examination.check("storage", lambda: _reach(lake))
    if isinstance(store, S3Store):
        examination.check("region", lambda: _region(store), after="storage")
    examination.check("write", lambda: _write(lake, folder), after="storage")
    checks = {"read": _read, "clock": _clock, "conditional writes": _conditional, "delete": _delete}
    for name, check in checks.items():
        examination.check(name, partial(check, lake, folder), after="write")


def _reach(lake: Lake) -> str:
    store = lake.store
    if isinstance(store, S3Store):
        count = len(store.folders(""))
        return f"{lake.settings.root} can be listed ({count_of(count, 'folder')})"
    root = Path(lake.settings.root)
    folder = nearest_folder(root)
    if not folder.is_dir():
        raise Refused(f"{folder} is a file. Use a folder for LAKEHOUSE_ROOT")
    return f"{root} exists" if folder == root else f"{root} does not exist yet"


def _region(store: S3Store) -> str:
    with translated_s3(f"storage: cannot find the region of {store.bucket}", "list"):
        head = store.client.head_bucket(Bucket=store.bucket)
    region = s3_region(environ)
    configured = store.client.meta.region_name if region is None else region
    return region_verdict(store.bucket, head.get("BucketRegion"), configured)


def _write(lake: Lake, folder: str) -> str:
    lake.store.put(f"{folder}/file.txt", WRITTEN)
    return f"files can be written below {lake.settings.root}"


def _read(lake: Lake, folder: str) -> str:
    if lake.store.read(f"{folder}/file.txt") != WRITTEN:
        raise Refused(
            f"{folder}/file.txt does not contain what was just written. Use storage that returns "
            "new content immediately after a write"
        )
    if [file.name for file in lake.store.list(folder)] != [f"{folder}/file.txt"]:
        raise Refused(
            f"a listing of {folder} does not show the file that was just written. Use storage "
            "whose listings are consistent"
        )
    return "a written file can be read and listed immediately"


def _clock(lake: Lake, folder: str) -> str:
    written = lake.store.stat(f"{folder}/file.txt")
    assert written is not None
    return clock_verdict(now_ms() - written.modified_ms)


def _conditional(lake: Lake, folder: str) -> str:
    store = lake.store
    name = f"{folder}/taken"
    if isinstance(store, S3Store):
        is_honoured = store.honours_conditions(name) and store.completes_conditionally(name)
    else:
        is_overwritten = store.put_if_absent(name, b"") and store.put_if_absent(name, b"")
        is_honoured = not is_overwritten
    if not is_honoured:
        raise Refused(
            f"the storage of {lake.settings.root} overwrites an existing file although the request "
            "forbids it. Use AWS S3, or a server with conditional writes (PutObject and "
            "CompleteMultipartUpload with If-None-Match: *)"
        )
    return "the storage creates a file only if it is absent"


def _delete(lake: Lake, folder: str) -> str:
    name = f"{folder}/taken"
    failed = lake.store.delete_each([name])
    if failed:
        raise Refused(
            f"{name} cannot be deleted: {failed[name]}. Grant {PERMISSIONS['delete']}, then delete "
            f"{lake.settings.root}/{folder} by hand"
        )
    if isinstance(lake.store, S3Store) and lake.store.keeps_versions():
        return "files can be deleted; the bucket keeps old versions of them, which cost storage"
    return "files can be deleted"


def _delete_all(lake: Lake, folder: str) -> None:
    """Deletes the folder; on S3, also Spark's folder markers and old files of other runs."""
    store = lake.store
    if not isinstance(store, S3Store):
        shutil.rmtree(Path(lake.settings.root, folder), ignore_errors=True)
        return
    prefix = store.prefix + folder
    old_ms = now_ms() - HOUR_MS
    keys = list[str]()
    for each in store.walk(_FOLDER):
        is_old = each.modified_ms is not None and each.modified_ms < old_ms
        if is_old or each.key.startswith(prefix):
            keys.append(each.key)
    for start in range(0, len(keys), _DELETE_BATCH):
        batch = [{"Key": key} for key in keys[start : start + _DELETE_BATCH]]
        with translated_s3(f"storage: cannot delete {prefix}", "delete"):
            store.client.delete_objects(Bucket=store.bucket, Delete={"Objects": batch})


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

    def check(name: str, run_check: Callable[["SparkSession"], str], *, after: str) -> None:
        def translate() -> str:
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
        check("spark's storage", lambda spark: _read_all(spark, lake, folder), after="executors")
        check("commit", lambda spark: _commit(spark, lake, folder), after="spark's storage")


def _open(settings: Settings, sessions: list["SparkSession"]) -> str:
    started = time.monotonic()
    sessions.append(connect(settings))
    address = f"localhost:{settings.spark_port}" if settings.spark == "server" else settings.spark
    return f"a session at {address.partition(';')[0]} answers, after {_seconds(started)}"


def _versions(spark: "SparkSession") -> str:
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


def _extension(spark: "SparkSession") -> str:
    return extension_verdict(
        spark.conf.get("spark.sql.extensions", "") or "",
        spark.conf.get("spark.sql.catalog.spark_catalog", "") or "",
    )


def _log_store(spark: "SparkSession", settings: Settings) -> str:
    if settings.log_store == "platform":
        return "the platform makes Spark's commits safe, as LAKEHOUSE_LOG_STORE says; not checked"
    log_store = spark.conf.get(log_store_setting("s3a" if settings.on_s3 else "file"), "") or ""
    return log_store_verdict(log_store, is_conditional=is_conditional(log_store))


def _executors(spark: "SparkSession") -> str:
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


def _read_all(spark: "SparkSession", lake: Lake, folder: str) -> str:
    name = f"{folder}/file.txt"
    try:
        reader = spark.read.options(**_WITHOUT_RETRIES)
        lines = reader.text(f"{lake.settings.spark_root}/{name}").collect()
    except Exception as error:
        if _missing_jar(error):
            raise
        advice = (
            "A lake on a disk must be at the same path for Spark's driver and executors. Use S3, "
            "or a disk that all of them mount"
        )
        if lake.settings.on_s3:
            advice = (
                "Give Spark's driver and executors the jars of S3A, the endpoint, the region, and "
                "keys: spark.hadoop.fs.s3a.… or AWS_ variables"
            )
        raise Refused(
            f"Spark cannot read {lake.settings.root}/{name}, which this process wrote: "
            f"{_cause(error)}. {advice}"
        ) from error
    if [line[0] for line in lines] != WRITTEN.decode().splitlines():
        raise Refused(
            f"Spark reads other bytes from {name} than this process wrote. Check that both use the "
            "same storage"
        )
    return "Spark reads what this process writes"


def _commit(spark: "SparkSession", lake: Lake, folder: str) -> str:
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
