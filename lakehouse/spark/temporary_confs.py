"""Session settings for one block of code.

Spark accepts misspelt names without an error, so each name is a constant here. Settings that hold
for every session are in `spark/server/conf.py`.
"""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse.delta.snapshot import Snapshot
from lakehouse.spark.errors import is_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Sessions whose settings may not have been restored. Over Connect, `connect` replaces such a
# session.
discarded = weakref.WeakSet["SparkSession"]()

TRANSACTION_APP = "spark.databricks.delta.write.txnAppId"
TRANSACTION_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
SMALLER_THAN = "spark.databricks.delta.optimize.minFileSize"
UP_TO = "spark.databricks.delta.optimize.maxFileSize"
DELETED_ROWS = "spark.databricks.delta.optimize.maxDeletedRowsRatio"
# OPTIMIZE commits after each so many bytes, so that a later conflict loses less.
# Source: delta-io/delta v4.4.0, OptimizeTableCommand.scala, batchSize
COMMITTED_BYTES = "spark.databricks.delta.optimize.batchSize"
RECORDS_PER_FILE = "spark.sql.files.maxRecordsPerFile"
# On: rows are shuffled into files of 512 MiB before they are written. The session's setting takes
# precedence over the table's property.
# Source: Delta Lake 4.4.0, TransactionalWrite.scala, shouldOptimizeWrite
SHUFFLED_BEFORE_WRITE = "spark.databricks.delta.optimizeWrite.enabled"
# On: OPTIMIZE reads the files of a bin with all cores, and shuffles their rows to the core that
# writes. Off: one core does both.
READ_BIN_IN_PARALLEL = "spark.databricks.delta.optimize.repartition.enabled"
# The cost of opening a file, which is added to its bytes when files are packed into tasks. With the
# default of 4 MB, a task gets only 32 small files.
OPEN_COST = "spark.sql.files.openCostInBytes"
# A value for OPEN_COST: in the time of opening a small file, this many bytes can be read.
OPEN_BYTES = 64 * 1024
# `dynamic`: an overwrite replaces only the partitions for which it has rows.
PARTITIONS_OVERWRITTEN = "spark.sql.sources.partitionOverwriteMode"
# Off: an expression that fails gives null. On: the whole statement fails, so that a single bad row
# would block its batch forever.
ANSI = "spark.sql.ansi.enabled"

# ADAPTIVE off: a plan is not revised while it runs. WHOLE_STAGE off: it is interpreted, not
# compiled. In a statement of many small jobs, revising and compiling takes longer than running the
# jobs.
ADAPTIVE = "spark.sql.adaptive.enabled"
WHOLE_STAGE = "spark.sql.codegen.wholeStage"
# `NO_CODEGEN`: expressions are interpreted, too.
# Source: Spark 4.2.0, SQLConf.scala, CODEGEN_FACTORY_MODE
EXPRESSIONS_COMPILED = "spark.sql.codegen.factoryMode"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
INTERPRETED = {
    ADAPTIVE: "false",
    WHOLE_STAGE: "false",
    EXPRESSIONS_COMPILED: "NO_CODEGEN",
    SHUFFLE_PARTITIONS: "1",
}
# A statement over more rows or bytes is faster if it is compiled and runs in parallel.
# Source: docs/internals/benchmarks/interpreted.json
INTERPRETED_ROWS = 100_000
INTERPRETED_BYTES = 16 * 1024 * 1024
# A landed record costs as much as this many rows of a table.
_ROWS_PER_RECORD = 10
# The number of rows (`None` if unknown) and the number of bytes.
Size = tuple[float | None, int]
# A MERGE reads this many rows of the table in the time that it takes to read one whole row, because
# it reads few columns and only files that the batch may touch.
# Source: docs/internals/benchmarks/interpreted.json
_MERGED_INTO_ROWS = 3
# The most bytes of rows whose key range is computed, because the server stores these rows in its
# memory and on its disk.
_STORED_BYTES = 32 * 1024 * 1024
# The key range is computed only if the table is at least this many times as large as the rows.
_LEAST_RATIO = 4
# With fewer rows in the table, computing the range takes as long as it saves.
# Source: docs/internals/benchmarks/interpreted.json
_LEAST_ROWS = 10_000


def confs_to_read(read: Sequence[Size], *, records: int = 0) -> Mapping[str, str]:
    """Settings for statements that read these amounts: `INTERPRETED` if they are small, or none.

    `records` is the number of landed records among them. If the number of rows of one amount is
    unknown, so is their sum.
    """
    size_bytes = sum(read_bytes for _, read_bytes in read)
    if size_bytes > INTERPRETED_BYTES:
        return {}
    total_rows = records * _ROWS_PER_RECORD
    for rows, _ in read:
        if rows is None:
            return {}
        total_rows += rows
    return INTERPRETED if total_rows <= INTERPRETED_ROWS else {}


def are_few(size_bytes: int, snapshot: Snapshot) -> bool:
    """Whether rows of this size are so few that a MERGE should compute their key range first.

    False if the table is small, or its row count is unknown.
    """
    rows = snapshot.row_count
    return (
        size_bytes <= _STORED_BYTES
        and size_bytes * _LEAST_RATIO <= snapshot.size_bytes
        and rows is not None
        and rows >= _LEAST_ROWS
    )


def merged_into(snapshot: Snapshot) -> Size:
    """What a MERGE reads of a table: whole rows that take as long to read, and the table's size."""
    rows, size_bytes = whole_table(snapshot)
    return None if rows is None else rows / _MERGED_INTO_ROWS, size_bytes


def whole_table(snapshot: Snapshot) -> Size:
    """The rows and bytes of a whole table."""
    return snapshot.row_count, snapshot.size_bytes


@contextlib.contextmanager
def session_confs(spark: "SparkSession", values: Mapping[str, str]) -> Iterator[None]:
    """Gives the session these settings inside the `with` block, then restores the previous values.

    Unsetting them instead would give Spark's defaults, for example 200 shuffle partitions, and not
    the server's. A session whose settings cannot be restored is discarded. Otherwise, the next
    write in that session would have the transaction id of this one.
    """
    previous = dict[str, str | None]()
    try:
        current = spark.conf.getAll  # one request for all settings
        previous.update({name: current.get(name) for name in values})
        change_confs(spark, values)
        yield
    except BaseException as error:
        if is_lost(error):
            discarded.add(spark)
        else:
            with contextlib.suppress(Exception):  # the block's own error is raised instead
                _restore(spark, previous)
        raise
    _restore(spark, previous)


def _restore(spark: "SparkSession", previous: Mapping[str, str | None]) -> None:
    try:
        change_confs(spark, previous)
    except BaseException:
        discarded.add(spark)
        raise


def change_confs(spark: "SparkSession", values: Mapping[str, str | None]) -> None:
    """Sets each setting that has a value, and unsets the others.

    A Connect server gets two requests at most: a request for each setting made a small compaction
    16 ms slower, which is as much as its verification takes.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    values_set = {name: value for name, value in values.items() if value is not None}
    names_unset = [name for name, value in values.items() if value is None]
    conf: Any = spark.conf
    if not isinstance(spark, ConnectSession):
        for name, value in values_set.items():
            conf.set(name, value)
        for name in names_unset:
            conf.unset(name)
        return
    from pyspark.sql.connect.proto import ConfigRequest

    if values_set:
        conf._set_all(values_set, silent=False)  # PySpark has no public method for this
    if names_unset:
        change = ConfigRequest.Unset(keys=names_unset)
        spark.client.config(ConfigRequest.Operation(unset=change))
