"""Rows into a Delta table, each in one commit that also says, by a transaction id, what it holds.

**Safety properties**
- Rows and their transaction id are one commit: rows whose id the table knows are not written again
  (`test_write.py`, `test_load.py`).
- A table is created together with its first rows, properties and partitioning, or not at all
  (`test_load.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from lakehouse.core.compaction.target_size import count_outputs, target_in_force, write_history_of
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.schema_changes import differences, new_columns
from lakehouse.core.declaration.strategy_properties import OPTIMIZE_WRITE
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Merge, Overwrite
from lakehouse.core.delta.snapshot import Column, Snapshot
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Explanation
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest.table_properties import (
    apply_strategy,
    declared_properties,
    strategy_changes,
    strategy_in_force,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import content_hash, table_at, temporary_view
from lakehouse.engine.spark.key_range import with_key_range
from lakehouse.engine.spark.session_settings import (
    SHUFFLED_BEFORE_WRITE,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    session_confs,
)
from lakehouse.runtime.interrupts import late_interrupts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The transaction id of a commit: `version` rises with each, under one `app_id`."""

    app_id: str
    version: int


def write_frame(
    frame: "DataFrame",
    uri: str,
    *,
    mode: str,
    widen: bool = False,
    transaction: Transaction | None = None,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
    user_metadata: str | None = None,
    replaces_schema: bool = False,
) -> None:
    """One commit of a frame's rows; `properties` take effect only where the commit makes the table. `widen`: a table gets new columns.

    `replaces_schema`: an overwritten table gets the frame's columns and partitioning in place of its own.
    """
    options: dict[str, str | int] = {
        name: value for name, value in properties.items() if name.startswith("delta.")
    }
    if transaction is not None:
        options |= {"txnAppId": transaction.app_id, "txnVersion": transaction.version}
    if user_metadata is not None:
        options["userMetadata"] = user_metadata
    if replaces_schema:
        options["overwriteSchema"] = "true"
    writer = frame.write.format("delta").mode(mode).options(**options, mergeSchema=widen)
    (writer.partitionBy(*partition_by) if partition_by else writer).save(uri)


def write_rows(
    lake: Lake,
    table: Table,
    rows: "DataFrame",
    transaction: Transaction | None = None,
    *,
    user_metadata: str | None = None,
    facts: TableFacts | None = None,
) -> None:
    """One commit of rows into a table, which is made as it is declared where it is not there.

    An `Overwrite` replaces all rows, and columns and partitioning too where the table that is there as `facts` has others.
    """
    target = None if facts is None else facts.snapshot
    write_frame(
        rows,
        lake.settings.table_uri(table.key),
        mode="overwrite" if isinstance(table.write, Overwrite) else "append",
        transaction=transaction,
        partition_by=partition_columns(table),
        properties=declared_properties(table),
        user_metadata=user_metadata,
        replaces_schema=has_other_shape(rows, table, target),
    )


def has_other_shape(rows: "DataFrame", table: Table, target: Snapshot | None) -> bool:
    """Whether the rows of an `Overwrite` replace columns or partitioning of the table that is there."""
    return isinstance(table.write, Overwrite) and bool(differences_from(rows, table, target))


def differences_from(rows: "DataFrame", table: Table, target: Snapshot | None) -> tuple[str, ...]:
    """Each difference between the rows, as they are declared, and the table that is there, in words; none without a table."""
    if target is None:
        return ()
    return differences(columns_of(rows), partition_columns(table), target)


def record_transaction(spark: "SparkSession", uri: str, transaction: Transaction) -> None:
    """One commit without rows into a table that is there, under the transaction."""
    write_frame(
        spark.read.format("delta").load(uri).limit(0), uri, mode="append", transaction=transaction
    )


def merge_rows(
    spark: "SparkSession",
    rows: "DataFrame",
    snapshot: Snapshot,
    write: Merge,
    transaction: Transaction,
    *,
    are_few: bool = False,
) -> None:
    """One MERGE of rows, of which each key has one, into a table; those that would change nothing there touch no file of it.

    `are_few`: they are kept, and files of the table without a key in their range are not read.
    """
    rows, within = with_key_range(rows, write.keys) if are_few else (rows, ())
    target = table_at(spark, snapshot, within=within).alias("target")
    fresh = rows.alias("source").join(
        target, F.expr(statements.not_older(write.keys, write.order_by)), "left_anti"
    )
    merge_target = statements.MergeTarget(uri=snapshot.uri, keys=write.keys, within=within)
    merge = partial(statements.merge, merge_target, order_by=write.order_by)
    try:
        run_merge(spark, fresh, snapshot, transaction, merge)
    finally:
        with (
            late_interrupts()
        ):  # the end of kept rows is told to the server, where Python drops what is raised
            del rows, fresh


def run_merge(
    spark: "SparkSession",
    source: "DataFrame",
    snapshot: Snapshot,
    transaction: Transaction,
    statement: Callable[[str], str],
) -> None:
    """One commit of the MERGE that `statement` gives for a view of the source, under the transaction."""
    with (
        temporary_view(spark, source) as view,
        session_confs(spark, merge_confs(snapshot.properties, transaction)),
    ):
        spark.sql(statement(view))


def merge_confs(properties: Mapping[str, str], transaction: Transaction) -> dict[str, str]:
    """Settings of a session for one MERGE under the transaction, into a table with these properties.

    Rows are shuffled before they are written, unless the table's own property says otherwise: a MERGE into a table with deletion vectors
    writes a file for each task of its source, 16 where 2 would do, and writing them takes longer than the shuffle (docs/internals/study.md).
    """
    confs = {TRANSACTION_APP: transaction.app_id, TRANSACTION_VERSION: str(transaction.version)}
    return confs if OPTIMIZE_WRITE in properties else {**confs, SHUFFLED_BEFORE_WRITE: "true"}


def newest_per_key(rows: "DataFrame", write: Merge) -> "DataFrame":
    """Of the rows with the same keys the one with the greatest `order_by`, and among equals always the same one."""
    from pyspark.sql import Window

    content = content_hash(rows.schema.fields)
    newest_first = [F.col(statements.quote(name)).desc_nulls_last() for name in write.order_by]
    window = Window.partitionBy(*[statements.quote(key) for key in write.keys]).orderBy(
        *newest_first, content.desc()
    )
    return (
        rows.withColumn("_lakehouse_rank", F.row_number().over(window))
        .where("_lakehouse_rank = 1")
        .drop("_lakehouse_rank")
    )


def partition_columns(table: Table) -> tuple[str, ...]:
    """The columns that a table is partitioned by, by its declaration."""
    return table.write.partition_by if isinstance(table.write, Append) else ()


def arranged(
    frame: "DataFrame", table: Table, landed_bytes: int, row_count: int, facts: TableFacts | None
) -> "DataFrame":
    """The rows so that a batch writes as few files as it can: one per partition, or as many as reach the table's target size."""
    if facts is not None and facts.snapshot.properties.get(OPTIMIZE_WRITE) == "true":
        return frame  # Delta arranges each batch itself; to do it here too would shuffle it twice
    if by := partition_columns(table):
        return frame.repartition(*[frame[name] for name in by])
    policy = policy_for(table.layer, table.compaction)
    files, size_bytes, history = (
        ((), 0, None)
        if facts is None
        else (facts.snapshot.files, facts.snapshot.size_bytes, facts.history)
    )
    target = target_in_force(size_bytes, policy, write_history_of(history))
    return frame.coalesce(count_outputs(landed_bytes, row_count, files, target))


def check_columns(rows: "DataFrame", table: Table, snapshot: Snapshot | None) -> None:
    """Stops with `Refused` unless the rows can be written to the table that is there."""
    if snapshot is not None and not isinstance(table.write, Overwrite):
        new_columns(columns_of(rows), partition_columns(table), snapshot)


def add_columns(
    lake: Lake, spark: "SparkSession", table: Table, rows: "DataFrame", facts: TableFacts | None
) -> TableFacts | None:
    """The table's facts once it has all columns of the rows. What it lacks is added, in one commit that changes no row.

    An `Overwrite` is left as it is: it replaces the columns together with the rows.

    Raises:
        Refused: the rows differ from the table in more than that.
    """
    if facts is None or isinstance(table.write, Overwrite):
        return facts
    added = new_columns(columns_of(rows), partition_columns(table), facts.snapshot)
    if not added:
        return facts
    types = {each.column.name: _ddl(rows.schema[each.column.name].dataType) for each in added}
    spark.sql(statements.add_columns(facts.snapshot.uri, added, types))
    return lake.facts(table.key)


def columns_of(rows: "DataFrame") -> tuple[Column, ...]:
    """The columns of the rows, each with the comment of its declaration."""
    return tuple(
        Column(
            name=field.name,
            type=field.dataType.simpleString(),
            comment=str((field.metadata or {}).get("comment", "")),
        )
        for field in rows.schema.fields
    )


def _ddl(type_: "DataType") -> str:
    """A type as DDL, in which the names of a struct's members are quoted."""
    match type_.jsonValue():
        case {"type": "struct"}:
            members = cast("StructType", type_).fields
            listed = ", ".join(
                f"{statements.quote(each.name)}: {_ddl(each.dataType)}" for each in members
            )
            return f"STRUCT<{listed}>"
        case {"type": "array"}:
            return f"ARRAY<{_ddl(cast('ArrayType', type_).elementType)}>"
        case {"type": "map"}:
            key, value = cast("MapType", type_).keyType, cast("MapType", type_).valueType
            return f"MAP<{_ddl(key)}, {_ddl(value)}>"
        case _:
            return type_.simpleString()


def outcome_of(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    *,
    before: TableFacts | None,
    after: TableFacts | None,
    explanation: Explanation,
    undeclared: Sequence[str] = (),
) -> WriteOutcome:
    """The outcome of the commits between two readings of a table's log; a new table gets what could not be given to it when it was made.

    `undeclared` are columns that came with landed fields, or with an inferred schema.
    """
    if before is None or _clustering_ended(before, after):
        after = apply_strategy(lake, spark, table, after)
    known = -1 if before is None else before.snapshot.version
    commits = () if after is None else history_since(lake.store, after.history, known).commits
    return WriteOutcome(
        table=table.key,
        explanation=explanation,
        rows_written=sum(_rows_written(commit.metrics) for commit in commits),
        strategy=strategy_in_force(table, before),
        properties_left={} if after is None else strategy_changes(table, after).left,
        columns_added=tuple(dict.fromkeys([*undeclared, *_added_between(before, after)])),
        facts=after,
    )


def _clustering_ended(before: TableFacts, after: TableFacts | None) -> bool:
    """Whether the table lost its clustering, as by each overwrite. Source: delta-io/delta v4.4.0, WriteIntoDelta.scala, getNewDomainMetadata."""
    if after is None:
        return False
    return bool(before.snapshot.clustering_columns) and not after.snapshot.clustering_columns


def _added_between(before: TableFacts | None, after: TableFacts | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    known = {column.name for column in before.snapshot.columns}
    return tuple(each.name for each in after.snapshot.columns if each.name not in known)


def _rows_written(metrics: Mapping[str, str]) -> int:
    merged = ("numTargetRowsInserted", "numTargetRowsUpdated")
    names = merged if merged[0] in metrics else ("numOutputRows",)
    counts = (metrics.get(name, "0") for name in names)
    return sum(
        int(count) for count in counts if count.isdigit()
    )  # somebody else's commits are among them, which may say anything
