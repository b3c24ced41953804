"""The seconds of a compaction by its files, bytes and values, and of a file's opening by a reader: the defaults of the estimate.

Each table of a grid is written, read whole (the median of five reads), compacted and read again. Least squares of the relative error over
all compactions give the rates. `python -m benchmarks.rates [REPEATS] [CASES]` starts a Spark Connect server of its own.
"""

import sys
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import Figure, alone, middle, timed
from benchmarks.own_lake import lake_below, landed_table, own_lake
from lakehouse import Append, Compaction
from lakehouse.core.costs.estimate import (
    DEFAULT_RATES,
    SECONDS_PER_OPENING,
    SECONDS_PER_STORED_BYTE,
    SECONDS_PER_VALUE,
)
from lakehouse.core.delta.commits import LoggedCompaction
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = {
    "texts": ("sha2(string(id), 256) AS text", "rand(7) AS number"),
    "long texts": tuple(f"sha2(concat(id, '{place}'), 512) AS text{place}" for place in range(8)),
    "numbers": tuple(f"rand({place}) AS number{place}" for place in range(30)),
    "categories": tuple(f"concat('v', id % {place + 3}) AS category{place}" for place in range(10)),
}
# Partitions, files in each, rows of each file, and what is in them.
GRID = (
    (1, 50, 20, "texts"),
    (1, 400, 20, "texts"),
    (1, 1_000, 20, "texts"),
    (50, 2, 20, "texts"),
    (200, 2, 20, "texts"),
    (50, 8, 20, "texts"),
    (1, 20, 60_000, "texts"),
    (1, 100, 20_000, "texts"),
    (1, 100, 2_000, "long texts"),
    (1, 100, 10_000, "numbers"),
    (1, 20, 50_000, "categories"),
)
_READS = 5
_POLICY = Compaction(min_small_files=2, verify="rows")
_TABLE = landed_table(
    "bronze/grid",
    "id BIGINT, part BIGINT",
    write=Append(partition_by=("part",)),
    compaction=_POLICY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A compaction as the log tells it, the values that it read, and the milliseconds that a read of the table took for each file more."""

    run: LoggedCompaction
    values: int
    opening_ms: float


def main(repeats: int = 2, cases: int = len(GRID)) -> list[Figure]:
    """The fitted rates beside the defaults."""
    found = list[_Case]()
    with own_lake(LAKEHOUSE_SPARK_MEMORY="3g") as (lake, spark):
        for number in range(repeats + 1):  # the first is for what is cold
            for case in GRID[:cases] if number else GRID[:1]:
                measured = _measured(lake_below(lake, f"{number}-{GRID.index(case)}"), spark, *case)
                found += [measured] if number else []
    return [*_rates(found), _opening(found)]


def _rates(found: list[_Case]) -> list[Figure]:
    features = [
        (
            1,
            each.run.files_added,
            each.run.files_removed,
            each.run.bytes_removed / 1e6,
            each.values / 1e6,
        )
        for each in found
    ]
    shares = np.array(
        [
            [value / (each.run.seconds or 0.0) for value in row]
            for row, each in zip(features, found, strict=True)
        ]
    )
    fitted = np.linalg.lstsq(shares, np.ones(len(found)), rcond=None)[0]
    named = {
        "before the first file": (1, "s", DEFAULT_RATES.seconds_fixed),
        "for each file added": (1e3, "ms", DEFAULT_RATES.seconds_per_file_added),
        "for each file removed": (1e3, "ms", DEFAULT_RATES.seconds_per_file),
        "for each MB removed": (1e3, "ms", SECONDS_PER_STORED_BYTE * 1e6),
        "for each million values removed": (1e3, "ms", SECONDS_PER_VALUE * 1e6),
    }
    return [
        Figure(
            name=f"a compaction takes {name}",
            value=float(rate) * scale,
            unit=unit,
            row="P8",
            peers={"the default": default * scale},
        )
        for rate, (name, (scale, unit, default)) in zip(fitted, named.items(), strict=True)
    ]


def _opening(found: list[_Case]) -> Figure:
    name, default = (
        "a read takes for each file that it opens",
        {"the default": SECONDS_PER_OPENING * 1e3},
    )
    return replace(
        middle(name, [each.opening_ms for each in found], unit="ms", row="P8"), peers=default
    )


def _measured(
    lake: Lake, spark: "SparkSession", parts: int, files: int, rows: int, kind: str
) -> _Case:
    uri = lake.settings.table_uri(_TABLE.key)
    # Of one partition each task writes a file; of many each statement writes one to each of them.
    for _ in range(files if parts > 1 else 1):
        frame = spark.range(
            0, parts * rows * (1 if parts > 1 else files), 1, 4 if parts > 1 else files
        )
        frame = frame.selectExpr("id", f"id % {parts} AS part", *_COLUMNS[kind])
        frame = frame.repartition(4, "part") if parts > 1 else frame
        frame.write.format("delta").partitionBy("part").mode("append").save(uri)
    before, slow = lake.facts(_TABLE.key), _read(spark, uri)
    compact(lake, spark, _TABLE)
    after, quick = lake.facts(_TABLE.key), _read(spark, uri)
    run = after.history.compactions()[-1]
    values = (before.snapshot.row_count or 0) * (
        len(before.snapshot.columns) - 1
    )  # none of the partition's
    opening_ms = (slow - quick) / (before.snapshot.file_count - after.snapshot.file_count) * 1e3
    print(
        f"{run.files_removed} files of {parts} partitions, {run.bytes_removed / 1e6:.2f} MB of {values:,} values, into {run.files_added}: "
        f"{run.seconds} s",
        end="",
    )
    print(f"; a read {slow:.3f} s before and {quick:.3f} s after", flush=True)
    return _Case(run=run, values=values, opening_ms=opening_ms)


def _read(spark: "SparkSession", uri: str) -> float:
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.read.format("delta").load(uri)
    scan = frame.agg(F.count("*"), F.sum(F.xxhash64(*frame.columns).cast("decimal(38,0)")))
    return median(timed(scan.collect)[0] for _ in range(_READS))


if __name__ == "__main__":
    sys.exit(alone(main))
