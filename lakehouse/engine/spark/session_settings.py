"""Session settings for the length of one block, by names that are known to exist: Spark takes a misspelt one without a word."""

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakehouse.engine.spark.errors import is_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Sessions whose settings may not be their own any more; no operation gets one of them again.
discarded = weakref.WeakSet["SparkSession"]()

TRANSACTION_APP = "spark.databricks.delta.write.txnAppId"
TRANSACTION_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
SMALLER_THAN = "spark.databricks.delta.optimize.minFileSize"
UP_TO = "spark.databricks.delta.optimize.maxFileSize"
DELETED_ROWS = "spark.databricks.delta.optimize.maxDeletedRowsRatio"
RECORDS_PER_FILE = "spark.sql.files.maxRecordsPerFile"
AUTO_COMPACT_SMALLER_THAN = "spark.databricks.delta.autoCompact.minFileSize"
AUTO_COMPACT_UP_TO = "spark.databricks.delta.autoCompact.maxFileSize"
AUTO_COMPACT_MIN_FILES = "spark.databricks.delta.autoCompact.minNumFiles"
# On: rows are shuffled into files of 512 MiB before they are written. The session's word stands above the table's property.
# Source: Delta Lake 4.4.0, TransactionalWrite.scala, shouldOptimizeWrite
SHUFFLED_BEFORE_WRITE = "spark.databricks.delta.optimizeWrite.enabled"
# On: OPTIMIZE reads the files of a bin with all cores, and shuffles their rows to the one that writes; off, one core does both.
READ_BIN_IN_PARALLEL = "spark.databricks.delta.optimize.repartition.enabled"
# The cost of a file beside its bytes, when files are packed into tasks; 4 MB by default, which makes a task of each 32 small files.
OPEN_COST = "spark.sql.files.openCostInBytes"
# `dynamic`: an overwrite takes the place of those partitions alone that it has rows for.
PARTITIONS_OVERWRITTEN = "spark.sql.sources.partitionOverwriteMode"
# The cost of opening a small file, told as bytes that could be read instead.
OPEN_BYTES = 64 * 1024
# Off: an expression over a row that is odd gives null; on, it ends the whole statement, and one row would block its batch for ever.
ANSI = "spark.sql.ansi.enabled"
# Off: a file that is broken or gone is an error; on, a reader passes it over, and a rewrite of it loses its rows without a word.
READ_WHOLE = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# A content hash compares a map as it is stored, entry by entry, which a rewrite of files leaves alone.
HASH_MAPS = "spark.sql.legacy.allowHashOnMapType"
# On: a version older than the retention of deleted files cannot be read, even if its files are all there.
# Source: Delta Lake 4.4.0, DeltaSQLConf
OLD_VERSIONS_REFUSED = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)

# Off: plans are run as they stand, and interpreted. A statement of many small jobs takes longer to plan again and to compile than to run.
ADAPTIVE = "spark.sql.adaptive.enabled"
WHOLE_STAGE = "spark.sql.codegen.wholeStage"
# `NO_CODEGEN`: expressions are interpreted, too. Source: Spark 4.2.0, SQLConf.scala, CODEGEN_FACTORY_MODE
EXPRESSIONS_COMPILED = "spark.sql.codegen.factoryMode"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
INTERPRETED = {
    ADAPTIVE: "false",
    WHOLE_STAGE: "false",
    EXPRESSIONS_COMPILED: "NO_CODEGEN",
    SHUFFLE_PARTITIONS: "1",
}
# A statement over more rows or bytes than these is faster compiled and in parallel; a landed record costs as much as ten rows of a table.
# Source: docs/internals/benchmarks/interpreted.json
INTERPRETED_ROWS, INTERPRETED_BYTES, _ROWS_PER_RECORD = 100_000, 16 * 1024 * 1024, 10


def confs_for(*, rows: float | None, size_bytes: int, records: int = 0) -> Mapping[str, str]:
    """Settings for statements over so many rows (`None`: unknown) and bytes of tables, and so many landed records: interpreted if few."""
    few = (
        rows is not None
        and rows + records * _ROWS_PER_RECORD <= INTERPRETED_ROWS
        and size_bytes <= INTERPRETED_BYTES
    )
    return INTERPRETED if few else {}


@contextlib.contextmanager
def session_confs(spark: "SparkSession", values: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings inside the `with`, and those that it had before after it.

    To unset one would give it Spark's own default, and not what the server was started with: 200 shuffle partitions, for one.
    A session that cannot be given them back is discarded: the next to use it would write under its predecessor's transaction id.
    """
    before = dict[str, str | None]()
    try:
        known = spark.conf.getAll  # one request for all of them
        before.update({name: known.get(name) for name in values})
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    except BaseException as error:
        if is_lost(error):
            discarded.add(spark)
        else:
            with contextlib.suppress(Exception):  # the first error is the one to tell
                _give_back(spark, before)
        raise
    _give_back(spark, before)


def _give_back(spark: "SparkSession", before: Mapping[str, str | None]) -> None:
    try:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
    except BaseException:
        discarded.add(spark)
        raise
