"""A whole compaction (plan, OPTIMIZE, comparison of all rows) against a bare OPTIMIZE of an identical copy, turn and turn about.

`python -m benchmarks.throughput [files] [partitions] [repeats] [rows]`, on a lake and a server of its own; 1 partition is a table without,
`rows` are those of a file.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.sessions import connect
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_FILE = Compaction(target_file_bytes=1024 * 1024 * 1024, min_small_files=2, scan_cores=1)  # Delta's own default size

# A server serves for days. In its first statements it compiles, on the very core that a compaction uses and a bare OPTIMIZE does not.
_WARM_UP = 6


def main(files: int = 1000, partitions: int = 1, repeats: int = 11, rows_per_file: int = 200) -> int:
    """Prints the seconds of each run and the ratio of the medians; 1 if a bare OPTIMIZE was faster."""
    with tempfile.TemporaryDirectory() as home:
        settings = own_settings(Path(home))
        with server.supervised(settings):
            lake, spark = open_lake(settings), connect(settings)
            _make(spark, Path(settings.table_uri("bronze/base")), files, partitions, rows_per_file)
            rows = [_both(lake, spark, number) for number in range(_WARM_UP + repeats)][_WARM_UP:]
    ours, bare = median(whole for whole, *_ in rows), median(bare for *_, bare in rows)
    for whole, optimize, verify, alone in rows:
        print(f"compact {whole:6.2f} s (OPTIMIZE {optimize:.2f}, comparison {verify:.2f}); bare OPTIMIZE {alone:6.2f} s")
    shape = f"{files} files of {rows_per_file} rows in {partitions} partition(s)"
    print(f"{shape}: compact {ours:.2f} s, bare OPTIMIZE {bare:.2f} s, throughput {bare / ours:.2f}")
    return 0 if bare >= ours else 1


def _make(spark: "SparkSession", folder: Path, files: int, partitions: int, rows_per_file: int) -> None:
    """Small files as a writer of an hour leaves them, in one commit."""
    for number in range(files):
        ids = numpy.arange(number * rows_per_file, (number + 1) * rows_per_file)
        columns = {
            "id": ids,
            "text": [f"text {id_ % 1000}" for id_ in ids],
            "value": ids * 1.5,
            "at": pyarrow.array(ids * 1_000_000, pyarrow.timestamp("us", tz="UTC")),
        }
        place = folder / f"part={number % partitions}" if partitions > 1 else folder
        place.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), place / f"{number:06}.snappy.parquet")
    partitioned = " PARTITIONED BY (part INT)" if partitions > 1 else ""
    spark.sql(f"CONVERT TO DELTA parquet.{statements.quote(str(folder))}{partitioned}")


def _both(lake: Lake, spark: "SparkSession", number: int) -> tuple[float, float, float, float]:
    """Seconds of a compaction, of its two parts, and of a bare OPTIMIZE; which of both comes first alternates."""
    parts: dict[str, tuple[float, ...]] = {}
    for name in ("ours", "bare") if number % 2 else ("bare", "ours"):
        key = f"bronze/{name}{number}"
        uri = lake.settings.table_uri(key)
        shutil.copytree(lake.settings.table_uri("bronze/base"), uri)
        spark.read.format("delta").load(uri).limit(1).collect()  # both find the table's newest version in memory
        started = time.monotonic()
        if name == "bare":
            spark.sql(f"OPTIMIZE {statements.path_table(uri)}")
            parts[name] = (time.monotonic() - started,)
        else:
            source = Landing(prefix="landing/", format="json", schema="id BIGINT")
            outcome = compact(lake, spark, Table(key=key, source=source, write=Append(), compaction=ONE_FILE))
            parts[name] = (time.monotonic() - started, outcome.seconds_optimize, outcome.seconds_verify)
        facts = lake.facts(key)
        assert facts is not None
        print(f"  {name} {number}: {parts[name][0]:.2f} s, {facts.snapshot.file_count} file(s) left", flush=True)
        shutil.rmtree(uri)
    whole, optimize, verify = parts["ours"]
    return whole, optimize, verify, parts["bare"][0]


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
