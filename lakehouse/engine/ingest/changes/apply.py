"""The changes of a batch into a table: the newest row of each key, or every version of it.

1. The batch's changes are folded: to the newest of each key, or to one for each key and position.
2. `Merge`, hard deletions: those that a remembered deletion is newer than are left out. What the batch deletes is remembered.
3. `History`: the versions of the keys in the batch are read, and when each holds is computed anew.
4. One MERGE writes what differs, under the batch's number; the first batch makes the table by an append.

**Safety properties** (tests in `engine/ingest/changes/test_apply.py`)
- A change takes effect only on an older state of its key, by position, in the table and among the
  remembered deletions.
- Deletions are remembered before the commit, and a repeated batch writes the same ones.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.declaration.change_sources import HISTORY_COLUMNS, Operation
from lakehouse.core.declaration.table import History, Merge, Table
from lakehouse.core.ingest.batches import Batch, ingest_app_id
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import batch_commits
from lakehouse.engine.ingest.changes.columns import (
    CHANGED_AT,
    DELETED,
    IS_MENDED,
    KEPT,
    OPERATION,
    POSITION,
    UNSENT,
)
from lakehouse.engine.ingest.changes.deleted_keys import forget, remember, remembered
from lakehouse.engine.ingest.changes.order import change_order, is_newer
from lakehouse.engine.ingest.changes.read import ChangeCounts, change_keys
from lakehouse.engine.ingest.changes.rows import TRUNCATED, batch_changes, own_rows, truncations
from lakehouse.engine.ingest.changes.unsent import large_columns, mended_rows, with_kept_values
from lakehouse.engine.ingest.parse_lines import OWN, REASON
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAS, _RANK = "_lakehouse_was", "_lakehouse_rank"
_LAST_ROW, _MARKS_ONLY = "_lakehouse_last_row", "_lakehouse_marks_only"
# The columns that a soft deletion changes in the table's row.
_MARK = (DELETED, POSITION, CHANGED_AT, *OWN)
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def changed_rows(lines: "DataFrame", table: Table) -> "DataFrame":
    """Each change as the row that it would be by itself, with the columns of the table that change data is written to."""
    told = F.col(REASON).isNull() & F.col(OPERATION).isin(
        Operation.UPSERT.value, Operation.DELETE.value
    )
    rows = own_rows(lines.where(told)).drop(TRUNCATED, UNSENT)
    if isinstance(table.write, History):
        since = F.coalesce(CHANGED_AT, OWN[2])
        times = {
            "valid_from": since,
            "valid_to": F.when(F.col(DELETED), since),
            "is_current": ~F.col(DELETED),
        }
        return rows.withColumns(times)
    return rows if _keeps_deleted(table) else rows.where(f"NOT {DELETED}").drop(DELETED)


def apply_changes(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: "DataFrame",
    counts: ChangeCounts,
    facts: TableFacts | None,
) -> None:
    """One commit of the lines that are changes; the caller holds the table's guard and looks whether it arrived."""
    if facts is None:
        forget(lake.store, table.key)
    older, number = remembered(lake, spark, table.key, batch), batch.number
    changes, keys, keeps_deleted = (
        batch_changes(spark, lines, table, counts, older, facts),
        change_keys(table),
        _keeps_deleted(table),
    )
    within = () if counts.first_key is None else (statements.between(keys[0], *counts.first_key),)
    mended = None
    if isinstance(table.write, Merge) and facts is not None:
        mended = mended_rows(spark, table, changes, facts.snapshot, within)
    if not keeps_deleted:
        changes = _newest(changes, keys)
        if older is not None:
            # A deletion that is remembered may be undone in the table, by a RESTORE, and is landed again then.
            is_older = F.expr(f"{_not_older(keys)} AND NOT source.{DELETED}")
            changes = changes.alias("source").join(older.alias("target"), is_older, "left_anti")
    if counts.truncates or (counts.deletes and not keeps_deleted):
        _remember(lake, table, number, changes.limit(0) if keeps_deleted else changes, lines, older)
    if (
        facts is not None
        and isinstance(table.write, Merge)
        and keeps_deleted
        and (counts.deletes or counts.truncates)
    ):
        # The values of a change that the table's row is newer than are not those that a deletion after it deletes.
        there = table_at(spark, facts.snapshot, within=within).alias("target")
        changes = changes.alias("source").join(there, F.expr(_not_older(keys)), "left_anti")
    if mended is not None:
        changes = changes.withColumn(IS_MENDED, F.lit(False)).unionByName(mended)
        changes = changes if keeps_deleted else _newest(changes, keys)
    _commit(lake, spark, table, number, changes, within, facts)


def _commit(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    number: int,
    changes: "DataFrame",
    within: tuple[str, ...],
    facts: TableFacts | None,
) -> None:
    transaction = commit_rows.Transaction(app_id=ingest_app_id(table.key), version=number)
    uri = lake.settings.table_uri(table.key)
    takes_effect = is_newer()
    if IS_MENDED in changes.columns:
        takes_effect = f"({takes_effect} OR source.{quote(IS_MENDED)})"
    match table.write:
        case Merge(keys=keys, deletes="soft"):
            source = _newest(_with_last_values(changes, keys), keys).drop(TRUNCATED)
            statement = partial(
                statements.merge_marked,
                uri,
                keys=keys,
                newer=takes_effect,
                marks_only=_MARKS_ONLY,
                mark=_MARK,
                within=within,
            )
        case Merge(keys=keys):
            source = changes.drop(TRUNCATED)
            statement = partial(
                statements.merge_changes,
                uri,
                keys=keys,
                newer=takes_effect,
                deleted=DELETED,
                within=within,
            )
        case History(keys=keys):
            source = _versions(spark, changes, table, within, facts)
            statement = partial(
                statements.merge_versions, uri, keys=(*keys, POSITION), within=within
            )
        case _:
            raise AssertionError(table.write)
    source = source.drop(UNSENT)
    if facts is None:
        first = (
            source.drop(_MARKS_ONLY)
            if _keeps_deleted(table)
            else source.where(f"NOT {DELETED}").drop(DELETED)
        )
        commit_rows.write_rows(lake, table, first, transaction)
        return
    commit_rows.run_merge(spark, source, facts.snapshot, transaction, statement)


def superseded_count(
    lake: Lake, table: Table, counts: ChangeCounts, *, before: TableFacts | None, after: TableFacts
) -> int:
    """The changes of the batch that was just committed that took no effect: a newer one was known, or they were told before."""
    commits = batch_commits(lake, table, before=before, after=after)
    metrics = commits[-1].metrics if commits else {}
    merged = ("numTargetRowsInserted",) if isinstance(table.write, History) else _MERGED
    applied = sum(
        int(metrics.get(name, "0"))
        for name in (merged if _MERGED[0] in metrics else ("numOutputRows",))
    )
    return max(counts.rows + counts.key_changes - applied, 0)  # a truncation may delete many rows


def _not_older(keys: Sequence[str]) -> str:
    return f"{statements.same_keys(keys)} AND NOT ({is_newer()})"


def _keeps_deleted(table: Table) -> bool:
    return not isinstance(table.write, Merge) or table.write.deletes == "soft"


def _with_last_values(changes: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Gives each deletion the values of the last row before it in the batch.

    A deletion without such a row has null values, and `_MARKS_ONLY` is true: the table's row keeps its values. The values
    that the source sends with a deletion are not used, since Debezium sends zeros for columns that are `NOT NULL`.
    """
    from pyspark.sql import Window

    earlier = (
        Window.partitionBy(*map(quote, keys))
        .orderBy(F.expr(change_order()))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    others = {*keys, *_MARK, TRUNCATED, UNSENT, IS_MENDED}
    names = [name for name in changes.columns if name not in others]
    # A struct needs a member, also where the table has keys alone.
    row = F.struct(F.lit(True).alias(_MARKS_ONLY), *map(quote, names))
    last_row = F.last(F.when(~F.col(DELETED), row), ignorenulls=True).over(earlier)
    changes = changes.withColumn(_LAST_ROW, last_row)
    values = {
        name: F.when(F.col(DELETED), F.col(f"{_LAST_ROW}.{quote(name)}")).otherwise(
            F.col(quote(name))
        )
        for name in names
    }
    marks_only = F.col(DELETED) & F.col(_LAST_ROW).isNull()
    return changes.withColumns({**values, _MARKS_ONLY: marks_only}).drop(_LAST_ROW)


def _newest(changes: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    from pyspark.sql import Window

    newest_first = Window.partitionBy(*map(quote, keys)).orderBy(F.expr(change_order()).desc())
    return (
        changes.withColumn(_RANK, F.row_number().over(newest_first))
        .where(f"{_RANK} = 1")
        .drop(_RANK)
    )


def _remember(
    lake: Lake,
    table: Table,
    number: int,
    changes: "DataFrame",
    lines: "DataFrame",
    older: "DataFrame | None",
) -> None:
    """The deletions among the changes, and the truncations among the lines; these stand for the keys that they delete."""
    names = [*map(quote, change_keys(table))]
    columns = [*names, *OWN, POSITION, CHANGED_AT, TRUNCATED]
    deleted = changes.where(f"{DELETED} AND NOT {TRUNCATED}").select(*columns)
    marks = truncations(lines.where(f"{REASON} IS NULL")).withColumn(TRUNCATED, F.lit(True))
    found = deleted.unionByName(marks, allowMissingColumns=True)
    remember(lake, table.key, number, found, older, hours=table.landing.change_data.lateness_hours)


def _versions(
    spark: "SparkSession",
    changes: "DataFrame",
    table: Table,
    within: tuple[str, ...],
    facts: TableFacts | None,
) -> "DataFrame":
    """The versions of these keys that are new, or hold at another time than the table says."""
    from pyspark.sql import Window

    keys = change_keys(table)
    by, there = [*map(quote, keys)], [*HISTORY_COLUMNS, *OWN[:2]]
    was = "valid_from: TIMESTAMP, valid_to: TIMESTAMP, is_current: BOOLEAN, _source_file: STRING, _source_line: BIGINT"
    if KEPT in changes.columns:
        there.append(KEPT)
        was += f", {KEPT}: {changes.select(KEPT).schema[0].dataType.simpleString()}"
    rows = changes.drop(TRUNCATED).withColumn(_WAS, F.lit(None).cast(f"STRUCT<{was}>"))
    if facts is not None:
        touched = table_at(spark, facts.snapshot, within=within).join(
            changes.select(*by).distinct(), [*keys], "left_semi"
        )
        of_table = touched.withColumn(_WAS, F.struct(*there)).drop(*HISTORY_COLUMNS)
        rows = rows.unionByName(of_table, allowMissingColumns=True)
    rows = _newest(rows, (*keys, POSITION))
    if KEPT in rows.columns:
        rows = with_kept_values(rows, table, large_columns(changes, table))
    ordered = Window.partitionBy(*by).orderBy(F.expr(change_order()))
    following = ordered.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    rows = rows.withColumn("valid_from", F.min(F.coalesce(CHANGED_AT, OWN[2])).over(following))
    next_from = F.lead("valid_from").over(ordered)
    rows = rows.withColumn(
        "valid_to", F.when(F.col(DELETED), F.col("valid_from")).otherwise(next_from)
    )
    rows = rows.withColumn("is_current", F.col("valid_to").isNull() & ~F.col(DELETED))
    changed = rows.where(~F.col(_WAS).eqNullSafe(F.struct(*there)))
    return changed.select(*[name for name in changed.columns if not name.startswith("_lakehouse")])
