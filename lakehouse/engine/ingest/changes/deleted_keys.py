"""The keys that change data deleted, each with the position of its deletion, for as long as an older change may still arrive.

They lie as Parquet in `_lakehouse/deleted_keys/<layer>/<name>/<number>/`, one folder for the last batch that deleted anything. A batch that
deletes writes a new folder: what was remembered and is not too old, and its own. Truncations are remembered without a key. Once a deletion
was too old, a row without a key says so for good: the greatest position of these, and when the last of them was loaded, in the place of the
time of landing. Beside the table's manifests an empty object tells that there is such a folder.

A row may come later than that: a row of a full load of AWS DMS is older than every change, and a file may be loaded long after it landed,
since it was set aside or the loads stood still. Once deletions were forgotten, such a row whose key is neither in the table nor remembered
is none: its key may be among theirs. A row whose position is above theirs is loaded. Deletions that are rows are never forgotten.

**Safety properties**
- The keys are written before the batch's commit, so no deletion is in the table without being
  remembered. A repeated batch reads what was remembered before it, and writes the same folder again
  (`engine/ingest/changes/test_apply.py`).
- A folder that is gone stops the load: late changes would bring deleted rows back
  (`engine/ingest/changes/test_apply.py`).
- A folder is removed only when another one that remembers as much is complete and its batch has
  arrived, or when there is no table (`engine/ingest/changes/test_read.py`).
"""

import re
from typing import TYPE_CHECKING

from lakehouse.core.declaration.change_sources import Dms, Operation
from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.units import HOUR_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.changes.columns import OPERATION, POSITION
from lakehouse.engine.ingest.changes.dms import FULL_LOAD
from lakehouse.engine.ingest.parse_lines import OWN, REASON
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FOLDER = "_lakehouse/deleted_keys"
# Spark writes it last. Source: Hadoop 3.5, FileOutputCommitter, `mapreduce.fileoutputcommitter.marksuccessfuljobs`
_COMPLETE = "_SUCCESS"
REMEMBERED_AT = "_remembered_at"
_UNTIL_TIME, _UNTIL_POSITION, _COUNT = (
    "_lakehouse_until_time",
    "_lakehouse_until_position",
    "_lakehouse_count",
)
_KNOWN = "_lakehouse_known"
_WHY_FULL_LOAD = (
    "a row of a full load that came after deletions were forgotten (Dms.lateness_hours), and its key may be one of theirs; accepted: if "
    "the source still has the row, to land it as a change, in a file whose name does not begin with LOAD"
)
_WHY_WAITED = (
    "a row of a file that landed before deletions that are forgotten by now (lateness_hours), and its key may be one of theirs; accepted: "
    "if the source still has the row, to land it once more"
)


def remembered(
    lake: Lake, spark: "SparkSession", table_key: str, batch: Batch
) -> "DataFrame | None":
    """The deletions of the batches before this one; `None` if there was none.

    A table that was put back from a copy has folders of later batches alone, as has one whose first batch that deletes was tried before.
    What they remember is kept under the number before this batch's, where nothing is written over it: a deletion that is still to come
    does no harm. What they remember of this batch's own files is left out: it tells that again, or was tried with a file too many.

    Raises:
        Broken: no folder is there any more.
    """
    _, numbers = _listed(lake.store, table_key)
    if not numbers and lake.store.stat(_mark(table_key)) is not None:
        raise Broken(
            f"load of {table_key}: the keys that its change data deleted are gone from {_FOLDER}/{table_key}, and late changes would bring "
            "their rows back; accepted: that folder from a copy of the lake; or, if no change older than a deletion can come any more, to "
            f"delete {_mark(table_key)}"
        )
    found, before = [number for number in numbers if number < batch.number], batch.number - 1
    if numbers and not found:
        found = [before]
        own = spark.createDataFrame(
            [(f"{batch.prefix}{file.name}",) for file in batch.files], f"{OWN[0]} STRING"
        )
        later = spark.read.parquet(_path(lake, table_key, max(numbers)))
        others = later.join(own, [OWN[0]], "left_anti").select(*map(quote, later.columns))
        others.write.mode("overwrite").parquet(_path(lake, table_key, before))
    if numbers - {*found}:
        forget_replaced(lake.store, table_key, arrived=before)
    return spark.read.parquet(_path(lake, table_key, max(found))) if found else None


def remember(
    lake: Lake,
    table_key: str,
    number: int,
    deletions: "DataFrame",
    older: "DataFrame | None",
    *,
    hours: float,
) -> None:
    """Writes what is remembered from this batch on: its deletions, and the older ones of the last so many hours.

    Raises:
        Broken: Spark's server leaves out the mark by which a complete folder is known.
    """
    found = deletions.withColumn(REMEMBERED_AT, F.current_timestamp())
    if older is not None:
        since = F.current_timestamp() - F.make_dt_interval(secs=F.lit(round(hours * 3600)))
        too_old = older.where(F.coalesce(F.col(REMEMBERED_AT) < since, F.lit(True)))
        ends = (
            F.max(F.coalesce(REMEMBERED_AT, OWN[2])).alias(OWN[2]),
            F.max(POSITION).alias(POSITION),
        )
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


def refuse_late(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: "DataFrame",
    facts: TableFacts | None,
) -> "DataFrame":
    """The lines of a batch, with a reason for each that may bring back a deleted key; `facts` is the table before the batch."""
    changes, write = table.landing.change_data, table.write
    if facts is None or not isinstance(write, Merge) or write.deletes != "hard":
        return lines
    is_full_load = isinstance(changes, Dms) and any(
        re.search(FULL_LOAD, file.name) for file in batch.files
    )
    # Deletions that are forgotten are older than that, so a file that is loaded in time asks nobody.
    late_ms = now_ms() - changes.lateness_hours * HOUR_MS
    if not is_full_load and all(file.modified_ms > late_ms for file in batch.files):
        return lines
    deletions = remembered(lake, spark, table.key, batch)
    if deletions is None or (marks := deletions.where(f"{REMEMBERED_AT} IS NULL")).isEmpty():
        return lines
    # The load time of the last deletion that is forgotten, and the greatest position of them: null where an older program forgot them.
    until = marks.agg(F.max(OWN[2]).alias(_UNTIL_TIME), F.max(POSITION).alias(_UNTIL_POSITION))
    keys = [*map(quote, write.keys)]
    known = (
        table_at(spark, facts.snapshot)
        .select(*keys)
        .unionByName(deletions.select(*keys))
        .distinct()
        .withColumn(_KNOWN, F.lit(True))
    )
    is_unknown = (F.col(OPERATION) == Operation.UPSERT.value) & F.col(_KNOWN).isNull()
    of_full_load = F.lit(is_full_load) & F.col(OWN[0]).rlike(FULL_LOAD)
    has_waited = (F.col(OWN[2]) <= F.col(_UNTIL_TIME)) & (F.col(POSITION) <= F.col(_UNTIL_POSITION))
    why = F.when(is_unknown & of_full_load, _WHY_FULL_LOAD).when(
        is_unknown & has_waited, _WHY_WAITED
    )
    told = (
        lines.join(known, [*write.keys], "left")
        .crossJoin(until)
        .withColumn(REASON, F.coalesce(REASON, why))
    )
    return told.select(*map(quote, lines.columns))


def forget_replaced(store: Store, table_key: str, *, arrived: int) -> None:
    """Removes every folder but the one that the next batch reads; `arrived` is the last batch in the table."""
    files, numbers = _listed(store, table_key)
    newest = max(
        (number for number in numbers if number <= arrived), default=max(numbers, default=0)
    )
    kept = f"{_FOLDER}/{table_key}/{newest}/"
    store.delete([name for name in files if not name.startswith(kept)])


def forget_batch(store: Store, table_key: str, number: int) -> None:
    """Removes what a batch remembers whose write has just failed. `remembered` has seen to it that older folders have all before it."""
    files, numbers = _listed(store, table_key)
    if numbers <= {number}:
        store.delete([_mark(table_key)])
    store.delete([name for name in files if name.startswith(f"{_FOLDER}/{table_key}/{number}/")])


def forget(store: Store, table_key: str) -> None:
    """Removes all folders; the table is not there, so that every deletion is still to come."""
    store.delete([_mark(table_key), *_listed(store, table_key)[0]])


def _mark(table_key: str) -> str:
    return f"_lakehouse/ingest/{table_key}/has-deleted-keys"


def _listed(store: Store, table_key: str) -> tuple[list[str], set[int]]:
    """The files of all folders, and the batches whose folders are complete."""
    folder = f"{_FOLDER}/{table_key}"
    files = [file.name for file in store.list(folder)]
    parts = [name.removeprefix(f"{folder}/").split("/") for name in files]
    return files, {int(number) for number, *rest in parts if rest == [_COMPLETE]}


def _path(lake: Lake, table_key: str, number: int) -> str:
    return f"{lake.settings.spark_root}/{_FOLDER}/{table_key}/{number}"
