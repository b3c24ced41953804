"""Refuses landed rows of partitions that belong to the table's archive (`late="refuse"`)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse.core.archive.partition_times import partition_spans
from lakehouse.core.archive.records import ArchiveOperation
from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import PartitionValues, Snapshot
from lakehouse.engine.archive.records import archive_operations
from lakehouse.engine.ingest.parse_lines import LATE, REASON
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import partition_predicate, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_late_rows_refused(session: TableSession, rows: "DataFrame") -> "DataFrame":
    """The parsed records, with a reason added to records of archived partitions.

    A partition counts as archived if it ended by the cutoff and is not in the table. The cutoff is
    the newest cutoff of the archive operations that are applied to the table. It cannot change
    until the batch is written, because the caller holds the table's lock.
    """
    facts = session.lake.facts(session.key)
    if facts is None:
        return rows
    snapshot = facts.snapshot
    cutoff_ms = _cutoff_ms(archive_operations(session.lake.store, session.key), snapshot)
    if cutoff_ms is None:
        return rows
    late = _late_partitions(snapshot, rows, cutoff_ms=cutoff_ms)
    if not late:
        return rows
    cutoff = datetime.fromtimestamp(cutoff_ms / 1_000, tz=UTC)
    reason = (
        f'{LATE}, whose cutoff is {cutoff:%Y-%m-%d %H:%M} UTC. Use Archive(late="append"), then '
        f"lakehouse quarantine retry {session.key}"
    )
    is_late = F.expr(partition_predicate(snapshot.columns, late))
    return rows.withColumn(REASON, F.coalesce(REASON, F.when(is_late, reason)))


def _cutoff_ms(operations: Iterable[ArchiveOperation], snapshot: Snapshot) -> int | None:
    """The newest cutoff of the archive operations in this version; `None` without any."""
    archived = [each for each in operations if each.kind in ("archive", "folded")]
    cutoffs_ms = [each.cutoff_ms for each in archived if each.is_applied_to(snapshot)]
    return max(cutoffs_ms, default=None)


def _late_partitions(
    snapshot: Snapshot, rows: "DataFrame", *, cutoff_ms: int
) -> list[PartitionValues]:
    """The partitions of the rows that ended by the cutoff and are not in the table.

    A restored partition is in the table, so its late rows are accepted. The table's own partitions
    help to find the length of time that a partition covers.
    """
    names = snapshot.partition_columns
    texts = [F.col(quote(name)).cast("string") for name in names]
    distinct_values = rows.where(f"{REASON} IS NULL").select(*texts).distinct().collect()
    landed_partitions = {tuple(zip(names, row, strict=True)) for row in distinct_values}
    table_partitions = {file.partition for file in snapshot.files}
    spans = partition_spans(snapshot.table, snapshot.columns, landed_partitions | table_partitions)
    columns = by_name(snapshot.columns)
    in_table = {typed_partition(partition, columns) for partition in table_partitions}
    late = list[PartitionValues]()
    for partition in landed_partitions:
        span = spans[partition]
        has_ended = span is not None and span.end_ms <= cutoff_ms
        if has_ended and typed_partition(partition, columns) not in in_table:
            late.append(partition)
    return sorted(late, key=str)
