"""Random statements of a session that holds no guard, beside compactions of the same table; a model knows each row.

Whoever loses a race tries again. `ROUNDS=200 SEED=7 python -m pytest lakehouse_tests/long/test_foreign_writers.py` plays more.
"""

import os
import time
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.base.errors import Transient
from lakehouse.compact.run import compact
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.spark.errors import is_conflict
from lakehouse_tests.support.clients import Thrown, new_session

ROUNDS, SEED = int(os.environ.get("ROUNDS", "30")), int(os.environ.get("SEED", "0"))
PARTITIONS = 4
TABLE = Table(
    key="bronze/t",
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(min_small_files=2),
)


class Writer:
    """The foreign session's statements, and the rows that the table has after them."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.random = name, Random(seed)
        self.rows = dict[int, int]()
        self.next_id = 0

    def draw(self) -> tuple[str, dict[int, int]]:
        """A statement, and the rows after it."""
        first, count = self.next_id, self.random.randint(4, 20)
        part, rest = self.random.randrange(PARTITIONS), self.random.randrange(5)
        chosen = [id_ for id_ in self.rows if id_ % PARTITIONS == part and id_ % 5 == rest]
        where = f"WHERE part = {part} AND id % 5 = {rest}"
        match self.random.choice(["append", "append", "update", "delete", "merge"]):
            case "update":
                after = self.rows | {id_: self.rows[id_] + 1 for id_ in chosen}
                return f"UPDATE {self.name} SET value = value + 1 {where}", after
            case "delete":
                after = {id_: value for id_, value in self.rows.items() if id_ not in chosen}
                return f"DELETE FROM {self.name} {where}", after
            case "merge":
                first, value = self.random.randrange(self.next_id), self.random.randint(100, 999)
                matched = (
                    "t.id = s.id AND t.part = s.part WHEN MATCHED THEN UPDATE SET value = s.value"
                )
                source = self._source(first, count, value)
                statement = f"MERGE INTO {self.name} t USING ({source}) s ON {matched} WHEN NOT MATCHED THEN INSERT *"
            case _:
                value = 0
                statement = f"INSERT INTO {self.name} {self._source(first, count, value)}"
        self.next_id = max(self.next_id, first + count)
        return statement, self.rows | dict.fromkeys(range(first, first + count), value)

    def _source(self, first: int, count: int, value: int) -> str:
        columns = f"id, INT(id % {PARTITIONS}) AS part, {value}L AS value"
        return f"SELECT {columns} FROM range({first}, {first + count}, 1, 1)"

    def play(self, spark: SparkSession, rounds: int) -> None:
        """Sends statements, each until it succeeds."""
        for _ in range(rounds):
            statement, after = self.draw()
            while not self._succeeds(spark, statement):
                pass
            self.rows = after
            time.sleep(self.random.uniform(0, 0.6))  # a writer's own pace

    @staticmethod
    def _succeeds(spark: SparkSession, statement: str) -> bool:
        try:
            spark.sql(statement).collect()
        except Exception as error:
            if not is_conflict(error):
                raise
            return False
        return True


@pytest.mark.parametrize("made", ["PARTITIONED BY (part)", "with deletion vectors"])
def test_random_writes_lose_and_double_no_row(lake: Lake, spark: SparkSession, made: str) -> None:
    uri = lake.settings.table_uri(TABLE.key)
    writer, session = Writer(statements.path_table(uri), SEED), new_session(lake.settings)
    if made == "with deletion vectors":
        made = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"CREATE TABLE {writer.name} (id BIGINT, part INT, value BIGINT) USING delta {made}")
    writer.next_id = 1  # so that the first statement may be a merge
    writer.play(session, 3)
    playing = Thrown(lambda: writer.play(session, ROUNDS))
    compactions = 0
    while playing.is_alive():
        try:
            compactions += compact(lake, spark, TABLE).version_after is not None
        except Transient:  # it lost three times, which is counted by the breaker
            time.sleep(0.2)
    playing.join()
    session.stop()
    assert playing.error is None and compactions > 0
    found = spark.read.format("delta").load(uri).select("id", "value").collect()
    assert sorted(map(tuple, found)) == sorted(writer.rows.items())
