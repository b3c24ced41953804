"""Which partitions one run takes: cold ones, in order, within the bounds of the policy."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf

from lakehouse.core.compaction.bins import Bin, PartitionPlan, PlanningFacts, files_by_partition
from lakehouse.core.compaction.target_size import WriteHistory
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.units import HOUR_MS


def last_write_ms(files: Sequence[DataFile], write_history: WriteHistory) -> int:
    """The time at which rows of these files were last added or deleted; 0 if unknown.

    A compaction's outputs do not count. The time of a deletion vector is the time of its commit;
    the file keeps the time at which it was written.
    """
    told = (write_history.written_ms.get(file.path, 0) for file in files)
    own = (file.modified_ms for file in files if not file.compacted)
    return max(chain(told, own), default=0)


def is_warm(now: PlanningFacts, plan: PartitionPlan) -> bool:
    """Whether rows of the partition changed so lately that only cold ones may be rewritten."""
    return (
        now.policy.cold_hours > 0
        and last_write_ms(plan.files, now.write_history)
        > now.now_ms - now.policy.cold_hours * HOUR_MS
    )


def partition_plans(
    now: PlanningFacts, bins_of: Callable[[tuple[DataFile, ...]], tuple[Bin, ...]]
) -> tuple[list[PartitionPlan], int]:
    """The plans of cold partitions with bins, and the number of warm ones.

    `bins_of` makes the bins of a partition's files.
    """
    plans = [
        PartitionPlan(files=files, bins=bins)
        for files in files_by_partition(now.snapshot).values()
        if (bins := bins_of(files))
    ]
    cold = [plan for plan in plans if not is_warm(now, plan)]
    return cold, len(plans) - len(cold)


def fits(now: PlanningFacts, size_bytes: int) -> bool:
    """Whether one run may rewrite so many bytes."""
    return size_bytes <= (now.policy.max_bytes_per_run or inf)


def within_bounds(now: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[PartitionPlan, ...]:
    """The plans that one run takes, in the order of `in_order`.

    A plan that does not fit waits for the next run, but smaller ones after it are taken. The result
    is empty if the first plan alone is too large.
    """
    chosen, size_bytes = list[PartitionPlan](), 0
    for plan in in_order(now, plans):
        if fits(now, size_bytes + plan.size_bytes):
            chosen.append(plan)
            size_bytes += plan.size_bytes
        elif not chosen:
            break
    return tuple(chosen)


def one_run(now: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[tuple[Bin, ...], int]:
    """The bins that one run takes, and the number of files left to the next run.

    Partitions are taken as a whole; the first one is taken whatever its size.
    """
    chosen = within_bounds(now, plans) or (in_order(now, plans)[0],)
    left = sum(plan.file_count for plan in plans) - sum(plan.file_count for plan in chosen)
    return tuple(bin_ for plan in chosen for bin_ in plan.bins), left


def in_order(now: PlanningFacts, plans: Iterable[PartitionPlan]) -> list[PartitionPlan]:
    """The plans in the order in which runs take them: most files removed per byte first.

    If only cold partitions are taken, the oldest come first.
    """
    if now.policy.cold_hours:
        return sorted(plans, key=lambda plan: last_write_ms(plan.files, now.write_history))
    return sorted(
        plans, key=lambda plan: (len(plan.bins) - plan.file_count) / max(1, plan.size_bytes)
    )
