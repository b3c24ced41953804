"""Commits DataFrames to Delta tables: a repeated write is recognized, a conflict is retried."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from lakehouse.base.clock import pause_about
from lakehouse.delta.protocol import OPTIMIZE_WRITE
from lakehouse.delta.snapshot import Snapshot
from lakehouse.spark.errors import is_conflict
from lakehouse.spark.frames import temporary_view
from lakehouse.spark.temporary_confs import (
    SHUFFLED_BEFORE_WRITE,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    session_confs,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BACKOFF_SECONDS = (0.2, 0.8, 2.0)
_MOST_TRIES = len(_BACKOFF_SECONDS) + 1

T = TypeVar("T")


def retry_conflicts(work: Callable[[], T], *, tries: int = _MOST_TRIES) -> T:
    """The result of `work`, which is called again after a conflict, up to `tries` times in all.

    Callers may ask for fewer `tries`, as compactions do. Each call must read its facts again. The
    last conflict is raised unchanged. The caller turns it into one of our errors with
    `spark.errors.translated`.
    """
    for seconds in _BACKOFF_SECONDS[: tries - 1]:
        try:
            return work()
        except Exception as error:
            if not is_conflict(error):
                raise
        pause_about(seconds)  # lets the other writer finish
    return work()


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
