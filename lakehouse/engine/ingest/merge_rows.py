"""Merges rows into a table by their keys."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.declaration.write_modes import Merge
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.spark import delta_writes, statements
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import content_hash, table_at, with_columns_of
from lakehouse.engine.spark.key_range import with_key_range
from lakehouse.runtime.processes import late_interrupts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANK = "_lakehouse_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMerge:
    """A MERGE into the table at `snapshot`, by the keys and order of `write`."""

    snapshot: Snapshot
    write: Merge
    transaction: delta_writes.Transaction


def merge_rows(
    spark: "SparkSession", rows: "DataFrame", merge: KeyedMerge, *, are_few: bool = False
) -> None:
    """Merges rows, one per key, in one commit.

    A row that is not newer than the table's row of the same key is left out first. Otherwise, the
    MERGE would rewrite the file of the table's row without a change. With `are_few`, the rows are
    checkpointed to compute the range of their keys, and the table's files outside of this range are
    not read.
    """
    snapshot = merge.snapshot
    write = merge.write
    rows = with_columns_of(spark, snapshot, rows)
    within: tuple[str, ...] = ()
    if are_few:
        rows, within = with_key_range(rows, write.keys)
    target_rows = table_at(spark, snapshot, within=within).alias("target")
    changes_nothing = F.expr(statements.not_older(write.keys, write.order_by))
    new_rows = rows.alias("source").join(target_rows, changes_nothing, "left_anti")
    target = statements.MergeTarget(uri=snapshot.uri, keys=write.keys, within=within)
    statement = partial(statements.merge, target, order_by=write.order_by)
    try:
        delta_writes.run_merge(spark, new_rows, snapshot, merge.transaction, statement)
    finally:
        # Deleting checkpointed rows sends a request from a destructor, where Python would ignore an
        # interrupt.
        with late_interrupts():
            del rows, new_rows


def newest_per_key(rows: "DataFrame", write: Merge) -> "DataFrame":
    """Keeps one row per key: the row with the greatest `order_by`.

    Nulls are the least values. If several rows have the greatest value, the greatest hash of a
    row's content decides, so that a repeated call keeps the same row.
    """
    from pyspark.sql import Window

    newest_first = [F.col(statements.quote(name)).desc_nulls_last() for name in write.order_by]
    newest_first.append(content_hash(rows.schema.fields).desc())
    keys = [statements.quote(key) for key in write.keys]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest_first))
    return rows.withColumn(_RANK, rank).where(f"{_RANK} = 1").drop(_RANK)
