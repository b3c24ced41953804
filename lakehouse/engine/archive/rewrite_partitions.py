"""Rewrites the rows of partitions as plain Parquet, before they are copied into the archive.

The files stay below `_lakehouse/archives/<layer>/<name>/staged/` until their operation is applied
or withdrawn. The rows of each partition are counted and hashed, both in the table and in the new
files.

Source: apache/spark v4.2.0, InMemoryFileIndex: Spark reads files in hidden folders if the given
path is inside such a folder.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.core.archive.archived_files import ArchivedNames, typed_in, values_in_folders
from lakehouse.core.archive.plan import LeavingPartition
from lakehouse.core.delta.partition_values import TypedPartition
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken
from lakehouse.engine.archive.copies import SourceFile
from lakehouse.engine.archive.records import clear_rewritten, staged_folder
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import content_hash, literal_path, table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# For each partition, by its values: the row count, and the sums of the upper and the lower halves
# of the row hashes.
RowSums = dict[tuple[object, ...], tuple[int, int, int]]


def stage_rewritten(
    session: TableSession,
    snapshot: Snapshot,
    partitions: Sequence[LeavingPartition],
    names: ArchivedNames,
) -> dict[TypedPartition, list[SourceFile]]:
    """Writes the rows of these partitions to staged files; returns the files by partition.

    Earlier staged files of the table are deleted first. `names` chooses the names of the copies.

    Raises:
        Broken: the written rows differ from the table's rows.
    """
    clear_rewritten(session.lake, session.key)
    columns = snapshot.columns
    predicate = statements.partition_predicate(columns, [each.values for each in partitions])
    rows = table_at(session.spark, snapshot, within=[predicate])
    folder = staged_folder(session.key)
    uri = f"{session.lake.settings.spark_root}/{folder}"
    rows.write.partitionBy(*snapshot.partition_columns).mode("overwrite").parquet(uri)
    written = session.spark.read.schema(rows.schema).parquet(literal_path(uri))
    if _sums(rows, snapshot) != _sums(written, snapshot):
        raise Broken(
            f"archive of {session.key}: the rows that Spark rewrote differ from those of version"
            f" {snapshot.version}. The table is unchanged. Check the table, then run the archive"
            " again"
        )
    by_partition = {typed_in(snapshot, each.values): each for each in partitions}
    files: dict[TypedPartition, list[SourceFile]] = {each: [] for each in by_partition}
    for file in session.lake.store.list(folder):
        *folders, base_name = file.name.removeprefix(f"{folder}/").split("/")
        if not folders or base_name.startswith(("_", ".")):
            continue
        typed = typed_in(snapshot, values_in_folders(folders))
        source = SourceFile(
            path=file.name,
            name=file.name,
            archived=names.name_for(by_partition[typed].values, base_name),
            size_bytes=file.size_bytes,
            row_count=None,
        )
        files[typed].append(source)
    return files


def _sums(rows: "DataFrame", snapshot: Snapshot) -> RowSums:
    """The row count of each partition, and the sums of its row hashes."""
    keys = [statements.quote(name) for name in snapshot.partition_columns]
    fields = [field for field in rows.schema.fields if field.name not in snapshot.partition_columns]
    hashed = rows.select(*keys, content_hash(fields).alias("_hash"))
    high = F.sum(F.shiftright("_hash", 32))
    low = F.sum(F.col("_hash").bitwiseAND(F.lit(0xFFFFFFFF)))
    sums = hashed.groupBy(*keys).agg(F.count(F.lit(1)), high, low).collect()
    return {tuple(row[: len(keys)]): tuple(row[len(keys) :]) for row in sums}
