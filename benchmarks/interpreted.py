"""Plans that are interpreted against plans that are compiled, in turn: batches of 1, 7 and 20 days of flights from landing to gold, and
MERGEs of 1,000 rows into tables of 5,000 to 500,000; and whole writes of a `Merge`, by the range of keys or not.

`python -m benchmarks.interpreted [ROUNDS] [ROUNDS BEFORE] [TABLES] [STATEMENTS A ROUND]`. Two lakes on one server land the same files.
The write of a table chooses by the rows that it reads (`engine.spark.session_settings.confs_for`); here one lake always interprets and
the other never does. The rounds before warm the server up. The MERGEs are those of the study, their rows made by 16 tasks, or brought
into one as a shuffle by key does it; by the range of their keys or not, and with keys anywhere, too. The whole writes read what is new in
their input, and look for rows that are no news, as every `Merge` does.
"""

import sys
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, alone, ratio, timed
from benchmarks.own_lake import lake_below, landed_table, own_lake
from benchmarks.pipeline_overhead import START, TABLES
from benchmarks.study.batches import PROPERTIES, Batch, frame_of, write_batch
from lakehouse import Merge, Table
from lakehouse.engine.ingest import work_size
from lakehouse.engine.ingest.commit_rows import write_frame
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import session_settings
from lakehouse.engine.spark.key_range import with_key_range
from lakehouse.engine.spark.session_settings import (
    INTERPRETED,
    SHUFFLED_BEFORE_WRITE,
    session_confs,
)
from lakehouse.replay.play import play

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = (1, 7, 20)
ROWS = (5_000, 200_000, 500_000)
WRITTEN = ((100_000, 2_000_000), (1_000, 200_000), (1_000, 20_000))  # the last is for a short run
_BY_RANGE, _ANYWHERE = ", by the range of keys", "interpreted, one task, keys anywhere"
# Of a MERGE: the settings, whether its source has one task, whether the range of its keys is a condition, and whether they lie anywhere.
_MERGES = {
    "compiled, 16 tasks": ({}, False, False, False),
    "compiled, one task": ({}, True, False, False),
    "interpreted, 16 tasks": (INTERPRETED, False, False, False),
    "interpreted, one task": (INTERPRETED, True, False, False),
    f"interpreted, one task{_BY_RANGE}": (INTERPRETED, True, True, False),
    _ANYWHERE: (INTERPRETED, True, False, True),
    f"{_ANYWHERE}{_BY_RANGE}": (INTERPRETED, True, True, True),
}
# Coprime to the sizes: times that and modulo the size, a run of ids is spread over all of them.
_SPREAD = 7_919
# Rows and bytes up to which a statement is interpreted: none at all, or all there are.
_BOUNDS = {"compiled": -1, "interpreted": 1 << 60}
_WRITE, _WAYS = Merge(keys=("id",), order_by=("date1",)), ("by_range", "whole")
type_of_seconds = dict[str, list[float]]


def main(
    rounds: int = 3, warm_up: int = 1, tables: int = len(TABLES), statements: int = 2
) -> list[Figure]:
    """For each size of a batch and each table: the seconds of an interpreted write over those of a compiled one."""
    counts = (statements * rounds, statements * warm_up)
    with own_lake(LAKEHOUSE_SPARK_MEMORY="2g", LAKEHOUSE_TABLES="lakehouse.tables") as (
        lake,
        spark,
    ):
        lakes = {way: lake_below(lake, way) for way in _BOUNDS}
        figures = [
            figure
            for days in DAYS[:rounds]
            for figure in _size(lakes, spark, days, rounds, warm_up, TABLES[:tables])
        ]
        figures += [
            figure
            for rows in ROWS[:rounds]
            for figure in _merges(spark, f"{lake.settings.root}/merged/{rows}", rows, *counts)
        ]
        figures += [
            _written(lake_below(lake, "written"), spark, batch, rows, *counts)
            for batch, rows in WRITTEN[-rounds:]
        ]
    return figures


def _size(
    lakes: dict[str, Lake],
    spark: "SparkSession",
    days: int,
    rounds: int,
    warm_up: int,
    tables: Sequence[Table],
) -> list[Figure]:
    seconds = {way: dict[str, list[float]]() for way in lakes}
    for number in range(warm_up + rounds):
        for way in sorted(lakes, reverse=bool(number % 2)):
            _batch(lakes[way], spark, way, days, tables, seconds[way])
    keys = [key for key, took in seconds["compiled"].items() if min(took) > 0]
    total = {
        way: [sum(each) for each in zip(*its.values(), strict=True)][warm_up:]
        for way, its in seconds.items()
    }
    name = f"a batch of {days} days, interpreted over compiled"
    return [
        ratio(f"{name}: all tables", total["interpreted"], total["compiled"], row="P10"),
        *(
            ratio(
                f"{name}: {key}",
                seconds["interpreted"][key][warm_up:],
                seconds["compiled"][key][warm_up:],
                row="P10",
            )
            for key in keys
        ),
    ]


def _merges(
    spark: "SparkSession", folder: str, rows: int, rounds: int, warm_up: int
) -> list[Figure]:
    """For each way of a MERGE: its seconds over those of one that is compiled and has 16 tasks, into tables of so many rows."""
    seconds = {way: list[float]() for way in _MERGES}
    for way in _MERGES:
        write_batch(
            spark,
            f"{folder}/{way}",
            frame_of(spark, Batch(start=0, end=rows, seed=1)),
            PROPERTIES,
            is_first=True,
        )
    for number in range(warm_up + rounds):
        start = rows - 100 + 900 * number  # a tenth of the rows are updates
        for way in sorted(_MERGES, reverse=bool(number % 2)):
            confs, is_one_task, by_range, anywhere = _MERGES[way]
            source = frame_of(spark, Batch(start=start, end=start + 1_000, seed=100 + number * 10))
            source = source.withColumn("id", source["id"] * _SPREAD % rows) if anywhere else source
            gathered = source.coalesce(1) if is_one_task else source
            with session_confs(spark, {**confs, SHUFFLED_BEFORE_WRITE: "true"}):
                took, _ = timed(
                    partial(_merge, spark, f"{folder}/{way}", gathered, by_range=by_range)
                )
            seconds[way].append(took)
    first, *others = seconds
    print(
        f"  {rows:,} rows: "
        + "; ".join(f"{way} {median(took[warm_up:]):.2f} s" for way, took in seconds.items()),
        flush=True,
    )
    name = f"a MERGE of 1,000 rows into {rows:,}"
    beside = {
        way: _ANYWHERE if way.startswith(_ANYWHERE) else first for way in others if way != _ANYWHERE
    }
    return [
        ratio(
            f"{name}: {way} over {base}", seconds[way][warm_up:], seconds[base][warm_up:], row="P1"
        )
        for way, base in beside.items()
    ]


def _merge(spark: "SparkSession", uri: str, rows: "DataFrame", *, by_range: bool) -> None:
    rows, within = with_key_range(rows, ("id",)) if by_range else (rows, ())
    write_batch(spark, uri, rows, PROPERTIES, is_first=False, within=within)


def _written(
    lake: Lake, spark: "SparkSession", batch: int, rows: int, rounds: int, warm_up: int
) -> Figure:
    """The seconds of a `Merge` that looks for the range of its keys over those of one that does not."""
    bronze = landed_table(f"bronze/rows_{rows}", "id BIGINT, date1 DATE")
    uri, few = lake.settings.table_uri(bronze.key), work_size._KEPT_BYTES
    made = {
        "inputs": (bronze,),
        "transform": lambda **frames: frames[bronze.name],
        "write": _WRITE,
        "properties": PROPERTIES,
    }
    by_range, whole = (Table(key=f"silver/{way}_{rows}", **made) for way in _WAYS)
    seconds = {each.key: list[float]() for each in (by_range, whole)}
    for number in range(warm_up + rounds):
        end = rows + batch * 9 // 10 * number  # a tenth of the rows are updates
        new = Batch(start=end - batch if number else 0, end=end, seed=100 + number * 10)
        write_frame(
            frame_of(spark, new),
            uri,
            mode="append",
            properties={"delta.enableChangeDataFeed": "true"},
        )
        for each in (by_range, whole) if number % 2 else (whole, by_range):
            try:
                work_size._KEPT_BYTES = few if each is by_range else -1
                seconds[each.key].append(timed(partial(write_table, lake, spark, each))[0])
            finally:
                work_size._KEPT_BYTES = few
    print(
        f"  {batch:,} rows into {rows:,}: "
        + "; ".join(f"{key} {median(took[warm_up:]):.2f} s" for key, took in seconds.items()),
        flush=True,
    )
    name = (
        f"a `Merge` of {batch:,} rows into {rows:,}, by the range of keys over the same without it"
    )
    return ratio(name, *(took[warm_up:] for took in seconds.values()), row="P1")


def _batch(
    lake: Lake,
    spark: "SparkSession",
    way: str,
    days: int,
    tables: Sequence[Table],
    seconds: type_of_seconds,
) -> None:
    before = session_settings.INTERPRETED_ROWS, session_settings.INTERPRETED_BYTES
    session_settings.INTERPRETED_ROWS = session_settings.INTERPRETED_BYTES = _BOUNDS[way]
    try:
        play(lake.store, lake.settings.home, start=START, hours=24 * days)
        for table in tables:
            seconds.setdefault(table.key, []).append(
                timed(partial(write_table, lake, spark, table))[0]
            )
    finally:
        session_settings.INTERPRETED_ROWS, session_settings.INTERPRETED_BYTES = before
    print(f"  {days} days, {way}: {sum(each[-1] for each in seconds.values()):.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(alone(main))
