"""Phases of work and maintenance on one table: how much slower its reads get, and what writes, upkeep and reads cost together.

`python -m benchmarks.phases [BATCHES] [ROWS] [PHASES] [READS]` starts a Spark Connect server of its own. The shape is LST-Bench's:
work, maintenance, the same again. A batch appends rows in four files and deletes as many of the oldest, so that the table stays as large as
it is. One table gets no upkeep, one an OPTIMIZE at the end of each phase, as a nightly job would, and one is compacted when the sensor asks
for it. Reads come after every fourth batch and after the phase; each is held against one of a table that never changes.
"""

import sys
from collections import defaultdict
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.by_sensor import is_due
from benchmarks.figures import Figure, alone, timed
from benchmarks.own_lake import landed_table, own_lake
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES, _READ_EVERY = 4, 4
ARMS = ("none", "nightly", "ours")
_STILL = "bronze/still"


def main(batches: int = 16, rows: int = 5_000, phases: int = 4, reads: int = 3) -> list[Figure]:
    """The slow-down of the last phase's reads against the first one's, and the seconds of each arm, for `batches` a phase."""
    seconds, slowness = (
        defaultdict[str, float](float),
        {arm: defaultdict[int, list[float]](list) for arm in ARMS},
    )
    with own_lake() as (lake, spark):
        for key in (_STILL, *map(_key, ARMS)):
            _frame(spark, 0, rows * batches).coalesce(_FILES).write.format("delta").save(
                lake.settings.table_uri(key)
            )
        for number in range(phases * batches):
            phase, is_last = number // batches, number % batches == batches - 1
            for arm in ARMS[number % 3 :] + ARMS[: number % 3]:
                seconds[arm] += timed(
                    partial(_write, spark, lake, arm, number + batches, batches, rows)
                )[0]
                seconds[arm] += timed(partial(_maintain, spark, lake, arm, is_last))[0]
                if is_last or number % _READ_EVERY == _READ_EVERY - 1:
                    took = _reads(spark, lake, arm, reads)
                    seconds[arm], slowness[arm][phase] = (
                        seconds[arm] + took[0],
                        [*slowness[arm][phase], took[0] / took[1]],
                    )
            print(
                f"phase {phase + 1}, batch {number % batches + 1}: "
                + ", ".join(f"{arm} {seconds[arm]:.0f} s" for arm in ARMS),
                flush=True,
            )
    return _figures(seconds, slowness, phases, batches)


def _figures(
    seconds: dict[str, float],
    slowness: dict[str, defaultdict[int, list[float]]],
    phases: int,
    batches: int,
) -> list[Figure]:
    slower = {
        arm: (median(slowness[arm][phases - 1]) / median(slowness[arm][0]) - 1) * 100
        for arm in ARMS
    }
    within = {
        arm: median([each for phase in slowness[arm].values() for each in phase]) for arm in ARMS
    }
    return [
        _figure(
            f"reads of the last phase of {phases} with {batches} batches each slower than those of the first",
            slower,
            "%",
            at_most=7,
        ),
        _figure(
            "a read over one of a table that never changes, median of all phases", within, "times"
        ),
        _figure("writes, upkeep and reads of all phases", seconds, "s"),
    ]


def _figure(
    name: str, values: dict[str, float], unit: str, *, at_most: float | None = None
) -> Figure:
    peers = {"without upkeep": values["none"], "an OPTIMIZE after each phase": values["nightly"]}
    return Figure(
        name=f"{name}, with upkeep",
        value=values["ours"],
        unit=unit,
        row="P7",
        at_most=at_most,
        peers=peers,
    )


def _key(arm: str) -> str:
    return f"bronze/{arm}"


def _frame(spark: "SparkSession", first: int, end: int):
    return spark.range(first, end, 1, _FILES).selectExpr(
        "id", "id % 97 AS kind", "sha2(string(id), 256) AS text"
    )


def _write(
    spark: "SparkSession", lake: Lake, arm: str, number: int, batches: int, rows: int
) -> None:
    uri = lake.settings.table_uri(_key(arm))
    _frame(spark, number * rows, (number + 1) * rows).write.format("delta").mode("append").save(uri)
    first_kept_id = (number + 1 - batches) * rows
    spark.sql(f"DELETE FROM {statements.path_table(uri)} WHERE id < {first_kept_id}").collect()  # noqa: S608


def _maintain(spark: "SparkSession", lake: Lake, arm: str, is_night: bool) -> None:
    table = landed_table(_key(arm))
    if arm == "ours" and is_due(lake, table):
        compact(lake, spark, table)
    if arm == "nightly" and is_night:
        spark.sql(f"OPTIMIZE {statements.path_table(lake.settings.table_uri(table.key))}").collect()


def _reads(spark: "SparkSession", lake: Lake, arm: str, reads: int) -> tuple[float, float]:
    """Seconds of the arm's table and of the one that never changes, read in turn; the median of a few."""

    def read(key: str) -> None:
        frame = spark.read.format("delta").load(lake.settings.table_uri(key))
        frame.groupBy("kind").agg({"text": "max", "id": "count"}).collect()

    took = [
        (timed(partial(read, _key(arm)))[0], timed(partial(read, _STILL))[0]) for _ in range(reads)
    ]
    ours, still = zip(*took, strict=True)
    return median(ours), median(still)


if __name__ == "__main__":
    sys.exit(alone(main))
