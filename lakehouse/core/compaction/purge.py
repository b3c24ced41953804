"""Plans the purge of deleted rows: which files REORG will rewrite, and when it is due.

REORG rewrites every file with deleted rows, or with a deletion vector and no statistics, whatever
the file's size. Its bins may have a single file.
Source: delta-io/delta v4.4.0, `DeltaReorgTableCommand.scala` (DeltaPurgeOperation),
`OptimizeTableCommand.scala` (groupFilesIntoBins).

REORG also rewrites files with columns that the table does not have: dropped columns, and columns
that UPDATE or MERGE add in tables with a change data feed. The log does not show which files have
such columns, so the figures of such tables are lower bounds.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain

from lakehouse.core.compaction.bins import (
    Bin,
    PartitionPlan,
    PlanningFacts,
    Purge,
    Rewrite,
    files_by_partition,
    is_fresh,
    pack,
)
from lakehouse.core.compaction.choose_partitions import keeps_cores_busy, one_run, partition_plans
from lakehouse.core.compaction.optimize_bins import plan_packing
from lakehouse.core.delta.snapshot import DataFile, Snapshot, files_with_vectors, row_total
from lakehouse.core.reasons import Reason


def plan_purge(facts: PlanningFacts) -> Rewrite | None:
    """The rewrite of all files with deleted rows.

    `None` if it is not due, or if all partitions with such files changed too recently.
    """
    # Files without row counts in the log cannot make a purge due.
    files = facts.snapshot.files
    deleted = sum(file.deleted_row_count for file in files_with_vectors(files) if file.row_count)
    rows = row_total(files) if deleted else 0
    if rows is None:
        rows = sum(file.row_count or 0 for file in files)
    due_share = facts.policy.purge_deleted_rows_share
    if not due_share or not deleted or deleted / rows < due_share:
        return None
    # The bins shrink until the table keeps enough files for all cores, or each bin has one file.
    target = facts.policy.target_file_bytes
    plans, _ = partition_plans(facts, partial(_bins, facts, target))
    while _merges_files(plans) and not keeps_cores_busy(facts, plans):
        target //= 2
        plans, _ = partition_plans(facts, partial(_bins, facts, target))
    if not plans:
        return None
    bins, files_left = one_run(facts, plans)
    return Rewrite(
        statement=Purge(up_to_bytes=target),
        reason=Reason.DELETED_ROWS,
        bins=bins,
        files_left=files_left or _small_files_left(facts),
        numbers={
            "deleted": deleted,
            "rows": rows,
            "share": f"{deleted / rows:.0%}",
            "at_least": "at least " if may_hold_other_columns(facts.snapshot) else "",
        },
    )


def may_hold_other_columns(snapshot: Snapshot) -> bool:
    """Whether files may have columns that the table does not have.

    This is the case if the table has a change data feed, or if more column ids were assigned than
    the table has columns and nested fields.
    Sources: PROTOCOL.md, "Column Mapping", maxColumnId; files that an UPDATE by Delta 4.4.0 writes
    have the columns `_change_type` and `__is_cdc`.
    """
    if "changeDataFeed" in snapshot.features:
        return True
    max_id = snapshot.properties.get("delta.columnMapping.maxColumnId", "")
    field_count = sum(1 + column.type.count(":") for column in snapshot.columns)
    return max_id.isdigit() and int(max_id) > field_count


def _merges_files(plans: Sequence[PartitionPlan]) -> bool:
    return any(len(bin_.files) > 1 for plan in plans for bin_ in plan.bins)


def _bins(facts: PlanningFacts, target: int, files: Sequence[DataFile]) -> tuple[Bin, ...]:
    purged = filter(_is_purged, files)
    return pack(purged, facts.snapshot.columns, up_to_bytes=target, least_files=1)


def _is_purged(file: DataFile) -> bool:
    if file.deletion_vector is None:
        return False
    return file.row_count is None or file.deleted_row_count > 0


def _small_files_left(facts: PlanningFacts) -> int:
    """The number of small files that may be merged after the purge.

    The exact number depends on the sizes of the files that the purge writes.
    """
    limit = facts.policy.candidate_bytes
    fresh_count = 0
    for files in files_by_partition(facts.snapshot).values():
        fresh = [
            file
            for file in files
            if file.size_bytes < limit and is_fresh(file) and not _is_purged(file)
        ]
        if len(fresh) >= 2:
            fresh_count += len(fresh)
    packed_files = chain.from_iterable(bin_.files for bin_ in plan_packing(facts).bins)
    packed_count = sum(not _is_purged(file) for file in packed_files)
    return max(fresh_count, packed_count if packed_count >= 2 else 0)
