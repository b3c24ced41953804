"""Eight weeks of flights under six policies, side by side: seconds of writing, compacting and reading, files, bytes rewritten.

Each batch is a day of landed files, written to every arm's lake in turn, so that whatever else the machine does falls on all of them.
The tables are the declared ones (an hour-partitioned log with late data, and an unpartitioned one of tiny files), read whole after every
fourth batch. The first batch is not counted. `python -m benchmarks.eight_weeks [DAYS]`.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.by_sensor import is_due
from benchmarks.figures import Figure, alone
from lakehouse import AutoCompaction, BySensor, NoCompaction, OptimizedWrite, Table
from lakehouse.core.declaration.strategies import type_of_strategy
from lakehouse.core.settings import Settings
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark.sessions import connect
from lakehouse.engine.spark.statements import optimize, path_table
from lakehouse.replay.play import play
from lakehouse.runtime import server
from lakehouse.tables import bronze
from lakehouse_tests.conftest import own_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2013, 1, 1)
HOURS_PER_BATCH = 24
BATCHES_PER_READ = 4
EVERY_20, NIGHTLY = "OPTIMIZE every 20 batches", "OPTIMIZE and VACUUM each night"
SCRIPTS = {EVERY_20: 20, NIGHTLY: 1}  # as teams have them: after so many batches, whatever the tables look like
TABLES = (bronze.flight_events, bronze.weather)
STRATEGIES: dict[str, type_of_strategy] = {
    "by the sensor (default)": BySensor(),
    "none": NoCompaction(),
    EVERY_20: NoCompaction(),
    NIGHTLY: NoCompaction(),
    "Delta's auto compaction": AutoCompaction(),
    "optimized write": OptimizedWrite(),
}


@dataclass(slots=True, kw_only=True)
class Arm:
    """One policy, its lake, and what it took so far, in seconds."""

    name: str
    lake: Lake
    tables: tuple[Table, ...]
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    file_counts: list[int] = field(default_factory=list)

    def timed(self, what: str, do: Callable[[], object]) -> None:
        """Adds the seconds that `do` takes to `what`."""
        began = time.monotonic()
        do()
        self.seconds[what] += time.monotonic() - began


def main(days: int = 56) -> list[Figure]:
    """The default policy beside the others: its writers and readers together are to wait the least."""
    with tempfile.TemporaryDirectory() as folder:
        settings = own_settings(Path(folder) / "home", LAKEHOUSE_SPARK_MEMORY="3g")
        with server.supervised(settings):
            spark = connect(settings)
            arms = [_arm(settings, name, strategy) for name, strategy in STRATEGIES.items()]
            for batch in range(1, days * 24 // HOURS_PER_BATCH + 1):
                # Whoever comes first in a round pays for what is cold; everybody does in turn.
                for arm in arms[batch % len(arms) :] + arms[: batch % len(arms)]:
                    _one_batch(arm, spark, batch)
                    if batch == 1:  # it compiles what all of the others run
                        arm.seconds.clear()
                print(f"batch {batch}: " + ", ".join(f"{arm.name} {sum(arm.seconds.values()):.0f} s" for arm in arms), flush=True)
            return _figures(arms)


def _arm(settings: Settings, name: str, strategy: type_of_strategy) -> Arm:
    lake = open_lake(replace(settings, root=f"{settings.home}/lake-{list(STRATEGIES).index(name)}"))
    return Arm(name=name, lake=lake, tables=tuple(replace(t, compaction=replace(t.compaction, strategy=strategy)) for t in TABLES))


def _one_batch(arm: Arm, spark: "SparkSession", batch: int) -> None:
    play(arm.lake.store, arm.lake.settings.home, start=START, hours=HOURS_PER_BATCH)
    for table in arm.tables:
        arm.timed("write", lambda table=table: write_table(arm.lake, spark, table))
        if isinstance(table.compaction.strategy, BySensor) and is_due(arm.lake, table):
            arm.timed("compact", lambda table=table: compact(arm.lake, spark, table))
        if batch % SCRIPTS.get(arm.name, batch + 1) == 0:
            arm.timed("compact", lambda table=table: _by_script(arm, spark, table))
        if batch % BATCHES_PER_READ == 0:
            arm.timed("read", lambda table=table: _read(arm.lake, spark, table))
    arm.file_counts.append(sum(facts.snapshot.file_count for table in arm.tables if (facts := arm.lake.facts(table.key))))


def _by_script(arm: Arm, spark: "SparkSession", table: Table) -> None:
    uri = arm.lake.settings.table_uri(table.key)
    spark.sql(optimize(uri, None))
    if arm.name == NIGHTLY:
        spark.sql(f"VACUUM {path_table(uri)}")


def _read(lake: Lake, spark: "SparkSession", table: Table) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.read.format("delta").load(lake.settings.table_uri(table.key))
    frame.agg(F.count("*"), F.sum(F.xxhash64(*frame.columns).cast("decimal(38,0)"))).collect()


def _amplification(arm: Arm) -> float:
    """Bytes that were written again, per byte that was new."""
    commits = [commit for table in arm.tables if (facts := arm.lake.facts(table.key)) for commit in facts.history.commits]
    new = sum(commit.added_bytes for commit in commits if commit.changed_data)
    return sum(commit.added_bytes for commit in commits if not commit.changed_data) / new


def _figures(arms: list[Arm]) -> list[Figure]:
    """The table printed, and its columns as figures: that of the default, with the others beside it."""
    columns: dict[str, tuple[str, Callable[[Arm], float]]] = {
        "write": ("s", lambda arm: arm.seconds["write"]),
        "read": ("s", lambda arm: arm.seconds["read"]),
        "write and read": ("s", lambda arm: arm.seconds["write"] + arm.seconds["read"]),
        "compact": ("s", lambda arm: arm.seconds["compact"]),
        "write, read and compact": ("s", lambda arm: sum(arm.seconds.values())),
        "files, mean": ("", lambda arm: statistics.fmean(arm.file_counts)),
        "files, standard deviation": ("", lambda arm: statistics.pstdev(arm.file_counts)),
        "files at the end": ("", lambda arm: arm.file_counts[-1]),
        "bytes rewritten per byte that was new": ("", _amplification),
    }
    values = {name: {arm.name: value(arm) for arm in arms} for name, (_, value) in columns.items()}
    print("| " + " | ".join(("policy", *columns)) + " |\n|" + "---|" * (len(columns) + 1))
    for arm in arms:
        print(f"| {arm.name} | {' | '.join(f'{by_arm[arm.name]:.2f}' for by_arm in values.values())} |")
    default, batches = arms[0].name, len(arms[0].file_counts)
    figures = list[Figure]()
    for name, by_arm in values.items():
        beside = {arm: value for arm, value in by_arm.items() if arm != default}
        most = min(beside.values()) if name == "write and read" else None
        title = f"{name}, {default}, {batches} daily batches"
        figures.append(Figure(name=title, value=by_arm[default], unit=columns[name][0], peers=beside, at_most=most))
    return figures


if __name__ == "__main__":
    sys.exit(alone(main))
