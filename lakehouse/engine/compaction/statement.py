"""The statement of a plan, run with the very settings that the plan was made for."""

import json
from typing import TYPE_CHECKING, assert_never

from lakehouse.core.compaction.bins import Clustering, Packing, Purge, ZOrdering
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.clock import now_ms
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import (
    DELETED_ROWS,
    OPEN_BYTES,
    OPEN_COST,
    READ_BIN_IN_PARALLEL,
    READ_WHOLE,
    RECORDS_PER_FILE,
    SMALLER_THAN,
    UP_TO,
    USER_METADATA,
    session_confs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_statement(spark: "SparkSession", snapshot: Snapshot, planned: CompactionPlan, mark: str, *, cores: int) -> None:
    """The plan's statement done by a driver of so many cores.

    Its commit carries the plan's figures and `mark`, by which it is found again.
    """
    predicate = None if planned.partitions is None else statements.partition_predicate(snapshot.columns, planned.partitions)
    confs = {
        UP_TO: str(planned.statement.up_to_bytes),
        RECORDS_PER_FILE: "0",  # no limit, so that a bin becomes one file
        USER_METADATA: _metadata(planned, mark),
        **READ_WHOLE,
    }
    match planned.statement:
        case Packing(smaller_than_bytes=smaller_than_bytes, max_deleted_rows_ratio=ratio):
            confs |= {SMALLER_THAN: str(smaller_than_bytes), DELETED_ROWS: str(ratio)}
            if len(planned.bins) < cores and planned.bytes_removed < OPEN_BYTES * planned.files_removed:
                # A core is idle, and to open the files takes longer than to read them, and to shuffle their few bytes.
                confs |= {READ_BIN_IN_PARALLEL: "true", OPEN_COST: str(OPEN_BYTES)}
            statement = statements.optimize(snapshot.uri, predicate)
        case ZOrdering(columns=columns):
            statement = statements.optimize(snapshot.uri, predicate, zorder_by=columns)
        case Clustering():
            statement = statements.optimize(snapshot.uri, None)
        case Purge():
            statement = statements.purge(snapshot.uri, predicate)
        case _:
            assert_never(planned.statement)
    with session_confs(spark, confs):
        spark.sql(statement)


def _metadata(planned: CompactionPlan, mark: str) -> str:
    """The plan's figures for the commit: a few hundred bytes, however many files it names.

    `started_ms` goes with them, since what the log knows of an OPTIMIZE ends with its commit and begins nowhere.
    """
    figures = {name: value for name, value in planned.as_json().items() if name != "bins"}
    return json.dumps({"compaction": mark, "started_ms": now_ms(), "plan": figures}, separators=(",", ":"))
