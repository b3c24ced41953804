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
    """Merges rows, one per key, in one commit. Rows that would change nothing rewrite no file.

    With `are_few`, the rows are checkpointed to compute their key range, and files outside of that
    range are not read.
    """
    snapshot = merge.snapshot
    write = merge.write
    rows = with_columns_of(spark, snapshot, rows)
    rows, within = with_key_range(rows, write.keys) if are_few else (rows, ())
    known = table_at(spark, snapshot, within=within).alias("target")
    is_known = F.expr(statements.not_older(write.keys, write.order_by))
    fresh = rows.alias("source").join(known, is_known, "left_anti")
    target = statements.MergeTarget(uri=snapshot.uri, keys=write.keys, within=within)
    statement = partial(statements.merge, target, order_by=write.order_by)
    try:
        delta_writes.run_merge(spark, fresh, snapshot, merge.transaction, statement)
    finally:
        # Deleting checkpointed rows sends a request from a destructor, where Python would ignore an
        # interrupt.
        with late_interrupts():
            del rows, fresh


def newest_per_key(rows: "DataFrame", write: Merge) -> "DataFrame":
    """Keeps the row with the greatest `order_by` of each key.

    Ties are always resolved in the same way.
    """
    from pyspark.sql import Window

    newest_first = [F.col(statements.quote(name)).desc_nulls_last() for name in write.order_by]
    newest_first.append(content_hash(rows.schema.fields).desc())
    keys = [statements.quote(key) for key in write.keys]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest_first))
    return rows.withColumn(_RANK, rank).where(f"{_RANK} = 1").drop(_RANK)
