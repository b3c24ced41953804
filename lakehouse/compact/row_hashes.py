"""Row counts and sums of row hashes of data files, by partition, computed by Spark.

Spark handles deletion vectors, renamed columns and dates in old calendars. If Spark's answer lacks
a file, the file counts as empty only if the log shows that it has no rows left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.base.errors import Broken
from lakehouse.base.paths import bare_uri, is_absolute
from lakehouse.delta.partition_values import TypedPartition, by_name, typed_partition
from lakehouse.delta.snapshot import Column, DataFile, Snapshot
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark import statements
from lakehouse.spark.errors import is_conflict, is_lost, is_of_spark
from lakehouse.spark.frames import content_hash, literal_path, table_at
from lakehouse.spark.temporary_confs import (
    ANSI,
    HASH_MAPS,
    OLD_VERSIONS_REFUSED,
    OPEN_BYTES,
    OPEN_COST,
    READ_WHOLE,
    session_confs,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A row count, and the sum of the hashes of these rows.
RowSum = tuple[int, int]
PartitionSums = Mapping[TypedPartition, RowSum]

# With these features, names and types of columns come from the log, not from the file.
READ_THROUGH_LOG = frozenset({"columnMapping", "typeWidening", "typeWidening-preview"})
READ_CONFS = {
    ANSI: "false",  # a partition value that cannot be cast is null, as it is for the compaction
    OLD_VERSIONS_REFUSED: "false",
    HASH_MAPS: "true",
    OPEN_COST: str(OPEN_BYTES),  # one task reads many small files
    **READ_WHOLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The files that one commit removed, or added, as they were at `version`."""

    version: int
    files: tuple[DataFile, ...]


def content_sums(
    spark: "SparkSession", snapshot: Snapshot, sides: Sequence[Side]
) -> list[PartitionSums]:
    """For each side, row counts and sums of hashes by partition."""
    with session_confs(spark, READ_CONFS):
        return spark_sums(spark, snapshot, sides)


def spark_sums(
    spark: "SparkSession", snapshot: Snapshot, sides: Sequence[Side]
) -> list[PartitionSums]:
    """For each side, row counts and sums of hashes by partition, in as few jobs as possible."""
    all_through_log = not READ_THROUGH_LOG.isdisjoint(snapshot.features)

    def is_plain(file: DataFile) -> bool:
        return not all_through_log and file.deletion_vector is None

    plain_files = [file for side in sides for file in side.files if is_plain(file)]
    plain_paths = {_path(snapshot, file.path) for file in plain_files}
    # The newest version has the same columns as the others, and Delta has it in memory.
    newest = max(side.version for side in sides)
    plain_sums: Mapping[str, RowSum] = {}
    if plain_paths:
        rows = _read_files(spark, snapshot, plain_paths, version=newest)
        plain_sums = _by_file(snapshot, rows)
    columns = by_name(snapshot.columns)
    sums = list[PartitionSums]()
    for side in sides:
        through_log = [file for file in side.files if not is_plain(file)]
        log_sums: Mapping[str, RowSum] = {}
        if through_log:
            rows = _read_table(spark, snapshot, through_log, version=side.version)
            log_sums = _by_file(snapshot, rows)
        file_sums = list[RowSum]()
        for file in side.files:
            answer = plain_sums if is_plain(file) else log_sums
            file_sums.append(_sum_of(snapshot, file, answer))
        sums.append(sums_by_partition(side, file_sums, columns))
    return sums


def sums_by_partition(
    side: Side, file_sums: Iterable[RowSum], columns: Mapping[str, Column]
) -> PartitionSums:
    """The sums of a side, added up from the sums of its files, without empty partitions."""
    sums: dict[TypedPartition, RowSum] = {}
    for file, (row_count, hash_sum) in zip(side.files, file_sums, strict=True):
        if row_count:
            partition = typed_partition(file.partition, columns)
            partition_count, partition_sum = sums.get(partition, (0, 0))
            sums[partition] = (partition_count + row_count, partition_sum + hash_sum)
    return sums


def _sum_of(snapshot: Snapshot, file: DataFile, answer: Mapping[str, RowSum]) -> RowSum:
    """The sum of one file, from Spark's answer.

    The answer lacks files without rows.

    Raises:
        Broken: the answer lacks the file, and the log does not show that it has no rows left.
    """
    path = _comparable_path(snapshot, file.path)
    if path in answer:
        return answer[path]
    if file.row_count is not None and file.row_count == file.deleted_row_count:
        return 0, 0
    raise Broken(
        f"compaction of {snapshot.table}: its rows cannot be compared, because Spark's answer, "
        f"which names {len(answer)} file(s), lacks {path}. Nothing is restored. "
        "Check the newest versions of the table"
    )


def _by_file(snapshot: Snapshot, frame: "DataFrame") -> Mapping[str, RowSum]:
    """The row count and the sum of hashes of each file with rows, by its path."""
    fields = [
        field for field in frame.schema.fields if field.name not in snapshot.partition_columns
    ]
    hashed = frame.select(
        F.col("_metadata.file_path").alias("path"), content_hash(fields).alias("hash")
    )
    # Two sums of half a hash each cannot overflow, and cost a tenth of one sum of decimals.
    high = F.sum(F.shiftright("hash", 32))
    low = F.sum(F.col("hash").bitwiseAND(F.lit(0xFFFFFFFF)))
    rows = (
        hashed.groupBy("path")
        .agg(F.count(F.lit(1)).alias("row_count"), high.alias("high"), low.alias("low"))
        .collect()
    )
    sums = dict[str, RowSum]()
    for row in rows:
        hash_sum = (row["high"] << 32) + row["low"]
        sums[_comparable_path(snapshot, row["path"])] = (row["row_count"], hash_sum)
    return sums


def _path(snapshot: Snapshot, path: str) -> str:
    """The full path of a file. The log and Spark both give a URI that is encoded once."""
    return unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"


def _comparable_path(snapshot: Snapshot, path: str) -> str:
    """The canonical form of a file's full path, for comparisons."""
    return bare_uri(_path(snapshot, path))


def _read_files(
    spark: "SparkSession", snapshot: Snapshot, paths: Iterable[str], *, version: int
) -> "DataFrame":
    """The rows of data files, read as plain Parquet.

    If Delta read the table with a condition on file names, it would open every file of a partition.
    """
    from pyspark.sql.types import StructType

    table = table_at(spark, snapshot, version=version)
    fields = [
        field for field in table.schema.fields if field.name not in snapshot.partition_columns
    ]
    return spark.read.schema(StructType(fields)).parquet(*map(literal_path, sorted(paths)))


def _read_table(
    spark: "SparkSession", snapshot: Snapshot, files: Sequence[DataFile], *, version: int
) -> "DataFrame":
    """The rows that the table had at `version` in the partitions of these files.

    All files of these partitions are read, because a condition on file names would save nothing.
    """
    table = table_at(spark, snapshot, version=version)
    if not snapshot.partition_columns:
        return table
    partitions = sorted({file.partition for file in files}, key=str)
    return table.where(statements.partition_predicate(snapshot.columns, partitions))


def is_unreadable(error: Exception) -> bool:
    """Whether files may be missing or damaged. False if the server was lost, or for a conflict."""
    return is_of_spark(error) and not is_lost(error) and not is_conflict(error)
