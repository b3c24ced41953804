"""What the tests let clients of their own do, in processes that they kill."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse import Append, Compaction, Table
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.errors import translated
from lakehouse.spark.session import _builder, connect, prepare, prepare_session
from lakehouse.store import DiskStore
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.support.example_lake import events
from lakehouse_tests.support.vacuums import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT = "java_method('java.lang.Thread', 'sleep', {milliseconds}L)"


class Thrown(threading.Thread):
    """Runs something, and keeps what it raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            with translated():
                self._work()
        except Exception as error:
            self.error = error


def gate(seen: Path, go: Path) -> Any:
    """A function of Spark that returns its number as soon as `go` exists; `seen` exists once it is called."""
    # Without PySpark, other tests use this module.
    from pyspark.sql.functions import udf
    from pyspark.sql.types import LongType

    @udf(LongType(), useArrow=False)
    def wait(number: int) -> int:
        import time

        seen.touch()
        while not go.exists():
            time.sleep(0.05)  # polls the test
        return number

    return wait


def append_rows(key: str, name: str, count: int) -> None:
    """Appends `count` rows to a table, each in a commit of its own, as soon as a line comes in."""
    settings, _ = here()
    spark = connect(settings)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        frame = spark.createDataFrame([(name, number)], "name STRING, number INT")
        frame.write.format("delta").mode("append").save(settings.table_uri(key))


def copy_slowly(milliseconds: int) -> None:
    """A write of `slow_copies`, after a line with the id of its session."""
    settings, lake = here()
    spark = connect(settings)
    print(spark.session_id, flush=True)  # type: ignore[attr-defined]  # Connect
    write_table(lake, spark, slow_copies(milliseconds))


def slow_copies(milliseconds: int) -> Table:
    """A copy of the events: rows with an odd id wait, each for so long."""

    def transform(events: Any) -> Any:
        # A row waits in a task of its own, so that the other tasks have written their files meanwhile.
        spread = events.select("id").repartitionByRange(2, (events["id"] % 2))
        if milliseconds == 0:
            return spread
        wait = WAIT.format(milliseconds=milliseconds)
        return spread.where(f"id % 2 = 0 OR {wait} IS NOT NULL")

    return Table(key="silver/copies", inputs=(small_events(),), write=Append(), transform=transform)


def vacuum_and_die(step: int) -> None:
    """A vacuum by a listing, killed before Delta is asked (0), between the first file and the second (1), or before its record (2)."""
    settings, lake = here()
    deleted: list[object] = []
    delete = run._delete

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def delete_one(*arguments: Any) -> None:
        if deleted:
            die()
        deleted.append(delete(*arguments))

    match step:
        case 0:
            run.confirmed_by_delta = die  # type: ignore[assignment]
        case 1:
            run.DELETE_KEYS, run._delete = 1, delete_one
        case _:
            run.record_operation = die  # type: ignore[assignment]
    table = table_of()
    run.vacuum(LakeFacts(lake, [table]), lambda: connect(settings), table, mode="FULL")


def scan_and_die(step: int) -> None:
    """A scan that is killed before it puts its data file (0), before its commit (1), or after that (2)."""
    settings, lake = here()

    class Dying(DiskStore):
        def put(self, name: str, data: bytes) -> None:
            if step == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            super().put(name, data)

        def put_if_absent(self, name: str, data: bytes) -> bool:
            if step == 2:
                super().put_if_absent(name, data)
            os.kill(os.getpid(), signal.SIGKILL)
            return False

    scan(replace(lake, store=Dying(Path(settings.root))), now_ms=now_ms())


def small_events() -> Table:
    """The events' table, unpartitioned by declaration; only its upkeep and its rows matter here."""
    return Table(
        key=events.key,
        source=events.source,
        write=Append(),
        compaction=Compaction(min_small_files=2),
    )


def new_session(settings: Settings) -> "SparkSession":
    """A session of its own on the lake's server, beside the one that this process has; it knows nothing of guards."""
    prepare(settings)
    return prepare_session(_builder(settings).create())


def here() -> tuple[Settings, Lake]:
    """The lake of this process's environment."""
    settings = parse_settings(os.environ, base=Path.cwd())
    return settings, open_lake(settings)
