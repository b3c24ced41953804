"""Measures how much slower a table reads during many small writes, with and without upkeep.

`python -m benchmarks.read_slowdown [WRITES] [SECONDS]` uses its own Spark Connect server. Two
tables get the same small appends; one is compacted at its policy's threshold. Now and then, each is
scanned in turn with a copy of its rows that has one file per core.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from math import isnan, nan
from statistics import median

from benchmarks.figures import Figure, alone, timed
from benchmarks.own_lake import landed_table, own_lake
from lakehouse import Table
from lakehouse.compact.run import compact, plan
from lakehouse.lake.lake import Lake

_KEPT, _LEFT = landed_table("bronze/kept"), landed_table("bronze/left")
_CORES = os.cpu_count() or 1
_FILES, _LOOK_EVERY = 4, 10
_MOST_PAIRS = 40


def main(
    writes: int = 60,
    budget_seconds: int = 200,
    rows_per_write: int = 40_000,
    look_seconds: int = 15,
) -> list[Figure]:
    """The mean slowdown of both tables."""
    found: dict[str, list[float]] = {_KEPT.key: [], _LEFT.key: []}
    with own_lake() as (lake, spark):
        began = time.monotonic()
        for number in range(1, writes + 1):
            for table in (_KEPT, _LEFT):
                ids = spark.range(number * rows_per_write, (number + 1) * rows_per_write, 1, _FILES)
                rows = ids.selectExpr("id", "sha2(string(id), 256) AS text")
                rows.write.format("delta").mode("append").save(lake.settings.table_uri(table.key))
            if _is_due(lake):
                compact(lake, spark, _KEPT)
            if number % min(_LOOK_EVERY, writes) == 0:
                for table in (_KEPT, _LEFT):
                    found[table.key].append(_slowdown(spark, lake, table, look_seconds))
                print(
                    f"after {number} writes: "
                    + ", ".join(f"{key} {each[-1]:+.1%}" for key, each in found.items()),
                    flush=True,
                )
            if time.monotonic() - began > budget_seconds:
                break
    kept, left = ([value * 100 for value in each if not isnan(value)] for each in found.values())
    beside = {"without upkeep": statistics.mean(left)} if left else {}
    name = f"how much slower than a file per core, mean of {len(kept)} looks in {number} writes"
    return [
        Figure(
            name=name,
            value=statistics.mean(kept or [nan]),
            unit="%",
            row="P7",
            at_most=7,
            samples=kept,
            peers=beside,
        )
    ]


def _is_due(lake: Lake) -> bool:
    planned = plan(lake, _KEPT)
    return planned is not None and planned.files_removed >= _KEPT.compaction_policy.min_small_files


def _slowdown(spark, lake: Lake, table: Table, budget_seconds: int) -> float:
    """How much longer a scan takes than one of a file per core; -0.02 is 2 % less."""
    uri, best = lake.settings.table_uri(table.key), f"{lake.settings.root}/best"
    spark.read.format("delta").load(uri).repartition(_CORES).write.format("delta").mode(
        "overwrite"
    ).save(best)

    def scan(where: str):
        write = spark.read.format("delta").load(where).write.format("noop").mode("overwrite")
        return lambda: timed(write.save)[0]

    ours, ideal = take_pairs(scan(uri), scan(best), budget_seconds=budget_seconds)
    return median(ours) / median(ideal) - 1 if ours else float("nan")


def take_pairs(
    scan_before: Callable[[], float], scan_after: Callable[[], float], *, budget_seconds: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Durations of scans of two tables, in turn. The first scan of each is not measured."""
    deadline = time.monotonic() + budget_seconds
    last_pair_seconds = scan_before() + scan_after()
    before: list[float] = []
    after: list[float] = []
    while len(before) < _MOST_PAIRS and time.monotonic() + last_pair_seconds <= deadline:
        if len(before) % 2 == 0:  # the order alternates, because the first scan has colder caches
            before.append(scan_before())
            after.append(scan_after())
        else:
            after.append(scan_after())
            before.append(scan_before())
        last_pair_seconds = before[-1] + after[-1]
    return tuple(before), tuple(after)


if __name__ == "__main__":
    sys.exit(alone(main))
