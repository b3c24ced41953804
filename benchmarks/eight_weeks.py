"""Eight weeks of flights under several policies, with four kinds of readers: what writing, compacting and reading take, and files.

Each batch is a day of landed files, written to every arm's lake in turn, so that whatever else the machine does falls on all of them.
The tables are the declared ones (an hour-partitioned log with late data, and an unpartitioned one of tiny files). Both are read whole
after every batch, and each read is timed; readers after every fourth batch are every fourth of these reads. A fixed policy does not ask
who reads, so one lake serves for all kinds of readers; the sensor goes by what its readers lose, and has a lake for each kind. The first
batch is not counted. `python -m benchmarks.eight_weeks [DAYS] [TABLES] [KINDS OF READERS]`.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from benchmarks.by_sensor import is_due
from benchmarks.figures import Figure, alone, timed
from benchmarks.own_lake import lake_below, own_lake
from lakehouse import AutoCompaction, OptimizedWrite, Table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.statements import optimize, path_table
from lakehouse.replay.play import play
from lakehouse.tables import bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2013, 1, 1)
HOURS_PER_BATCH = 24
EVERY_20, NIGHTLY = "OPTIMIZE every 20 batches", "OPTIMIZE and VACUUM each night"
SCRIPTS = {
    EVERY_20: 20,
    NIGHTLY: 1,
}  # as teams have them: after so many batches, whatever the tables look like
TABLES = (bronze.flight_events, bronze.weather)
# Readers come after so many batches; 0: never.
READERS = {"after every batch": 1, "after every fourth": 4, "after every twentieth": 20, "never": 0}
FIXED: dict[str, dict[str, Any]] = {
    "none": {"mode": "off"},
    EVERY_20: {"mode": "off"},
    NIGHTLY: {"mode": "off"},
    "Delta's auto compaction": {"strategy": AutoCompaction()},
    "optimized write": {"strategy": OptimizedWrite()},
}
OURS = "by the sensor (default)"
# Of two sums this near none is called the lower.
NEAR = 1.03


@dataclass(slots=True, kw_only=True)
class Arm:
    """One policy, its lake, and what each batch took, in seconds; `readers` is what its compactions go by, `None`: by nothing."""

    name: str
    lake: Lake
    tables: tuple[Table, ...]
    readers: str | None = None
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {"write": [], "compact": [], "read": []}
    )
    read_ms: list[int] = field(default_factory=list[int])
    file_counts: list[int] = field(default_factory=list[int])

    def timed(self, what: str, do: Callable[[], object]) -> None:
        """Adds the seconds that `do` takes to `what` of the batch under way."""
        self.seconds[what][-1] += timed(do)[0]

    def sum_of(self, what: str, readers: str) -> float:
        """Seconds of all batches but the first, with readers of this kind."""
        every = READERS[readers] if what == "read" else 1
        return sum(
            value
            for batch, value in enumerate(self.seconds[what], start=1)
            if batch > 1 and every and batch % every == 0
        )

    def total(self, readers: str) -> float:
        """The seconds of writers, readers of this kind and compactions together."""
        return sum(self.sum_of(what, readers) for what in self.seconds)


def main(days: int = 56, tables: int = len(TABLES), kinds: int = len(READERS)) -> list[Figure]:
    """With readers of every kind, the default policy has the lowest sum or is within 3 % of it."""
    with own_lake(LAKEHOUSE_SPARK_MEMORY="3g") as (lake, spark):
        arms = _arms(lake, TABLES[-tables:], [*READERS][:kinds])
        for batch in range(1, days * 24 // HOURS_PER_BATCH + 1):
            # The arm that comes first in a round pays for what is cold; each arm does in turn.
            for arm in arms[batch % len(arms) :] + arms[: batch % len(arms)]:
                _one_batch(arm, spark, batch)
            told = (
                f"{arm.name}{f', {arm.readers}' if arm.readers else ''} {arm.total('after every batch'):.0f} s"
                for arm in arms
            )
            print(f"batch {batch}: " + "; ".join(told), flush=True)
        return _figures(arms)


def _arms(shared: Lake, tables: Sequence[Table], kinds: Sequence[str]) -> list[Arm]:
    found = list[Arm]()
    ours = [
        (OURS, {"reads_per_day": 0}, readers) for readers in kinds
    ]  # all of the readers are known
    for name, knobs, readers in [*ours, *((name, each, None) for name, each in FIXED.items())]:
        with_policy = tuple(
            replace(table, compaction=replace(table.compaction, **knobs)) for table in tables
        )
        found.append(
            Arm(
                name=name,
                lake=lake_below(shared, str(len(found))),
                tables=with_policy,
                readers=readers,
            )
        )
    return found


def _one_batch(arm: Arm, spark: "SparkSession", batch: int) -> None:
    for seconds in arm.seconds.values():
        seconds.append(0.0)
    play(arm.lake.store, arm.lake.settings.home, start=START, hours=HOURS_PER_BATCH)
    for table in arm.tables:
        arm.timed("write", lambda table=table: write_table(arm.lake, spark, table))
        _by_sensor(arm, spark, table)
        if batch % SCRIPTS.get(arm.name, batch + 1) == 0:
            arm.timed("compact", lambda table=table: _by_script(arm, spark, table))
    for table in arm.tables:
        arm.timed("read", lambda table=table: _read(arm.lake, spark, table))
    every = READERS[arm.readers] if arm.readers else 0
    if every and batch % every == 0:
        arm.read_ms.append(now_ms())
        for table in arm.tables:
            _by_sensor(arm, spark, table)
    arm.file_counts.append(
        sum(
            facts.snapshot.file_count
            for table in arm.tables
            if (facts := arm.lake.facts(table.key))
        )
    )


def _by_sensor(arm: Arm, spark: "SparkSession", table: Table) -> None:
    if arm.readers and is_due(arm.lake, table, read_ms=arm.read_ms):
        arm.timed("compact", lambda: compact(arm.lake, spark, table))


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
    commits = [
        commit
        for table in arm.tables
        if (facts := arm.lake.facts(table.key))
        for commit in facts.history.commits
    ]
    new = sum(commit.added_bytes for commit in commits if commit.changed_data)
    return sum(commit.added_bytes for commit in commits if not commit.changed_data) / new


def _figures(arms: list[Arm]) -> list[Figure]:
    """A table printed for each kind of readers; as figures the sum of the default beside the others, and its bytes rewritten."""
    figures, batches = list[Figure](), len(arms[0].file_counts)
    columns = (
        "policy",
        "write s",
        "read s",
        "compact s",
        "all s",
        "files, mean",
        "files, deviation",
        "rewritten per new byte",
    )
    for readers in [arm.readers for arm in arms if arm.readers]:
        with_readers = [arm for arm in arms if arm.readers in (None, readers)]
        print(f"\nreaders {readers}\n\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for arm in with_readers:
            sums = [arm.sum_of(what, readers) for what in ("write", "read", "compact")]
            counts = [
                statistics.fmean(arm.file_counts),
                statistics.pstdev(arm.file_counts),
                _amplification(arm),
            ]
            print(
                f"| {arm.name} | {' | '.join(f'{value:.2f}' for value in (*sums, sum(sums), *counts))} |"
            )
        totals = {arm.name: arm.total(readers) for arm in with_readers}
        ours = totals.pop(OURS)
        title = f"write, read and compact, readers {readers}, {batches} daily batches"
        figures.append(
            Figure(
                name=title,
                value=ours,
                unit="s",
                row="P15",
                peers=totals,
                at_most=NEAR * min(totals.values()),
            )
        )
        rewritten = {arm.name: _amplification(arm) for arm in with_readers}
        ours, limit = rewritten.pop(OURS), rewritten[EVERY_20]
        title = f"bytes rewritten per byte that was new, readers {readers}"
        figures.append(
            Figure(name=title, value=ours, unit="", row="P15", peers=rewritten, at_most=limit)
        )
    return figures


if __name__ == "__main__":
    sys.exit(alone(main))
