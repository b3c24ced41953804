"""Plans the rewrites that are no packing: the purge of deleted rows, Z-order, liquid clustering.

**Purge.** REORG rewrites every file with deleted rows, or with a deletion vector and no statistics,
whatever the file's size. Its bins may have a single file. REORG also rewrites files with columns
that the table does not have: dropped columns, and columns that UPDATE or MERGE add in tables with a
change data feed. The log does not show which files have such columns, so the figures of such tables
are lower bounds.

**Order.** A rewrite also covers files that are in order. Therefore, it waits until enough files are
out of order: at least two, which have a quarter of the partition's bytes or are at least
`min_small_files`. At a quarter, a rewrite covers at most four times the bytes that are out of
order. After each small batch, it would cover many times the batch's bytes.

The log shows the order, because a commit names the columns in its operationParameters. A file is
older than the log if the commit that added it is not in the history (`Commits`) that was read. Such
a file counts as ordered if a commit ordered rows by the same columns and left no files for a later
run, and no later commit ordered rows by other columns.

A Z-cube (below: a cube) is the set of files that one OPTIMIZE of a clustered table wrote. OPTIMIZE
does not rewrite a cube of 100 GiB or more: it is full.

Source: delta-io/delta v4.4.0, `DeltaReorgTableCommand.scala` (DeltaPurgeOperation),
`OptimizeTableStrategy.scala` (ZOrderStrategy, ClusteringStrategy), `OptimizeTableCommand.scala`
(groupFilesIntoBins, validateZorderByColumns), `ZCube.scala`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.compact.plan.bins import (
    Bin,
    PlanningFacts,
    Rewrite,
    Statement,
    files_added,
    keeps_cores_busy,
    not_now,
    one_run,
    pack,
    partition_plans,
)
from lakehouse.compact.plan.target_size import comparable_names
from lakehouse.declare.policies import LiquidClustering, ZOrder
from lakehouse.delta.snapshot import DataFile, Snapshot, files_with_vectors

# Delta's defaults. Source: DeltaSQLConf, `optimize.clustering.mergeStrategy.minCubeSize.threshold`
# and `.targetCubeSize`.
_FULL_CUBE_BYTES = 100 * 1024**3
_BIN_BYTES = 150 * 1024**3


def plan_zordering(facts: PlanningFacts, layout: ZOrder) -> Rewrite:
    """The partitions to order along the columns, or the reason for doing nothing.

    Raises:
        Refused: a column is not in the table, or is a partition column.
    """
    _check_columns(facts.snapshot, layout.columns)
    columns = comparable_names(layout.columns)
    unordered = [file for file in facts.snapshot.files if not _is_in_order(file, facts, columns)]
    unordered_paths = {file.path for file in unordered}

    def bins_of(files: Sequence[DataFile]) -> Sequence[Bin]:
        unordered_here = [file for file in files if file.path in unordered_paths]
        if not _pays_off(facts, unordered_here, files):
            return ()
        # One bin, because Z-order rewrites the files of a partition together.
        return pack(files, up_to_bytes=total_bytes(files), least_files=1)

    plans, counts = partition_plans(facts, bins_of)
    statement = Statement(
        kind="z-ordering", columns=layout.columns, up_to_bytes=facts.policy.target_file_bytes
    )
    # The files to write shrink until the table keeps enough files for all cores.
    while statement.up_to_bytes > 1 and not keeps_cores_busy(
        facts, plans, added=partial(files_added, statement)
    ):
        statement = replace(statement, up_to_bytes=statement.up_to_bytes // 2)
    numbers = _numbers(facts, layout.columns, unordered) | {"bound": "all "}
    if not plans:
        reason = not_now(counts) or Reason.IN_ORDER
        return Rewrite(statement=statement, reason=reason, numbers={**numbers, **counts})
    bins, files_left = one_run(facts, plans)
    return Rewrite(
        statement=statement,
        reason=Reason.OUT_OF_ORDER,
        bins=bins,
        files_left=files_left,
        numbers=numbers,
    )


def plan_clustering(facts: PlanningFacts, layout: LiquidClustering) -> Rewrite:
    """The OPTIMIZE of a table with liquid clustering, or the reason for doing nothing.

    The figures, except for the files added, are exact if all files outside of full cubes fit into
    one bin (150 GiB), and the log shows for every file whether it was clustered. Otherwise they are
    upper bounds, and the sentence says so.

    Raises:
        Refused: the table has partitions, which cannot be clustered.
    """
    snapshot = facts.snapshot
    if snapshot.partition_columns:
        raise Refused(
            f"plan of {snapshot.table}: LiquidClustering cannot plan a table with partitions. "
            "Use ZOrder, or a table without partitions"
        )
    statement = Statement(kind="clustering", up_to_bytes=facts.policy.target_file_bytes)
    if comparable_names(snapshot.clustering_columns) != comparable_names(layout.columns):
        current_columns = ", ".join(snapshot.clustering_columns) or "nothing"
        numbers = _numbers(facts, layout.columns, []) | {"declared": current_columns}
        return Rewrite(statement=statement, reason=Reason.NOT_CLUSTERED_YET, numbers=numbers)
    loose, in_open_cubes = _files_by_cube(facts)
    candidates = [*loose, *in_open_cubes]
    may_be_in_cube = any(_is_older_than_log(file, facts) for file in loose)
    is_exact = not may_be_in_cube and total_bytes(candidates) <= _BIN_BYTES
    numbers = _numbers(facts, layout.columns, loose) | {"bound": "" if is_exact else "at most "}
    is_due = _pays_off(facts, loose, candidates)
    bins = [Bin(partition=(), files=candidates)] if is_due else []
    plans, counts = partition_plans(facts, lambda _: bins)
    if not plans:
        reason = not_now(counts) or Reason.IN_ORDER
        return Rewrite(statement=statement, reason=reason, numbers={**numbers, **counts})
    return Rewrite(statement=statement, reason=Reason.OUT_OF_ORDER, bins=bins, numbers=numbers)


def _check_columns(snapshot: Snapshot, columns: Sequence[str]) -> None:
    """Refuses columns that the table does not have, or that are partition columns."""
    names = [column.name for column in snapshot.columns]
    accepted = [name for name in names if name not in snapshot.partition_columns]
    accepted_names = {name.lower() for name in accepted}
    for name in columns:
        if name.lower() not in accepted_names:
            raise Refused(
                f"plan of {snapshot.table}: ZOrder.columns holds {name!r}, which is a partition "
                f"column or not a column of the table. Use any of: {', '.join(accepted)}"
            )


def _pays_off(
    facts: PlanningFacts, unordered: Sequence[DataFile], files: Sequence[DataFile]
) -> bool:
    """Whether enough of the files are out of order, by number or by bytes, and at least two."""
    are_many = len(unordered) >= facts.policy.min_small_files
    are_large = 4 * total_bytes(unordered) >= total_bytes(files)
    return len(unordered) >= 2 and (are_many or are_large)


def _is_in_order(file: DataFile, facts: PlanningFacts, columns: tuple[str, ...]) -> bool:
    if file.deletion_vector is not None:
        return False
    arranged = facts.write_history.arranged.get(file.path)
    if arranged is not None:
        return arranged[0] == columns
    return _is_older_than_log(file, facts) and facts.write_history.settled == columns


def _is_older_than_log(file: DataFile, facts: PlanningFacts) -> bool:
    return not file.compacted and file.path not in facts.write_history.written_ms


def _files_by_cube(facts: PlanningFacts) -> tuple[list[DataFile], list[DataFile]]:
    """The files that clustering may rewrite: files in no cube, and files in open cubes.

    A cube that is not full is open. A file with a deletion vector remains in its cube. Cubes that
    are ordered by other columns are not rewritten. A single open cube is not rewritten if there are
    no loose files.
    """
    columns = comparable_names(facts.snapshot.clustering_columns)
    loose = list[DataFile]()
    cubed = list[tuple[int, DataFile]]()
    for file in facts.snapshot.files:
        arranged = facts.write_history.arranged.get(file.path)
        if arranged is None:
            loose.append(file)
        elif arranged[0] == columns:
            cubed.append((arranged[1], file))
    sizes = Counter[int]()
    for cube, file in cubed:
        sizes[cube] += file.size_bytes
    open_cubes = [(cube, file) for cube, file in cubed if sizes[cube] < _FULL_CUBE_BYTES]
    if not loose and len({cube for cube, _ in open_cubes}) < 2:
        return [], []
    return loose, [file for _, file in open_cubes]


def _numbers(
    facts: PlanningFacts, columns: Sequence[str], unordered: Sequence[DataFile]
) -> dict[str, object]:
    return {
        "columns": ", ".join(columns),
        "changed": len(unordered),
        "changed_bytes": total_bytes(unordered),
        "threshold": facts.policy.min_small_files,
    }


def plan_purge(facts: PlanningFacts) -> Rewrite | None:
    """The rewrite of all files with deleted rows.

    `None` if it is not due, or if all partitions with such files changed too recently.
    """
    # Files without row counts in the log cannot make a purge due.
    files = facts.snapshot.files
    deleted = sum(file.deleted_row_count for file in files_with_vectors(files) if file.row_count)
    rows = sum(file.row_count or 0 for file in files) if deleted else 0
    due_share = facts.policy.purge_deleted_rows_share
    if not due_share or not deleted or deleted / rows < due_share:
        return None
    # The bins shrink until the table keeps enough files for all cores, or each bin has one file.
    target = facts.policy.target_file_bytes
    plans, _ = partition_plans(facts, partial(_purge_bins, target))
    while not keeps_cores_busy(facts, plans) and any(
        len(bin_.files) > 1 for plan in plans for bin_ in plan.bins
    ):
        target //= 2
        plans, _ = partition_plans(facts, partial(_purge_bins, target))
    if not plans:
        return None
    bins, files_left = one_run(facts, plans)
    return Rewrite(
        statement=Statement(kind="purge", up_to_bytes=target),
        reason=Reason.DELETED_ROWS,
        bins=bins,
        files_left=files_left,
        numbers={
            "deleted": deleted,
            "rows": rows,
            "share": f"{deleted / rows:.0%}",
            "at_least": "at least " if may_hold_other_columns(facts.snapshot) else "",
        },
    )


def may_hold_other_columns(snapshot: Snapshot) -> bool:
    """Whether files may have columns that the table does not have, such as dropped columns.

    Source: files that an UPDATE by Delta 4.4.0 writes in a table with a change data feed have the
    columns `_change_type` and `__is_cdc`.
    """
    return not snapshot.features.isdisjoint({"changeDataFeed", "columnMapping"})


def _purge_bins(target: int, files: Sequence[DataFile]) -> Sequence[Bin]:
    with_vectors = [file for file in files if file.deletion_vector is not None]
    purged = [file for file in with_vectors if file.row_count is None or file.deleted_row_count]
    return pack(purged, up_to_bytes=target, least_files=1)
