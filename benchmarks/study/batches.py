"""The study's input: batches drawn from a seed, and the statements that write and query them.

Columns, merge, query and batch sizes follow the published study. The study does not say which rows
are updated, how many tasks write a batch, or how many files a merge writes. This module decides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from lakehouse.spark.statements import literal, path_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 7
UPDATED_SHARE = 0.1
SIZE_VARIES_BY = 0.1
# In the published study each merge adds 15 files. A batch of 16 tasks does the same, because the
# first one and a half tasks contain only updates.
TASKS = 16
# With them a merge writes the changed rows alone, and the file count grows by the files of each
# batch, as it does in the study. Without them, open-source Delta shuffles all rows of each file
# that it touches, and the count would stay where it is.
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "false"}

_VIEW = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows with ids from `start` to before `end`; those below the previous `end` are updates."""

    start: int
    end: int
    seed: int

    @property
    def row_count(self) -> int:
        """The number of its rows."""
        return self.end - self.start


def draw_batches(rows: int, count: int, seed: int = SEED) -> list[Batch]:
    """Batches of about `rows` rows; a tenth of each but the first updates the newest rows."""
    random, batches, newest = Random(seed), list[Batch](), 0
    for number in range(count):
        size = max(1, round(rows * random.uniform(1 - SIZE_VARIES_BY, 1 + SIZE_VARIES_BY)))
        start = max(0, newest - round(size * UPDATED_SHARE))
        newest = start + size
        batches.append(Batch(start=start, end=newest, seed=seed * 1_000_000 + number * 10))
    return batches


def frame_of(spark: "SparkSession", batch: Batch, *, tasks: int = TASKS) -> "DataFrame":
    """The rows of the batch; always the same for the same number of tasks."""
    seeds = iter(range(batch.seed, batch.seed + 8))

    def rand() -> str:
        return f"rand({next(seeds)})"

    return spark.range(batch.start, batch.end, 1, tasks).selectExpr(
        "id",
        "concat('category_', id % 10) AS category",
        *(
            f"round({rand()} * {rand()} * {top}, 2) AS value{place}"
            for place, top in enumerate((1_000, 10_000, 100_000), start=1)
        ),
        f"date_add(DATE'2022-01-01', int(round({rand()} * 1000))) AS date1",
        f"date_add(DATE'2020-01-01', int(round({rand()} * 2000))) AS date2",
        "id % 3 != 0 AS is_cancelled",
    )


def write_batch(
    spark: "SparkSession",
    uri: str,
    rows: "DataFrame",
    properties: dict[str, str],
    *,
    is_first: bool,
    within: Sequence[str] = (),
) -> None:
    """One commit: the first batch creates the table, every other one is merged into it by id.

    `within` are conditions on the table's rows that hold for all rows that the batch can match.
    """
    rows.createOrReplaceTempView(_VIEW)
    if is_first:
        pairs = ", ".join(
            f"{literal(name)} = {literal(value)}" for name, value in sorted(properties.items())
        )
        spark.sql(
            f"CREATE TABLE {path_table(uri)} USING delta TBLPROPERTIES ({pairs}) AS SELECT * FROM {_VIEW}"
        )
    else:
        bound = "".join(f" AND target.{each}" for each in within)
        spark.sql(
            f"MERGE INTO {path_table(uri)} AS target USING {_VIEW} AS source ON target.id = source.id{bound} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def query(spark: "SparkSession", uri: str) -> Sequence[object]:
    """Aggregates of the whole table by category; no file can be skipped."""
    columns = "sum(value1), avg(value2), sum(value3), max(date1), max(date2), category"
    return spark.sql(f"SELECT {columns} FROM {path_table(uri)} GROUP BY ALL").collect()
