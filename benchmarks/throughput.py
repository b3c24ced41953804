"""A whole compaction (plan, OPTIMIZE, comparison of all rows) against a bare OPTIMIZE and deltalake's, of identical copies, in turn.

`python -m benchmarks.throughput [files] [partitions] [repeats] [rows]`, on a lake and a server of its own; 1 partition is a table without,
`rows` are those of a file.
"""

import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet
from deltalake import DeltaTable

from benchmarks.figures import Figure, alone, middle, ratio
from benchmarks.own_lake import own_lake
from lakehouse import Append, Compaction, Landing, Table
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.sessions import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_FILE = Compaction(target_file_bytes=1024 * 1024 * 1024, min_small_files=2, scan_cores=1)  # Delta's own default size

# A server serves for days. In its first statements it compiles, on the very core that a compaction uses and a bare OPTIMIZE does not.
_WARM_UP = 6


def main(files: int = 1000, partitions: int = 1, repeats: int = 11, rows_per_file: int = 200, warm_up: int = _WARM_UP) -> list[Figure]:
    """The seconds of a compaction, those of a bare OPTIMIZE and of deltalake's, and the ratio of the first two."""
    with own_lake() as settings:
        lake, spark = open_lake(settings), connect(settings)
        _make(spark, Path(settings.table_uri("bronze/base")), files, partitions, rows_per_file)
        rounds = [_round(lake, spark, number) for number in range(warm_up + repeats)][-repeats:]
    seconds = {name: [each[name] for each in rounds] for name in rounds[0]}
    shape = f"{files:,} files of {rows_per_file:,} rows in {partitions} partition(s)"
    beside = {"bare OPTIMIZE": median(seconds["bare"]), "deltalake optimize.compact": median(seconds["deltalake"])}
    return [
        middle(f"a compaction of {shape}", seconds["ours"], unit="s", row="P5", peers=beside),
        middle("its comparison of all rows, after the commit", seconds["verify"], unit="s", row="P5"),
        ratio("throughput over that of a bare OPTIMIZE", seconds["bare"], seconds["ours"], row="P5", at_least=1.0),
        ratio("throughput over that of deltalake, which compares no row", seconds["deltalake"], seconds["ours"], row="P5"),
    ]


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


def _round(lake: Lake, spark: "SparkSession", number: int) -> dict[str, float]:
    """Seconds of each way to compact a copy of the table; which of them comes first changes from round to round."""
    ways = ("ours", "bare", "deltalake")
    seconds: dict[str, float] = {}
    for way in (*ways[number % 3 :], *ways[: number % 3]):
        key = f"bronze/{way}{number}"
        uri = lake.settings.table_uri(key)
        shutil.copytree(lake.settings.table_uri("bronze/base"), uri)
        spark.read.format("delta").load(uri).limit(1).collect()  # both that use Spark find the table's newest version in memory
        started = time.monotonic()
        if way == "bare":
            spark.sql(f"OPTIMIZE {statements.path_table(uri)}")
        elif way == "deltalake":
            DeltaTable(uri).optimize.compact()
        else:
            source = Landing(prefix="landing/", format="json", schema="id BIGINT")
            outcome = compact(lake, spark, Table(key=key, source=source, write=Append(), compaction=ONE_FILE))
            seconds["verify"] = outcome.seconds_verify
        seconds[way] = time.monotonic() - started
        facts = lake.facts(key)
        assert facts is not None
        print(f"  {way} {number}: {seconds[way]:.2f} s, {facts.snapshot.file_count} file(s) left", flush=True)
        shutil.rmtree(uri)
    return seconds


if __name__ == "__main__":
    sys.exit(alone(main))
