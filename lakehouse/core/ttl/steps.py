"""Splits the files that have expired rows into the DELETE statements of a TTL run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import Column, DataFile, PartitionValues, by_partition
from lakehouse.core.ttl.facts import TimeBounds, TtlFacts

# The most partitions of one step. Spark plans a condition on this many in about a second.
_STEP_PARTITIONS = 5_000
PartitionFiles = tuple[PartitionValues, Sequence[DataFile]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlStep:
    """One DELETE statement.

    - `partitions`: the partitions to which the statement is limited; `None` for the whole table.
    - `by_metadata`: the step changes only the log. It must remove exactly `files`, which are paths.
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
    """The files whose rows are all before the cutoff, and the files that may straddle it."""
    expired = list[DataFile]()
    straddling = list[DataFile]()
    for file in facts.snapshot.files if cutoff_ms is not None else ():
        bounds = facts.bounds_of(file)
        if _is_expired(bounds, cutoff_ms or 0):
            expired.append(file)
        elif not _is_fresh(file, bounds, cutoff_ms or 0):
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
    """The steps that delete the expired rows of these files, cheapest step first."""
    snapshot = facts.snapshot
    if not expired and not straddling:
        return
    if column.name in snapshot.partition_columns:
        # A condition on the time column deletes no other row, whatever is committed meanwhile.
        yield _step(facts, None, expired, (), by_metadata=True)
        return
    columns = by_name(snapshot.columns)

    def partition_of(file: DataFile) -> tuple[object, ...]:
        return typed_partition(file.partition, columns)

    expired_paths = {file.path for file in expired}
    kept = {partition_of(file) for file in snapshot.files if file.path not in expired_paths}
    removes_partitions = not isinstance(table.write, Adopted) and bool(snapshot.partition_columns)
    whole = [file for file in expired if removes_partitions and partition_of(file) not in kept]
    for group in _groups([(each, 0) for each in by_partition(whole).items()], limit_bytes=0):
        partitions = tuple(partition for partition, _ in group)
        files = [file for _, members in group for file in members]
        yield _step(facts, partitions, files, (), by_metadata=True)
    whole_paths = {file.path for file in whole}
    rest = [file for file in (*expired, *straddling) if file.path not in whole_paths]
    sized = [
        (
            (partition, files),
            sum(each.size_bytes for each in files if each.path not in expired_paths),
        )
        for partition, files in sorted(by_partition(rest).items(), key=str)
    ]
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


def _groups(
    sized: Iterable[tuple[PartitionFiles, int]], *, limit_bytes: int
) -> Iterable[Sequence[PartitionFiles]]:
    """Groups of partitions up to this size (0: no limit). A larger partition is its own group."""
    group = list[PartitionFiles]()
    group_bytes = 0
    for part, size_bytes in sized:
        is_full = bool(limit_bytes) and group_bytes + size_bytes > limit_bytes
        if group and (is_full or len(group) == _STEP_PARTITIONS):
            yield group
            group = []
            group_bytes = 0
        group.append(part)
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
    certain = [_live_rows(file) for file in expired]
    possible = [_rows_with_time(file, facts.bounds_of(file)) for file in straddling]
    rows = [*certain, *possible]
    return TtlStep(
        partitions=partitions,
        by_metadata=by_metadata,
        files=frozenset(file.path for file in (*expired, *straddling)),
        scanned_bytes=sum(file.size_bytes for file in straddling),
        least_rows=sum(each or 0 for each in certain),
        most_rows=None if None in rows else sum(each or 0 for each in rows),
    )


def _live_rows(file: DataFile) -> int | None:
    return None if file.row_count is None else file.row_count - file.deleted_row_count


def _rows_with_time(file: DataFile, bounds: TimeBounds) -> int | None:
    """The maximum number of rows in a file that have a time; `None` if unknown."""
    rows = _live_rows(file)
    if rows is None or bounds.null_count is None or file.deleted_row_count:
        return rows
    return rows - bounds.null_count
