"""A thousand changes into ten million rows: a landed batch against a bare MERGE of the same rows, and against a rewrite of the whole table.

`python -m benchmarks.changes [rows] [files]`, on a lake and a server of its own. The changes are of a thousand neighbouring keys, and then
of keys anywhere; the table lies by its key.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pyarrow
import pyarrow.parquet

from benchmarks.figures import Figure, alone, timed
from benchmarks.own_lake import own_lake
from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.engine.ingest.arrival import record_arrived
from lakehouse.engine.ingest.changes.columns import CHANGED_AT, DELETED, POSITION
from lakehouse.engine.ingest.changes.order import is_newer
from lakehouse.engine.ingest.parse_lines import OWN
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES = 1_000
_WHERE = {"neighbouring": "neighbouring keys", "anywhere": "keys anywhere"}
_PROPERTIES = {"delta.enableChangeDataFeed": "true"}


def main(rows: int = 10_000_000, files: int = 100, places: int = len(_WHERE)) -> list[Figure]:
    """Seconds, files and rows rewritten of each way, by where the changed keys lie."""
    figures = list[Figure]()
    with own_lake(LAKEHOUSE_SPARK_MEMORY="3g") as (lake, spark):
        _make(spark, Path(lake.settings.table_uri("bronze/base")), rows, files)
        ranges = {
            "neighbouring": range(rows // 2, rows // 2 + _CHANGES),
            "anywhere": range(0, rows, max(1, rows // _CHANGES)),
        }
        for name, keys in [*ranges.items()][:places]:
            found = {
                way: _measured(lake, spark, f"{way}_{name}", list(keys)[:_CHANGES])
                for way in ("batch", "bare", "rewrite")
            }
            for way, (seconds, removed, written) in found.items():
                print(
                    f"  {name} keys, {way}: {seconds:.1f} s, {removed} of {files} files and {written:,} rows again",
                    flush=True,
                )
            figures += _figures(
                f"{_CHANGES:,} changes of {_WHERE[name]} among {rows:,} rows", found
            )
    return figures


def _figures(what: str, found: dict[str, tuple[float, int, int]]) -> Iterator[Figure]:
    names = {"bare": "a bare MERGE", "rewrite": "a rewrite of the table"}
    beside = [
        {names[way]: each[place] for way, each in found.items() if way in names}
        for place in range(3)
    ]
    yield Figure(name=what, value=found["batch"][0], unit="s", peers=beside[0])
    yield Figure(
        name=f"files rewritten for {what}",
        value=found["batch"][1],
        at_most=found["bare"][1],
        peers=beside[1],
    )
    yield Figure(name=f"rows written again for {what}", value=found["batch"][2], peers=beside[2])


def _make(spark: "SparkSession", folder: Path, rows: int, files: int) -> None:
    """The table as batches of changes leave it, in files that lie by the key."""
    folder.mkdir(parents=True)
    position = pyarrow.struct(
        [(name, pyarrow.int32() if name == "row" else pyarrow.int64()) for name in _PARTS]
    )
    for number in range(files):
        ids = numpy.arange(number * rows // files, (number + 1) * rows // files)
        times = pyarrow.array(ids, pyarrow.timestamp("us", tz="UTC"))
        parts = [
            pyarrow.array(ids, pyarrow.int64()),
            *(pyarrow.nulls(len(ids), position.field(name).type) for name in _PARTS[1:]),
        ]
        columns = {
            "id": ids,
            "v": pyarrow.array([f"value {id_}" for id_ in ids]),
            OWN[0]: pyarrow.array(["landing/people/0.json"] * len(ids)),
            OWN[1]: ids,
            OWN[2]: times,
            POSITION: pyarrow.StructArray.from_arrays(parts, fields=list(position)),
            CHANGED_AT: times,
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{number:06}.snappy.parquet")
    spark.sql(f"CONVERT TO DELTA parquet.{statements.quote(str(folder))}")
    spark.sql(statements.set_properties(str(folder), _PROPERTIES))


_PARTS = ("lsn", "file_number", "pos", "row", "ts_ms")


def _measured(
    lake: Lake, spark: "SparkSession", name: str, keys: list[int]
) -> tuple[float, int, int]:
    """Seconds, files that were rewritten, and rows in what was written for them."""
    way, table = name.split("_")[0], _table(name)
    uri = lake.settings.table_uri(table.key)
    shutil.copytree(lake.settings.table_uri("bronze/base"), uri)
    if way == "batch":
        record_arrived(lake, spark, table, 0)  # nobody loaded what is there
    spark.read.format("delta").load(uri).limit(
        1
    ).collect()  # all find the table's newest version in memory
    lines = [
        {
            "after": {"id": key, "v": "new"},
            "op": "u",
            "source": {"lsn": 10**12 + key, "ts_ms": 10**12},
        }
        for key in keys
    ]
    lake.store.put(f"{table.landing.prefix}1.json", "\n".join(map(json.dumps, lines)).encode())
    step = (
        partial(write_table, lake, spark, table)
        if way == "batch"
        else partial(_by_hand, spark, uri, keys, way)
    )
    seconds, _ = timed(step)
    metrics = lake.facts(table.key).history.commits[-1].metrics
    written = (
        ("numOutputRows",) if way == "rewrite" else ("numTargetRowsCopied", "numTargetRowsUpdated")
    )
    removed = metrics.get("numTargetFilesRemoved") or metrics.get("numRemovedFiles") or "0"
    return seconds, int(removed), sum(int(metrics.get(each, "0")) for each in written)


def _by_hand(spark: "SparkSession", uri: str, keys: list[int], way: str) -> None:
    """The same change without a batch: one MERGE by the key alone, or the table overwritten."""
    from pyspark.sql import functions as F  # noqa: N812

    there = spark.read.format("delta").option("versionAsOf", 1).load(uri)
    lsn = F.col(POSITION).getField("lsn") + F.lit(10**12)
    changed = there.join(
        spark.createDataFrame([(key,) for key in keys], "id BIGINT"), "id", "left_semi"
    )
    changed = changed.withColumns(
        {"v": F.lit("new"), POSITION: F.col(POSITION).withField("lsn", lsn), DELETED: F.lit(False)}
    )
    if way == "rewrite":
        kept = there.join(changed.select("id"), "id", "left_anti")
        kept.unionByName(changed.drop(DELETED)).write.format("delta").mode("overwrite").save(uri)
        return
    changed.createOrReplaceTempView("changed_people")
    spark.sql(
        statements.merge_changes(
            statements.MergeTarget(uri=uri, keys=("id",)),
            "changed_people",
            newer=is_newer(),
            deleted=DELETED,
        )
    )


def _table(name: str) -> Table:
    source = Landing(
        prefix=f"landing/{name}/", format="json", schema="id BIGINT, v STRING", changes=Debezium()
    )
    return Table(key=f"bronze/{name}", source=source, write=Merge(keys=("id",)))


if __name__ == "__main__":
    sys.exit(alone(main))
