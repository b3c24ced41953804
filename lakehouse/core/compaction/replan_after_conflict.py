"""Plans a compaction again after its commit conflicted with another writer's commit.

OPTIMIZE fails if another writer removes one of its input files before OPTIMIZE commits. In this
case, the compaction is planned again without the partitions of the removed files. If nothing is
left to do, for example in a table without partitions, `engine/compaction/run.py` plans the whole
table again.
Source: delta-io/delta v4.4.0, `ConflictChecker.scala`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakehouse.core.compaction.bins import Bin
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.compaction_estimate import estimate
from lakehouse.core.costs.compaction_speed import MergeWork, Rates
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.partition_values import TypedPartition, by_name, typed_partition
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.journal_records import CompactionTry
from lakehouse.core.text import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LostConflict:
    """An attempt that lost a conflict, and the partitions in which other writers removed files."""

    partitions: frozenset[TypedPartition]
    attempt: CompactionTry


def partitions_removed_from(
    snapshot: Snapshot, commits: Iterable[Commit]
) -> frozenset[TypedPartition]:
    """The partitions of `snapshot` in which later `commits` with changed rows removed files."""
    columns = by_name(snapshot.columns)
    paths = {path for commit in commits if commit.changed_data for path in commit.removed_paths}
    return frozenset(
        typed_partition(file.partition, columns) for file in snapshot.files if file.path in paths
    )


def without_partitions(
    plan: CompactionPlan,
    snapshot: Snapshot,
    partitions: frozenset[TypedPartition],
    *,
    rates: Rates,
) -> CompactionPlan:
    """The plan without the bins of these partitions.

    The result has no bins if nothing else is planned, or if the table has no partitions.
    """
    columns = by_name(snapshot.columns)
    bins = list[Bin]()
    if snapshot.partition_columns:
        bins = [
            bin_ for bin_ in plan.bins if typed_partition(bin_.partition, columns) not in partitions
        ]
    remaining = tuple(
        each for each in plan.partitions or () if typed_partition(each, columns) not in partitions
    )
    smaller = replace(plan, bins=tuple(bins), partitions=remaining or None)
    omitted = plan.files_removed - smaller.files_removed
    clause = f"; omitted, since other writers removed files there: {count_of(omitted, 'file')}"
    work = MergeWork(
        files_removed=smaller.files_removed,
        bytes_removed=smaller.bytes_removed,
        files_added=smaller.files_added,
    )
    compared = plan.policy.verify == "content"
    return replace(
        smaller,
        explanation=replace(plan.explanation, more=f"{plan.explanation.more}{clause}"),
        files_left=plan.files_left + omitted,
        estimate=estimate(rates, work, on_s3=snapshot.on_s3, compared=compared),
    )
