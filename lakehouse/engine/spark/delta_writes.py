"""Commits DataFrames to Delta tables, with transaction ids by which repeated writes are skipped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse.core.delta.protocol import OPTIMIZE_WRITE
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.spark.frames import temporary_view
from lakehouse.engine.spark.temporary_confs import (
    SHUFFLED_BEFORE_WRITE,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    session_confs,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The transaction id of a commit. `version` increases with each commit of an `app_id`.

    Delta skips a write whose `version` is not greater than the newest one in the table's log.
    """

    app_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameWrite:
    """How a DataFrame is written to a table.

    `mode` is "append" or "overwrite". With `adds_columns`, columns that only the frame has are
    added to the table. With `replaces_schema`, an overwritten table gets the frame's columns and
    partitioning. If the commit creates the table, the table gets the `properties` that begin with
    `delta.`.
    """

    mode: str
    adds_columns: bool = False
    replaces_schema: bool = False
    transaction: Transaction | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    user_metadata: str | None = None


def write_frame(frame: "DataFrame", uri: str, write: FrameWrite) -> None:
    """Writes the rows of a frame in one commit."""
    options: dict[str, str | int] = {
        name: value for name, value in write.properties.items() if name.startswith("delta.")
    }
    if write.transaction is not None:
        options["txnAppId"] = write.transaction.app_id
        options["txnVersion"] = write.transaction.version
    if write.user_metadata is not None:
        options["userMetadata"] = write.user_metadata
    if write.replaces_schema:
        options["overwriteSchema"] = "true"
    writer = frame.write.format("delta").mode(write.mode).options(**options)
    writer = writer.option("mergeSchema", write.adds_columns)
    if write.partition_by:
        writer = writer.partitionBy(*write.partition_by)
    writer.save(uri)


def run_merge(
    spark: "SparkSession",
    source: "DataFrame",
    snapshot: Snapshot,
    transaction: Transaction,
    statement: Callable[[str], str],
) -> None:
    """Runs the MERGE that `statement` returns for the name of a view of the source."""
    confs = merge_confs(snapshot.properties, transaction)
    with temporary_view(spark, source) as view, session_confs(spark, confs):
        spark.sql(statement(view))


def merge_confs(properties: Mapping[str, str], transaction: Transaction) -> dict[str, str]:
    """Session settings for one MERGE into a table with these properties.

    Rows are shuffled before they are written, unless a table property decides about the shuffle.
    Without a shuffle, a MERGE into a table with deletion vectors writes one file per source task,
    for example 16 files instead of 2, which takes longer (docs/internals/study.md).
    """
    confs = {TRANSACTION_APP: transaction.app_id, TRANSACTION_VERSION: str(transaction.version)}
    if OPTIMIZE_WRITE not in properties:
        confs[SHUFFLED_BEFORE_WRITE] = "true"
    return confs
