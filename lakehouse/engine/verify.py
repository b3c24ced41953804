"""The rows that a compaction wrote are those that it read.

1. The rows of the files removed are read at the version before the commit, those of the files added at the commit's own version.
2. Both are counted, and summed by a hash of their content that does not depend on their order, for each partition.
3. Are they the same, the compaction stands.
4. Are they not, or cannot the files added be read, the version before is restored, and the error says what was found.

**Safety properties**
- Nothing is restored over a version that somebody else has written after the compaction: that would lose their rows.
- What is compared is pinned by version and by file, so that other writers cannot make it differ.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.core.errors import Broken
from lakehouse.core.history import Commit
from lakehouse.core.layout import DataFile, Layout
from lakehouse.core.partition import by_name, type_of_typed_partition, typed_partition
from lakehouse.engine import sql
from lakehouse.engine.confs import HASH_MAPS, OLD_VERSIONS_REFUSED, session_confs
from lakehouse.engine.lake import Lake
from lakehouse.engine.lines import literal_path
from lakehouse.engine.log_reader import read_facts
from lakehouse.engine.rows import content_hash
from lakehouse.engine.spark import first_line, is_conflict, is_lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

type_of_sums = Mapping[type_of_typed_partition, tuple[int, int]]

# With these features a file alone does not tell its rows: names, types or deletions come from the log.
_READ_THROUGH_LOG = frozenset({"columnMapping", "typeWidening", "typeWidening-preview"})


def verify(lake: Lake, spark: "SparkSession", before: Layout, commit: Commit) -> int:
    """The number of rows compared; `before` is the table as the compaction was planned, `commit` what it committed.

    Raises:
        Broken: they differ, or the files added cannot be read; the version before is restored if nobody has written since.
    """
    after = lake.facts(before.table)
    removed_files = _files_at(lake, before, commit.version - 1, commit.removed_paths)
    added_files = _files_at(lake, before if after is None else after.layout, commit.version, commit.added_paths)
    with session_confs(spark, {OLD_VERSIONS_REFUSED: "false", HASH_MAPS: "true"}):
        removed = _sums(spark, before, removed_files, version=commit.version - 1)
        try:
            added = _sums(spark, before, added_files, version=commit.version)
        except Exception as error:
            if not _is_unreadable(error):
                raise
            raise Broken(_undone(lake, spark, before, commit, f"its files cannot be read ({first_line(error)})")) from error
        if removed != added:
            raise Broken(_undone(lake, spark, before, commit, _difference(removed, added)))
    return sum(count for count, _ in added.values())


def _files_at(lake: Lake, known: Layout, version: int, paths: Sequence[str]) -> list[DataFile]:
    """The files of a version at these paths: from the layout at hand, or from the log as it was then if somebody else wrote in between."""
    wanted = set(paths)
    found = [file for file in known.files if file.path in wanted]
    if len(found) == len(wanted):
        return found
    facts = read_facts(lake.store, known.table, uri=known.uri, version=version)
    assert facts is not None
    return [file for file in facts.layout.files if file.path in wanted]


def _sums(spark: "SparkSession", layout: Layout, files: Sequence[DataFile], *, version: int) -> type_of_sums:
    """Rows and the sum of their hashes, by partition."""
    columns = by_name(layout.columns)
    partitions = {unquote(file.path): typed_partition(file.partition, columns) for file in files}
    sums: dict[type_of_typed_partition, tuple[int, int]] = {}
    for row in _by_file(spark, layout, files, version=version).collect():
        # Both spellings are URIs of one path; decoded once, they are its name in storage.
        name = unquote(row["path"]).rpartition(f"{layout.uri}/")[2]
        count, total = sums.get(partitions[name], (0, 0))
        sums[partitions[name]] = (count + row["row_count"], total + int(row["total"]))
    return sums


def _by_file(spark: "SparkSession", layout: Layout, files: Sequence[DataFile], *, version: int) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    table = spark.read.format("delta").option("versionAsOf", version).load(layout.uri)
    fields = [field for field in table.schema.fields if field.name not in layout.partition_columns]
    if any(file.deletion_vector for file in files) or not _READ_THROUGH_LOG.isdisjoint(layout.features):
        names = [unquote(file.path).rpartition("/")[2] for file in files]
        frame = _within_partitions(table, layout, files).where(F.col("_metadata.file_name").isin(names))
    else:
        # A table's reader opens every file of a partition to compare its name: of an unpartitioned table, that is all of it.
        frame = spark.read.schema(StructType(fields)).parquet(*[literal_path(f"{layout.uri}/{unquote(file.path)}") for file in files])
    total = F.sum(content_hash(fields).cast("decimal(38,0)"))
    return frame.groupBy(F.col("_metadata.file_path").alias("path")).agg(F.count(F.lit(1)).alias("row_count"), total.alias("total"))


def _within_partitions(table: "DataFrame", layout: Layout, files: Sequence[DataFile]) -> "DataFrame":
    if not layout.partition_columns:
        return table
    partitions = sorted({file.partition for file in files}, key=str)
    return table.where(sql.partition_predicate(layout.columns, partitions))


def _is_unreadable(error: Exception) -> bool:
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and not is_lost(error) and not is_conflict(error)


def _difference(removed: type_of_sums, added: type_of_sums) -> str:
    differing = [key for key in removed.keys() | added.keys() if removed.get(key) != added.get(key)]
    return f"{_told(removed)} became {_told(added)}, differing in {len(differing)} partition(s)"


def _undone(lake: Lake, spark: "SparkSession", before: Layout, commit: Commit, why: str) -> str:
    """What happened, after the version before was restored, where that loses nobody's rows."""
    found = f"compaction of {before.table}: version {commit.version} was to have the rows of version {commit.version - 1}, but {why}"
    now = lake.facts(before.table)
    newest = commit.version if now is None else now.layout.version
    if newest != commit.version:
        return (
            f"{found}; nothing is restored, since version {newest} was written after it; look at versions {commit.version - 1} and {newest}"
        )
    try:
        spark.sql(sql.restore(before.uri, commit.version - 1))
    except Exception as error:  # what was found must be told, whatever became of the remedy
        return f"{found}; restoring version {commit.version - 1} failed ({type(error).__name__}), version {commit.version} is still there"
    return f"{found}; version {commit.version - 1} is restored"


def _told(sums: type_of_sums) -> str:
    return f"{sum(count for count, _ in sums.values())} rows (checksum {sum(total for _, total in sums.values())})"
