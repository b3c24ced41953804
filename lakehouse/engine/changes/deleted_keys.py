"""The keys that change data deleted, each with the position of its deletion, for as long as an older change may still arrive.

They lie as Parquet in `_lakehouse/deleted_keys/<layer>/<name>/<number>/`, one folder for the last batch that deleted anything. A batch that
deletes writes a new folder: what was remembered and is not too old, and its own. Truncations are remembered without a key. Once a deletion
was too old, a row without a key says so for good: the greatest position of these, and when the last of them was loaded, in the place of the
time of landing. Beside the table's manifests an empty object tells that there is such a folder.

**Safety properties**
- The keys are written before the batch's commit, so that no deletion is in the table and not remembered. A batch that is repeated reads
  what was remembered before it, and writes the same folder again.
- A folder that is gone stops the load: changes that come late would bring deleted rows back.
- A folder is removed only when another one that remembers as much is complete and its batch has arrived, or when there is no table.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch
from lakehouse.engine.changes.columns import POSITION
from lakehouse.engine.ingest.parse_lines import OWN
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOLDER = "_lakehouse/deleted_keys"
# Spark writes it last. Source: Hadoop 3.5, FileOutputCommitter, `mapreduce.fileoutputcommitter.marksuccessfuljobs`
_COMPLETE = "_SUCCESS"
REMEMBERED_AT = "_remembered_at"
UNTIL_TIME, UNTIL_POSITION = "_lakehouse_until_time", "_lakehouse_until_position"
_COUNT = "_lakehouse_count"


def remembered(lake: Lake, spark: "SparkSession", table_key: str, batch: Batch) -> "DataFrame | None":
    """The deletions of the batches before this one; `None` if there was none.

    A table that was put back from a copy has folders of later batches alone, as has one whose first batch that deletes was tried before.
    What they remember is kept under the number before this batch's, where nothing is written over it: a deletion that is still to come
    does no harm. What they remember of this batch's own files is left out: it tells that again, or was tried with a file too many.

    Raises:
        Broken: no folder is there any more.
    """
    numbers = _numbers(_files(lake.store, table_key), table_key)
    if not numbers and lake.store.stat(_mark(table_key)) is not None:
        raise Broken(
            f"load of {table_key}: the keys that its change data deleted are gone from {_FOLDER}/{table_key}, and late changes would bring "
            "their rows back; accepted: that folder from a copy of the lake; or, if no change older than a deletion can come any more, to "
            f"delete {_mark(table_key)}"
        )
    found, before = [number for number in numbers if number < batch.number], batch.number - 1
    if numbers and not found:
        found = [before]
        own = spark.createDataFrame([(f"{batch.prefix}{file.name}",) for file in batch.files], f"{OWN[0]} STRING")
        later = spark.read.parquet(_path(lake, table_key, max(numbers)))
        others = later.join(own, [OWN[0]], "left_anti").select(*map(quote, later.columns))
        others.write.mode("overwrite").parquet(_path(lake, table_key, before))
    if numbers - {*found}:
        forget_replaced(lake.store, table_key, arrived=before)
    return spark.read.parquet(_path(lake, table_key, max(found))) if found else None


def remember(lake: Lake, table_key: str, number: int, deletions: "DataFrame", older: "DataFrame | None", *, hours: float) -> None:
    """Writes what is remembered from this batch on: its deletions, and the older ones of the last so many hours.

    Raises:
        Broken: Spark's server leaves out the mark by which a complete folder is known.
    """
    found = deletions.withColumn(REMEMBERED_AT, F.current_timestamp())
    if older is not None:
        since = F.current_timestamp() - F.make_dt_interval(secs=F.lit(round(hours * 3600)))
        too_old = older.where(F.coalesce(F.col(REMEMBERED_AT) < since, F.lit(True)))
        ends = F.max(F.coalesce(REMEMBERED_AT, OWN[2])).alias(OWN[2]), F.max(POSITION).alias(POSITION)
        last = too_old.agg(F.count("*").alias(_COUNT), *ends).where(f"{_COUNT} > 0").drop(_COUNT)
        found = found.unionByName(older.where(F.col(REMEMBERED_AT) >= since))
        found = found.unionByName(last, allowMissingColumns=True)  # the others are null
    found.coalesce(1).write.mode("overwrite").parquet(_path(lake, table_key, number))
    if lake.store.stat(f"{_FOLDER}/{table_key}/{number}/{_COMPLETE}") is None:
        raise Broken(
            f"load of {table_key}: what batch {number} deletes was written without {_COMPLETE}, and would be forgotten; accepted: a Spark "
            "server with mapreduce.fileoutputcommitter.marksuccessfuljobs=true, its default"
        )
    lake.store.put_if_absent(_mark(table_key), b"")


def forgotten(deletions: "DataFrame") -> "DataFrame | None":
    """One row where a deletion was too old to be remembered with these, so that a key that is not among them may have been deleted, too.

    It tells when the last of them was loaded and the greatest position of them, null where an older program forgot them.
    """
    marks = deletions.where(f"{REMEMBERED_AT} IS NULL")
    return None if marks.isEmpty() else marks.agg(F.max(OWN[2]).alias(UNTIL_TIME), F.max(POSITION).alias(UNTIL_POSITION))


def forget_replaced(store: Store, table_key: str, *, arrived: int) -> None:
    """Removes every folder but the one that the next batch reads; `arrived` is the last batch in the table."""
    files = _files(store, table_key)
    numbers = _numbers(files, table_key)
    newest = max((number for number in numbers if number <= arrived), default=max(numbers, default=0))
    kept = f"{_FOLDER}/{table_key}/{newest}/"
    store.delete([name for name in files if not name.startswith(kept)])


def forget_batch(store: Store, table_key: str, number: int) -> None:
    """Removes what a batch remembers whose write has just failed. `remembered` has seen to it that older folders have all before it."""
    if _numbers(_files(store, table_key), table_key) <= {number}:
        store.delete([_mark(table_key)])
    store.delete([file.name for file in store.list(f"{_FOLDER}/{table_key}/{number}")])


def forget(store: Store, table_key: str) -> None:
    """Removes all folders; the table is not there, so that every deletion is still to come."""
    store.delete([_mark(table_key), *_files(store, table_key)])


def _mark(table_key: str) -> str:
    return f"_lakehouse/ingest/{table_key}/has-deleted-keys"


def _files(store: Store, table_key: str) -> list[str]:
    return [file.name for file in store.list(f"{_FOLDER}/{table_key}")]


def _numbers(files: Iterable[str], table_key: str) -> set[int]:
    """The batches whose folders are complete."""
    parts = [name.removeprefix(f"{_FOLDER}/{table_key}/").split("/") for name in files]
    return {int(number) for number, *rest in parts if rest == [_COMPLETE]}


def _path(lake: Lake, table_key: str, number: int) -> str:
    return f"{lake.settings.spark_root}/{_FOLDER}/{table_key}/{number}"
