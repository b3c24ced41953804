"""Splits the files that have expired rows into the DELETE statements of a TTL run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import (
    Column,
    DataFile,
    PartitionValues,
    Snapshot,
    by_partition,
)
from lakehouse.core.ttl.facts import TimeBounds, TtlFacts

# A step has at most this many partitions. Spark plans a condition on that many in about a second.
_STEP_PARTITIONS = 5_000
PartitionFiles = tuple[PartitionValues, Sequence[DataFile]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlStep:
    """One DELETE statement.

    - `partitions`: the partitions to which the statement is limited; `None` for the whole table.
    - `by_metadata`: the step changes only the log. If it is limited to `partitions`, it must not
      remove other files than `files`.
    - `files`: the paths of the expired and straddling files in these partitions.
    - `scanned_bytes`: the size of the files that Delta may rewrite.
    - `least_rows`, `most_rows`: bounds of the number of deleted rows; `most_rows` is `None` if
      unknown.
    """

    partitions: tuple[PartitionValues, ...] | None
    by_metadata: bool
    files: frozenset[str]
    scanned_bytes: int
    least_rows: int
    most_rows: int | None


def files_by_age(
    facts: TtlFacts, cutoff_ms: int | None
) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
    """The expired files and the straddling files (see `plan.py`); none without a cutoff."""
    expired = list[DataFile]()
    straddling = list[DataFile]()
    if cutoff_ms is None:
        return expired, straddling
    for file in facts.snapshot.files:
        bounds = facts.bounds_of(file)
        if _is_expired(bounds, cutoff_ms):
            expired.append(file)
        elif not _is_fresh(file, bounds, cutoff_ms):
            straddling.append(file)
    return expired, straddling


def _is_expired(bounds: TimeBounds, cutoff_ms: int) -> bool:
    return bounds.max_ms is not None and bounds.max_ms < cutoff_ms and bounds.null_count == 0


def _is_fresh(file: DataFile, bounds: TimeBounds, cutoff_ms: int) -> bool:
    """Whether no row of the file is before the cutoff."""
    if bounds.min_ms is not None:
        return bounds.min_ms >= cutoff_ms
    return bounds.null_count is not None and bounds.null_count == file.row_count


def plan_steps(
    table: Table,
    facts: TtlFacts,
    column: Column,
    expired: Sequence[DataFile],
    straddling: Sequence[DataFile],
) -> Iterable[TtlStep]:
    """The steps that delete the expired rows of these files. Steps by metadata come first."""
    snapshot = facts.snapshot
    if not expired and not straddling:
        return
    if column.name in snapshot.partition_columns:
        # The condition on the time column selects whole partitions. It deletes no other row,
        # whatever is committed meanwhile.
        yield _step(facts, None, expired, (), by_metadata=True)
        return
    expired_paths = {file.path for file in expired}
    removable = _removable_files(table, snapshot, expired)
    for group in _groups([(each, 0) for each in by_partition(removable).items()], limit_bytes=0):
        partitions = tuple(partition for partition, _ in group)
        files = [file for _, members in group for file in members]
        yield _step(facts, partitions, files, (), by_metadata=True)
    removable_paths = {file.path for file in removable}
    rest = [file for file in (*expired, *straddling) if file.path not in removable_paths]
    sized = list[tuple[PartitionFiles, int]]()
    for partition, files in sorted(by_partition(rest).items(), key=str):
        scanned_bytes = sum(each.size_bytes for each in files if each.path not in expired_paths)
        sized.append(((partition, files), scanned_bytes))
    for group in _groups(sized, limit_bytes=table.compaction.max_bytes_per_run):
        partitions = tuple(partition for partition, _ in group)
        files = [file for _, members in group for file in members]
        yield _step(
            facts,
            partitions if snapshot.partition_columns else None,
            [file for file in files if file.path in expired_paths],
            [file for file in files if file.path not in expired_paths],
            by_metadata=False,
        )


def total_rows(counts: Sequence[int | None]) -> int | None:
    """The sum of row counts; `None` if one of them is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _removable_files(
    table: Table, snapshot: Snapshot, expired: Sequence[DataFile]
) -> Sequence[DataFile]:
    """The files of partitions in which all files are expired, if metadata alone may remove them."""
    if isinstance(table.write, Adopted) or not snapshot.partition_columns:
        return ()
    columns = by_name(snapshot.columns)

    def partition_of(file: DataFile) -> tuple[object, ...]:
        return typed_partition(file.partition, columns)

    expired_paths = {file.path for file in expired}
    kept = {partition_of(file) for file in snapshot.files if file.path not in expired_paths}
    return [file for file in expired if partition_of(file) not in kept]


def _groups(
    sized: Iterable[tuple[PartitionFiles, int]], *, limit_bytes: int
) -> Iterable[Sequence[PartitionFiles]]:
    """Groups of at most `_STEP_PARTITIONS` partitions and `limit_bytes` (0: no limit).

    A partition above `limit_bytes` is its own group.
    """
    group = list[PartitionFiles]()
    group_bytes = 0
    for partition_files, size_bytes in sized:
        is_full = bool(limit_bytes) and group_bytes + size_bytes > limit_bytes
        if group and (is_full or len(group) == _STEP_PARTITIONS):
            yield group
            group = []
            group_bytes = 0
        group.append(partition_files)
        group_bytes += size_bytes
    if group:
        yield group


def _step(
    facts: TtlFacts,
    partitions: tuple[PartitionValues, ...] | None,
    expired: Sequence[DataFile],
    straddling: Sequence[DataFile],
    *,
    by_metadata: bool,
) -> TtlStep:
    expired_rows = [_live_rows(file) for file in expired]
    straddling_rows = [_rows_with_time(file, facts.bounds_of(file)) for file in straddling]
    return TtlStep(
        partitions=partitions,
        by_metadata=by_metadata,
        files=frozenset(file.path for file in (*expired, *straddling)),
        scanned_bytes=sum(file.size_bytes for file in straddling),
        least_rows=sum(count or 0 for count in expired_rows),
        most_rows=total_rows([*expired_rows, *straddling_rows]),
    )


def _live_rows(file: DataFile) -> int | None:
    return None if file.row_count is None else file.row_count - file.deleted_row_count


def _rows_with_time(file: DataFile, bounds: TimeBounds) -> int | None:
    """The maximum number of rows in a file that have a time; `None` if unknown."""
    rows = _live_rows(file)
    if rows is None or bounds.null_count is None or file.deleted_row_count:
        return rows
    return rows - bounds.null_count
