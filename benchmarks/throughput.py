"""Compares a whole compaction with a bare OPTIMIZE and deltalake's, on identical copies, in turn.

`python -m benchmarks.throughput [FILES] [PARTITIONS] [REPEATS] [ROWS] [WARM-UP] [LARGE FILES]
[LARGE ROWS]`, on its own lake and server. 1 partition is a table without; `ROWS` are per file.
Deletion vectors hide a tenth of the rows of each large file.
"""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet
from deltalake import DeltaTable

from benchmarks.figures import Figure, alone, middle, ratio
from benchmarks.own_lake import landed_table, own_lake
from lakehouse import Compaction
from lakehouse.compact.run import compact
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_FILE = Compaction(
    target_file_bytes=1024 * 1024 * 1024, min_small_files=2, scan_cores=1
)  # Delta's own default size

# A server serves for days. In its first statements it compiles, on the very core that a compaction
# uses and a bare OPTIMIZE does not.
_WARM_UP = 12
_OURS, _BARE, _DELTALAKE = _WAYS = ("ours", "bare OPTIMIZE", "deltalake optimize.compact")
_SPARK_WAYS = (_OURS, _BARE)  # deltalake compacts no files with deletion vectors


def main(
    files: int = 1000,
    partitions: int = 1,
    repeats: int = 21,
    rows_per_file: int = 200,
    warm_up: int = _WARM_UP,
    large_files: int = 32,
    large_rows: int = 100_000,
) -> list[Figure]:
    """Seconds of our compaction, a bare OPTIMIZE and deltalake's, and their ratios."""
    with own_lake() as (lake, spark):
        uri = _make(lake, spark, "bronze/small", files, partitions, rows_per_file)
        small = [_round(lake, spark, uri, _WAYS, number) for number in range(warm_up + repeats)][
            -repeats:
        ]
        uri = _make(lake, spark, "bronze/large", large_files, 1, large_rows)
        spark.sql(
            f"ALTER TABLE {statements.path_table(uri)} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        spark.sql(f"DELETE FROM {statements.path_table(uri)} WHERE id % 10 = 0")  # noqa: S608  # a name of ours
        large = [
            _round(lake, spark, uri, _SPARK_WAYS, number) for number in range(warm_up + repeats)
        ][-repeats:]
    shape = f"{files:,} files of {rows_per_file:,} rows in {partitions} partition(s)"
    bare, compared = (
        "throughput over that of a bare OPTIMIZE",
        "its comparison of all rows, after the commit",
    )
    ours, by_deltalake = _of(small, _OURS), _of(small, _DELTALAKE)
    return [
        middle(f"a compaction of {shape}", ours, unit="s", row="P5", peers=_medians(small)),
        middle(compared, _of(small, "verify"), unit="s", row="P5"),
        ratio(bare, _of(small, _BARE), ours, row="P5", at_least=1.0),
        ratio(
            "throughput over that of deltalake, which compares no row", by_deltalake, ours, row="P5"
        ),
        middle(
            f"a compaction of {large_files:,} files of {large_rows:,} rows, a tenth of the rows hidden by deletion vectors",
            _of(large, _OURS),
            unit="s",
            row="P5",
            peers=_medians(large),
        ),
        middle(f"{compared}, with deletion vectors", _of(large, "verify"), unit="s", row="P5"),
        ratio(
            f"{bare}, with deletion vectors",
            _of(large, _BARE),
            _of(large, _OURS),
            row="P5",
            at_least=1.0,
        ),
    ]


def _of(rounds: Sequence[Mapping[str, float]], way: str) -> list[float]:
    return [each[way] for each in rounds]


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {way: median(_of(rounds, way)) for way in _WAYS if way in rounds[0] and way != _OURS}


def _make(
    lake: Lake, spark: "SparkSession", key: str, files: int, partitions: int, rows_per_file: int
) -> str:
    """Writes small files in one commit; returns the address of the table."""
    uri = lake.settings.table_uri(key)
    for number in range(files):
        ids = numpy.arange(number * rows_per_file, (number + 1) * rows_per_file)
        columns = {
            "id": ids,
            "text": [f"text {id_ % 1000}" for id_ in ids],
            "value": ids * 1.5,
            "at": pyarrow.array(ids * 1_000_000, pyarrow.timestamp("us", tz="UTC")),
        }
        place = Path(uri, f"part={number % partitions}") if partitions > 1 else Path(uri)
        place.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), place / f"{number:06}.snappy.parquet")
    partitioned = " PARTITIONED BY (part INT)" if partitions > 1 else ""
    spark.sql(f"CONVERT TO DELTA parquet.{statements.quote(uri)}{partitioned}")
    return uri


def _round(
    lake: Lake, spark: "SparkSession", base: str, ways: Sequence[str], number: int
) -> dict[str, float]:
    """Seconds of each way on a copy of the table at `base`; the first one alternates."""
    seconds: dict[str, float] = {}
    first = number % len(ways)
    for way in (*ways[first:], *ways[:first]):
        uri = f"{base}_{way.split()[0]}_{number}"
        key = f"bronze/{Path(uri).name}"
        shutil.copytree(base, uri)
        spark.read.format("delta").load(uri).limit(
            1
        ).collect()  # both that use Spark find the table's newest version in memory
        started = time.monotonic()
        if way == _BARE:
            spark.sql(f"OPTIMIZE {statements.path_table(uri)}")
        elif way == _DELTALAKE:
            DeltaTable(uri).optimize.compact()
        else:
            outcome = compact(lake, spark, landed_table(key, compaction=ONE_FILE))
            seconds["verify"] = outcome.seconds_verify
        seconds[way] = time.monotonic() - started
        print(
            f"  {way} {number}: {seconds[way]:.2f} s, {lake.facts(key).snapshot.file_count} file(s) left",
            flush=True,
        )
        shutil.rmtree(uri)
    return seconds


if __name__ == "__main__":
    sys.exit(alone(main))
