"""Session settings for one block of code.

Spark accepts misspelt names without an error, so each name is a constant here. Settings that hold
for every session are in `spark/server/conf.py`.
"""

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

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
# Off: a broken or missing file is an error. On: readers skip it, and a rewrite loses its rows.
READ_WHOLE = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# On: maps can be hashed, with their entries in the stored order. A rewrite keeps that order.
HASH_MAPS = "spark.sql.legacy.allowHashOnMapType"
# On: a version older than the retention of deleted files cannot be read, even if all of its files
# exist.
# Source: Delta Lake 4.4.0, DeltaSQLConf
OLD_VERSIONS_REFUSED = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)

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


def confs_for(*, rows: float | None, size_bytes: int, records: int = 0) -> Mapping[str, str]:
    """Settings for statements that read this much data: `INTERPRETED` for a small amount, or none.

    `rows` (`None` if unknown) are rows of tables, `records` are landed records, and `size_bytes`
    is the size of both.
    """
    if rows is None or size_bytes > INTERPRETED_BYTES:
        return {}
    return INTERPRETED if rows + records * _ROWS_PER_RECORD <= INTERPRETED_ROWS else {}


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
    if not isinstance(spark, ConnectSession):
        for name, value in values_set.items():
            spark.conf.set(name, value)
        for name in names_unset:
            spark.conf.unset(name)
        return
    from pyspark.sql.connect.proto import ConfigRequest, KeyValue

    if values_set:
        pairs = [KeyValue(key=name, value=value) for name, value in values_set.items()]
        change = ConfigRequest.Set(pairs=pairs)
        spark.client.config(ConfigRequest.Operation(set=change))
    if names_unset:
        change = ConfigRequest.Unset(keys=names_unset)
        spark.client.config(ConfigRequest.Operation(unset=change))
