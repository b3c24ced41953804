"""The study's arms: what each sets on its table, and does after an iteration."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.own_lake import landed_table
from benchmarks.study.batches import PROPERTIES
from lakehouse import Compaction, Merge, Table
from lakehouse.base.clock import now_ms
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    decide_fleet,
    state_of,
)
from lakehouse.compact.run import compact
from lakehouse.delta.commits import ingest_app_id
from lakehouse.delta.protocol import AUTO_COMPACT, OPTIMIZE_WRITE
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.spark.statements import optimize
from lakehouse.spark.temporary_confs import (
    SHUFFLE_PARTITIONS,
    SHUFFLED_BEFORE_WRITE,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    are_few,
    confs_to_read,
    merged_into,
    session_confs,
)
from lakehouse.write.commit_rows import apply_properties, with_key_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A silver table must have an input. This one stays empty: the study writes the table directly.
_INPUT = landed_table("bronze/batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to keep files few: table properties, an OPTIMIZE every so many iterations, or our policy.

    `published` are the published study's minutes of 200 iterations and the standard deviation of
    its file count.
    """

    name: str
    title: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    optimize_every: int = 0
    policy: Compaction | None = None
    published: tuple[float, float] | None = None

    def table(self, key: str) -> Table:
        """The arm's table, declared for this lakehouse."""
        return Table(
            key=key,
            inputs=(_INPUT,),
            transform=lambda batches: batches,
            write=Merge(keys=("id",), order_by=("date1",)),
            compaction=self.policy or Compaction(),
            properties=dict(PROPERTIES),
        )


_ARMS = (
    Arm(name="none", title="no compaction", published=(33.27, 864)),
    Arm(
        name="every20",
        title="OPTIMIZE every 20 iterations",
        optimize_every=20,
        published=(14.63, 89),
    ),
    Arm(
        name="auto",
        title="auto compaction",
        properties={AUTO_COMPACT: "true"},
        published=(14.51, 17),
    ),
    Arm(
        name="optimized",
        title="optimized write",
        properties={OPTIMIZE_WRITE: "true"},
        published=(13.76, 58),
    ),
    Arm(
        name="both",
        title="auto compaction and optimized write",
        properties={AUTO_COMPACT: "true", OPTIMIZE_WRITE: "true"},
        published=(12.77, 14),
    ),
    Arm(name="ours", title="this lakehouse, default policy of a silver table", policy=Compaction()),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}


@dataclass(slots=True)
class Stopwatch:
    """Adds up the seconds of blocks."""

    seconds: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Adds the seconds of the block."""
        began = time.monotonic()
        yield
        self.seconds += time.monotonic() - began


def gathered(arm: Arm, rows: "DataFrame") -> "DataFrame":
    """The rows of a batch; for our policies, in as many tasks as after a shuffle.

    Every MERGE of this lakehouse shuffles its rows by key first (`merge_rows.newest_per_key`).
    """
    return (
        rows
        if arm.policy is None
        else rows.coalesce(int(rows.sparkSession.conf.get(SHUFFLE_PARTITIONS) or 1))
    )


def narrowed(
    rows: "DataFrame", size_bytes: float, there: Snapshot | None
) -> tuple["DataFrame", tuple[str, ...]]:
    """The rows and conditions on their keys, as our `Merge` adds them for small batches."""
    return (
        with_key_range(rows, ("id",))
        if there is not None and are_few(round(size_bytes), there)
        else (rows, ())
    )


@contextmanager
def writing_session(
    lake: Lake, spark: "SparkSession", arm: Arm, table: Table, rows: int, decision: Stopwatch
) -> Iterator[Snapshot | None]:
    """The session for a write of `rows` rows; for our policies with the settings of our own writes.

    Gives the snapshot of the table, for our policies only.
    """
    if arm.policy is None:
        yield None
        return
    with decision.running():
        facts = lake.facts(table.key)
        apply_properties(TableSession(lake=lake, spark=spark, table=table), facts)
        properties = {} if facts is None else facts.snapshot.properties
        known, size_bytes = (0, 0) if facts is None else merged_into(facts.snapshot)
        confs = {
            TRANSACTION_APP: ingest_app_id(table.key),
            TRANSACTION_VERSION: str(now_ms()),
        }
        if OPTIMIZE_WRITE not in properties:
            confs[SHUFFLED_BEFORE_WRITE] = "true"
        confs |= confs_to_read([(known, size_bytes), (rows, 0)])
    with session_confs(spark, confs):
        yield None if facts is None else facts.snapshot


def keep_files_few(
    lake: Lake,
    spark: "SparkSession",
    arm: Arm,
    table: Table,
    number: int,
    decision: Stopwatch,
) -> float:
    """The seconds of upkeep after iteration `number`; `decision` measures our decision separately."""
    upkeep = Stopwatch()
    if arm.policy is not None:
        with decision.running():
            due = is_due(lake, table)
        if due:
            with upkeep.running():
                compact(lake, spark, table)
    elif arm.optimize_every and number % arm.optimize_every == 0:
        with upkeep.running():
            spark.sql(optimize(lake.settings.table_uri(table.key), None))
    return upkeep.seconds


def is_due(lake: Lake, table: Table) -> bool:
    """Whether the sensor compacts the table now. A batch stands for an hour: no cooldown applies."""
    facts, policy = lake.facts(table.key), table.compaction_policy
    plan = plan_table(table, facts.snapshot, facts.history, now_ms=now_ms())
    [decision] = decide_fleet(
        [CompactionCandidate(state=state_of(facts.snapshot, plan), policy=policy)],
        bounds=Bounds(),
        now_ms=now_ms(),
    )
    return decision.request
