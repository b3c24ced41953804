"""Sessions that know no guard write two tables at random while both are compacted again and again; every row is held against a model.

Each table has one foreign session, so whatever that one loses, it loses to a compaction. A statement that lost is sent again, as any
writer would do; the model is changed once the statement has succeeded.
"""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.base.errors import Transient
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.compact.run import compact
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.spark.errors import is_conflict
from lakehouse.spark.session import connect
from lakehouse_tests.support.clients import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
PARTITIONED = "bronze/partitioned"
FLAT = "bronze/flat"
type_of_model = dict[int, int]


@dataclass(slots=True, kw_only=True)
class Report:
    """What happened: of the foreign statements, of the compactions, and whether the rows are those of the model."""

    statements: int = 0
    statements_lost: int = 0
    compactions: int = 0
    compactions_given_up: int = 0
    conflicts: int = 0
    wasted_bytes: int = 0
    wasted_seconds: float = 0.0
    rewritten_bytes: int = 0
    rows_verified: int = 0
    unverified: int = 0
    rows_differing: int = 0
    seconds: float = 0.0

    def add(self, outcome: CompactionOutcome) -> None:
        """Counts one compaction."""
        self.conflicts += outcome.conflicts
        self.wasted_bytes += outcome.wasted_bytes
        self.wasted_seconds += outcome.wasted_seconds
        if outcome.version_after is not None:
            self.compactions += 1
            self.rewritten_bytes += outcome.bytes_removed
            self.rows_verified += outcome.rows_verified or 0
            self.unverified += outcome.rows_verified is None


@dataclass(slots=True, kw_only=True)
class Writer:
    """One foreign session's work on one table, drawn from a seed, and what the table must hold."""

    key: str
    uri: str
    chance: random.Random
    pause_seconds: float
    model: type_of_model = field(default_factory=dict)
    next_id: int = 0
    statements: int = 0
    lost: int = 0

    def play(self, spark: "SparkSession", rounds: int) -> None:
        """`rounds` statements, each until it succeeds."""
        for _ in range(rounds):
            statement, effect = self.chance.choice(
                (self._append, self._append, self._update, self._delete, self._merge)
            )()
            while not self._succeeds(spark, statement):
                self.lost += 1
            effect()
            self.statements += 1
            time.sleep(self.chance.uniform(0, 2 * self.pause_seconds))  # a writer's own pace

    def make(self, spark: "SparkSession") -> None:
        """The table with its first rows; deletion vectors where it has no partitions."""
        partitioned = (
            "PARTITIONED BY (part)"
            if self.key == PARTITIONED
            else "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        spark.sql(
            f"CREATE TABLE {statements.path_table(self.uri)} (id BIGINT, part INT, value BIGINT) USING delta {partitioned}"
        )
        for _ in range(3):
            statement, effect = self._append()
            spark.sql(statement)
            effect()

    def _succeeds(self, spark: "SparkSession", statement: str) -> bool:
        try:
            spark.sql(statement)
        except Exception as error:
            if not is_conflict(error):
                raise
            return False
        return True

    def _append(self) -> tuple[str, Callable[[], None]]:
        first, count = self.next_id, self.chance.randint(4, 20)
        self.next_id += count

        def effect() -> None:
            self.model.update(dict.fromkeys(range(first, first + count), 0))

        return (
            f"INSERT INTO {statements.path_table(self.uri)} {self._rows(first, count, 0)}",
            effect,
        )

    def _update(self) -> tuple[str, Callable[[], None]]:
        part, rest = self.chance.randrange(PARTITIONS), self.chance.randrange(5)

        def effect() -> None:
            self.model.update(
                {
                    id_: value + 1
                    for id_, value in self.model.items()
                    if id_ % PARTITIONS == part and id_ % 5 == rest
                }
            )

        return (
            f"UPDATE {statements.path_table(self.uri)} SET value = value + 1 WHERE part = {part} AND id % 5 = {rest}",
            effect,
        )

    def _delete(self) -> tuple[str, Callable[[], None]]:
        part, rest = self.chance.randrange(PARTITIONS), self.chance.randrange(7)

        def effect() -> None:
            for id_ in [id_ for id_ in self.model if id_ % PARTITIONS == part and id_ % 7 == rest]:
                del self.model[id_]

        return (
            f"DELETE FROM {statements.path_table(self.uri)} WHERE part = {part} AND id % 7 = {rest}",
            effect,
        )

    def _merge(self) -> tuple[str, Callable[[], None]]:
        first, count, value = (
            self.chance.randrange(self.next_id),
            self.chance.randint(4, 20),
            self.chance.randint(100, 999),
        )
        self.next_id = max(self.next_id, first + count)

        def effect() -> None:
            self.model.update(dict.fromkeys(range(first, first + count), value))

        return (
            f"MERGE INTO {statements.path_table(self.uri)} AS target USING ({self._rows(first, count, value)}) AS source "
            "ON target.id = source.id AND target.part = source.part "
            "WHEN MATCHED THEN UPDATE SET value = source.value WHEN NOT MATCHED THEN INSERT *"
        ), effect

    def _rows(self, first: int, count: int, value: int) -> str:
        return f"SELECT id, INT(id % {PARTITIONS}) AS part, {value}L AS value FROM range({first}, {first + count}, 1, 1)"


def play(
    lake: Lake,
    *,
    rounds: int,
    seed: int,
    pause_seconds: float = 0.3,
    rest_seconds: float = 0.25,
    tell: Callable[[str], None] = lambda line: None,
) -> Report:
    """`rounds` foreign statements on two tables, half on each, beside compactions of both, until all have succeeded.

    `pause_seconds` is the mean pause of a writer between two statements, `rest_seconds` that of the compactions.
    """
    chance = random.Random(seed)
    spark, report, started = connect(lake.settings), Report(), time.monotonic()
    writers = [
        Writer(
            key=key,
            uri=lake.settings.table_uri(key),
            chance=random.Random(f"{seed} {key}"),
            pause_seconds=pause_seconds,
        )
        for key in (PARTITIONED, FLAT)
    ]
    for writer in writers:
        writer.make(spark)
    with ThreadPoolExecutor(len(writers)) as pool:
        playing = [pool.submit(_alone, lake, writer, rounds // len(writers)) for writer in writers]
        while not all(each.done() for each in playing):
            for writer in writers:
                _compact(lake, spark, writer.key, report)
            told = ", ".join(
                f"{writer.key} {writer.statements} statements, {writer.lost} lost"
                for writer in writers
            )
            time.sleep(chance.uniform(0, 2 * rest_seconds))
            tell(
                f"{time.monotonic() - started:.0f} s: {told}; {report.compactions} compactions, {report.conflicts} conflicts"
            )
        for each in playing:
            each.result()
    for writer in writers:
        _compact(lake, spark, writer.key, report)
        report.statements += writer.statements
        report.statements_lost += writer.lost
        report.rows_differing += _differing(spark, writer)
    report.seconds = time.monotonic() - started
    return report


def _alone(lake: Lake, writer: Writer, rounds: int) -> None:
    session = new_session(lake.settings)
    try:
        writer.play(session, rounds)
    finally:
        session.stop()


def _compact(lake: Lake, spark: "SparkSession", key: str, report: Report) -> None:
    table = Table(
        key=key,
        source=Landing(prefix=f"landing/{key}/", format="json", schema="id BIGINT"),
        write=Append(),
        compaction=Compaction(min_small_files=2),
    )
    try:
        report.add(compact(lake, spark, table))
    except Transient:
        report.compactions_given_up += 1


def _differing(spark: "SparkSession", writer: Writer) -> int:
    """Rows that are not in both the table and its model; a row that is there twice counts."""
    found = [
        (row["id"], row["value"])
        for row in spark.read.format("delta").load(writer.uri).select("id", "value").collect()
    ]
    return len(set(found) ^ set(writer.model.items())) + len(found) - len(set(found))
