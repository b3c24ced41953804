"""Runs the statement of a compaction in Spark."""

from typing import TYPE_CHECKING, assert_never

from lakehouse.core.compaction.bins import (
    Clustering,
    Packing,
    PackingInLogOrder,
    Purge,
    ZOrdering,
)
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.spark import statements, temporary_confs
from lakehouse.engine.spark.prepare_session import task_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_statement(
    spark: "SparkSession",
    snapshot: Snapshot,
    planned: CompactionPlan,
    user_metadata: str,
    *,
    cores: int | None,
) -> None:
    """Runs the plan's statement. Its commits contain `user_metadata`.

    `cores` is the number of cores if Spark runs on this machine. With `None`, the cluster is asked
    for its number of task slots.
    """
    predicate = None
    if planned.partitions is not None:
        predicate = statements.partition_predicate(snapshot.columns, planned.partitions)
    confs = {
        temporary_confs.UP_TO: str(planned.statement.up_to_bytes),
        temporary_confs.RECORDS_PER_FILE: "0",  # no limit, so that a bin becomes one file
        temporary_confs.USER_METADATA: user_metadata,
        **temporary_confs.READ_WHOLE,
    }
    if snapshot.partition_columns:
        # A partition value that cannot be cast to its column's type becomes null, not an error. On
        # other tables, this setting would only make the rewrite slower, by 3 %.
        confs[temporary_confs.ANSI] = "false"
    match planned.statement:
        case Packing(smaller_than_bytes=smaller_than_bytes, max_deleted_rows_ratio=ratio):
            confs |= {
                temporary_confs.SMALLER_THAN: str(smaller_than_bytes),
                temporary_confs.DELETED_ROWS: str(ratio),
            }
            open_bytes = temporary_confs.OPEN_BYTES * planned.files_removed
            has_small_files = planned.bytes_removed < open_bytes
            # Without these settings, one core reads each bin, and other cores are idle. Opening
            # small files takes longer than the shuffle that several readers of a bin need.
            if has_small_files and len(planned.bins) < (cores or task_slots(spark)):
                confs |= {
                    temporary_confs.READ_BIN_IN_PARALLEL: "true",
                    temporary_confs.OPEN_COST: str(temporary_confs.OPEN_BYTES),
                }
            statement = statements.optimize(snapshot.uri, predicate)
        case ZOrdering(columns=columns):
            statement = statements.optimize(snapshot.uri, predicate, zorder_by=columns)
        case Clustering():
            statement = statements.optimize(snapshot.uri, None)
        case Purge():
            statement = statements.purge(snapshot.uri, predicate)
        case PackingInLogOrder():
            raise AssertionError("deltalake runs this plan")
        case _:
            assert_never(planned.statement)
    with temporary_confs.session_confs(spark, confs):
        spark.sql(statement)
