"""The partitions that a compaction leaves to other writers: OPTIMIZE loses to whoever changed one of its files first.

A compaction that lost is planned again without the partitions in which files were taken from under it; where that leaves nothing,
or the table has no partitions, with half of the bytes. Each loss narrows the next try further.
Source: delta-io/delta v4.4.0, `ConflictChecker.scala`: of what commits first, only the removal of a file that OPTIMIZE read fails it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.estimate import Rates, estimate
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.partition_values import by_name, type_of_typed_partition, typed_partition
from lakehouse.core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A try of a compaction that lost the race for its commit.

    In `partitions` somebody else removed files meanwhile. Of `planned_bytes`, `wasted_bytes` were rewritten for nothing, in
    `wasted_seconds`.
    """

    partitions: frozenset[type_of_typed_partition]
    wasted_files: int
    planned_bytes: int
    wasted_bytes: int
    wasted_seconds: float


def partitions_removed_from(snapshot: Snapshot, commits: Iterable[Commit]) -> frozenset[type_of_typed_partition]:
    """The partitions of `snapshot` from which `commits`, made after it, took files, or put others with deletion vectors in their place."""
    columns = by_name(snapshot.columns)
    paths = {path for commit in commits if commit.changed_data for path in commit.removed_paths}
    return frozenset(typed_partition(file.partition, columns) for file in snapshot.files if file.path in paths)


def half_of(table: Table, losses: Sequence[Loss]) -> Table:
    """The table with its compaction bound to half of the bytes that the last of `losses` was to rewrite."""
    halved = max(1, losses[-1].planned_bytes // 2)
    return replace(table, compaction=replace(table.compaction, max_bytes_per_run=halved))


def without_partitions(
    plan: CompactionPlan, snapshot: Snapshot, partitions: frozenset[type_of_typed_partition], *, rates: Rates
) -> CompactionPlan:
    """The same plan without these partitions; it has no bins where nothing else is left, or the table has none."""
    columns = by_name(snapshot.columns)
    kept = tuple(bin_ for bin_ in plan.bins if snapshot.partition_columns and typed_partition(bin_.partition, columns) not in partitions)
    limited = tuple(each for each in plan.partitions or () if typed_partition(each, columns) not in partitions)
    smaller = replace(plan, bins=kept, partitions=limited or None)
    left = plan.files_removed - smaller.files_removed
    return replace(
        smaller,
        explanation=replace(plan.explanation, more=f"{plan.explanation.more}; {left} of these files are left to other writers"),
        files_left=plan.files_left + left,
        estimate=estimate(
            rates,
            files_removed=smaller.files_removed,
            bytes_removed=smaller.bytes_removed,
            files_added=smaller.files_added,
            on_s3=snapshot.on_s3,
            compared=smaller.verify == "content",
        ),
    )
