"""Remembers the keys that change data deleted, for as long as older changes may still arrive.

The keys are Parquet files in `_lakehouse/deleted_keys/<layer>/<name>/<number>/`, where `<number>`
is the last batch that deleted anything. A batch with deletions writes a new folder with its own
deletions and with earlier deletions that are not older than `lateness_hours`. Each row has a
deleted key and the position of the deletion. One more row without a key summarizes the deletions
that became too old and are forgotten. It has the greatest of their positions and, instead of a
landing time, the time when the last of these deletions was loaded. An empty object next to the
table's manifests records that such a folder exists.

A change may arrive after a newer deletion of its key was forgotten: a row of an AWS DMS full load
is older than every change, and a file may be loaded long after it landed. Such a row goes to
quarantine if its key is neither in the table nor remembered. A row of a late file is accepted if
its position is greater than the positions of all forgotten deletions. Deletions that are rows of
the table (`deletes="soft"`) are never forgotten.

**Safety properties**
- The keys are written before the batch's commit, so every recent deletion is remembered. A
  repeated batch reads the deletions of earlier batches, and writes the same folder again
  (`cdc/test_run.py`).
- A missing folder stops the load, since late changes would bring deleted rows back
  (`cdc/test_run.py`).
- While the table exists, the complete folder that the next batch reads is never deleted
  (`cdc/test_read.py`).
"""

from typing import TYPE_CHECKING

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken
from lakehouse.base.text import HOUR_MS
from lakehouse.cdc.read import DELETED, FULL_LOAD, POSITION, ChangeBatch, is_full_load_file
from lakehouse.declare.landing import Dms
from lakehouse.declare.table import Merge
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import ORIGIN, REASON
from lakehouse.land.plan.batches import Batch
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.statements import quote
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER = "_lakehouse/deleted_keys"
# Spark writes this file last, unless its server is set to write none. Source: Hadoop 3.5,
# FileOutputCommitter, `mapreduce.fileoutputcommitter.marksuccessfuljobs`
_COMPLETE = "_SUCCESS"
_FILE, _, _LANDED_AT = ORIGIN
# When a deletion was remembered; null in the row that summarizes the forgotten deletions.
REMEMBERED_AT = "_remembered_at"
_LAST_LOADED = "_lakehouse_last_loaded"
_GREATEST_POSITION = "_lakehouse_greatest_position"
_COUNT = "_lakehouse_count"
_KNOWN = "_lakehouse_known"
_LATE_FULL_LOAD = (
    "this row of a full load arrived after deletions were forgotten (Dms.lateness_hours), and its"
    " key may be among the deleted keys. If the source still has the row, land the row as a change,"
    " in a file whose name does not begin with LOAD"
)
_LATE_FILE = (
    "this row's file landed before deletions that have been forgotten since (lateness_hours), and"
    " the row's key may be among the deleted keys. If the source still has the row, land the row"
    " again"
)


def remembered_deletions(session: TableSession, batch: Batch) -> "DataFrame | None":
    """The deletions of earlier batches, or `None` if there were none.

    After a restore from a backup, or after a failed first try of this batch, there may be only
    folders of this or later batches. In that case, the newest folder is copied under the previous
    batch's number, without the deletions from this batch's files, which the batch adds again.
    Deletions of later batches do no harm. In any case, the folders of this and later batches are
    deleted.

    Raises:
        Broken: deletions were remembered, but no folder exists any more.
    """
    store = session.lake.store
    _, numbers = _listed(store, session.key)
    if not numbers and store.stat(_mark(session.key)) is not None:
        raise Broken(
            f"load of {session.key}: the keys that its change data deleted are gone from"
            f" {_FOLDER}/{session.key}, so late changes would bring deleted rows back. Either"
            " restore that folder from a copy of the lake, or declare the table under a new key"
            " and land a new snapshot of its source"
        )
    previous = batch.number - 1
    earlier = [number for number in numbers if number < batch.number]
    if numbers and not earlier:
        names = [(f"{batch.prefix}{file.name}",) for file in batch.files]
        batch_files = session.spark.createDataFrame(names, f"{_FILE} STRING")
        newest = session.spark.read.parquet(_path(session, max(numbers)))
        kept = newest.join(batch_files, [_FILE], "left_anti").select(*map(quote, newest.columns))
        _write(session, previous, kept)
        earlier = [previous]
    if numbers - {*earlier}:
        forget_replaced(store, session.key, last_loaded=previous)
    if not earlier:
        return None
    deletions = session.spark.read.parquet(_path(session, max(earlier)))
    renamed = session.table.renamed  # key columns may be renamed, too
    return deletions.withColumnsRenamed(renamed) if renamed else deletions


def remember(
    session: TableSession, number: int, deletions: "DataFrame", older: "DataFrame | None"
) -> None:
    """Writes the batch's folder: its deletions, and older deletions of the last `lateness_hours`.

    One more row summarizes the deletions that are older.
    """
    kept = deletions.withColumn(REMEMBERED_AT, F.current_timestamp())
    if older is not None:
        lateness_seconds = round(session.table.landing.change_data.lateness_hours * 3600)
        since = F.current_timestamp() - F.make_dt_interval(secs=F.lit(lateness_seconds))
        is_summary = F.col(REMEMBERED_AT).isNull()
        too_old = older.where(is_summary | (F.col(REMEMBERED_AT) < since))
        summary = too_old.agg(
            F.count("*").alias(_COUNT),
            F.max(F.coalesce(REMEMBERED_AT, _LANDED_AT)).alias(_LANDED_AT),
            F.max(POSITION).alias(POSITION),
        )
        summary = summary.where(f"{_COUNT} > 0").drop(_COUNT)
        kept = kept.unionByName(older.where(F.col(REMEMBERED_AT) >= since))
        kept = kept.unionByName(summary, allowMissingColumns=True)
    _write(session, number, kept.coalesce(1))
    session.lake.store.put_if_absent(_mark(session.key), b"")


def _write(session: TableSession, number: int, deletions: "DataFrame") -> None:
    """Writes a folder, and marks it as complete."""
    deletions.write.mode("overwrite").parquet(_path(session, number))
    session.lake.store.put_if_absent(f"{_FOLDER}/{session.key}/{number}/{_COMPLETE}", b"")


def refuse_late(load: ChangeBatch, lines: "DataFrame") -> "DataFrame":
    """Adds a reason to each line that might bring a deleted row back."""
    session = load.session
    batch = load.batch
    changes = session.table.landing.change_data
    write = session.table.write
    if load.facts is None or not isinstance(write, Merge) or write.deletes != "hard":
        return lines
    is_full_load = isinstance(changes, Dms) and any(
        is_full_load_file(file.name) for file in batch.files
    )
    # All forgotten deletions were loaded before `late_ms`. Files that landed later are not
    # affected.
    late_ms = now_ms() - changes.lateness_hours * HOUR_MS
    if not is_full_load and all(file.modified_ms > late_ms for file in batch.files):
        return lines
    deletions = remembered_deletions(session, batch)
    if deletions is None:
        return lines
    forgotten = deletions.where(f"{REMEMBERED_AT} IS NULL")
    if forgotten.isEmpty():
        return lines
    bounds = forgotten.agg(
        F.max(_LANDED_AT).alias(_LAST_LOADED), F.max(POSITION).alias(_GREATEST_POSITION)
    )
    keys = [*map(quote, load.keys)]
    known_keys = load.table_rows().select(*keys).unionByName(deletions.select(*keys)).distinct()
    known_keys = known_keys.withColumn(_KNOWN, F.lit(True))
    is_unknown = ~F.col(DELETED) & F.col(_KNOWN).isNull()
    is_of_full_load = F.lit(is_full_load) & F.col(_FILE).rlike(FULL_LOAD)
    landed_before = F.col(_LANDED_AT) <= F.col(_LAST_LOADED)
    may_be_older = F.col(POSITION) <= F.col(_GREATEST_POSITION)
    reason = F.when(is_unknown & is_of_full_load, _LATE_FULL_LOAD)
    reason = reason.when(is_unknown & landed_before & may_be_older, _LATE_FILE)
    joined = lines.join(known_keys, [*load.keys], "left").crossJoin(bounds)
    joined = joined.withColumn(REASON, F.coalesce(REASON, reason))
    return joined.select(*map(quote, lines.columns))


def forget_replaced(store: Store, table_key: str, *, last_loaded: int) -> None:
    """Deletes all folders except the folder that the batch after `last_loaded` reads."""
    files, numbers = _listed(store, table_key)
    loaded_numbers = [number for number in numbers if number <= last_loaded]
    newest = max(loaded_numbers or numbers, default=0)
    kept = f"{_FOLDER}/{table_key}/{newest}/"
    store.delete([name for name in files if not name.startswith(kept)])


def forget_batch(store: Store, table_key: str, number: int) -> None:
    """Deletes the folder of a batch whose write has failed.

    `remembered_deletions` has copied the older deletions to another folder.
    """
    files, numbers = _listed(store, table_key)
    # Without another folder, the mark would stop the next load.
    if numbers <= {number}:
        store.delete([_mark(table_key)])
    store.delete([name for name in files if name.startswith(f"{_FOLDER}/{table_key}/{number}/")])


def forget(store: Store, table_key: str) -> None:
    """Deletes all folders of a table that does not exist: its deletions will be loaded again."""
    files, _ = _listed(store, table_key)
    store.delete([_mark(table_key), *files])


def _mark(table_key: str) -> str:
    return f"_lakehouse/ingest/{table_key}/has-deleted-keys"


def _listed(store: Store, table_key: str) -> tuple[list[str], set[int]]:
    """The files of all folders, and the numbers of the complete folders."""
    folder = f"{_FOLDER}/{table_key}"
    files = [file.name for file in store.list(folder)]
    numbers = set[int]()
    for name in files:
        number, _, rest = name.removeprefix(f"{folder}/").partition("/")
        if rest == _COMPLETE:
            numbers.add(int(number))
    return files, numbers


def _path(session: TableSession, number: int) -> str:
    return f"{session.lake.settings.spark_root}/{_FOLDER}/{session.key}/{number}"
