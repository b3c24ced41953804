"""Selects the partitions of one run: cold ones, in order, within the bounds of the policy."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf

from lakehouse.core.compaction.bins import Bin, PartitionPlan, PlanningFacts, files_by_partition
from lakehouse.core.compaction.target_size import WriteHistory
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.units import HOUR_MS

# Spark counts opening a file as this many bytes (`spark.sql.files.openCostInBytes`).
TRIVIAL_BYTES_PER_CORE = 4 * 1024 * 1024


def last_write_ms(files: Sequence[DataFile], write_history: WriteHistory) -> int:
    """The time at which rows of these files were last added or deleted; 0 if unknown.

    Outputs of compactions do not count. A deletion vector counts with the time of its commit, since
    the file's own time does not change.
    """
    logged = (write_history.written_ms.get(file.path, 0) for file in files)
    own = (file.modified_ms for file in files if not file.compacted)
    return max(chain(logged, own), default=0)


def is_warm(facts: PlanningFacts, plan: PartitionPlan) -> bool:
    """Whether the partition changed too recently to be rewritten under `cold_hours`."""
    return (
        facts.policy.cold_hours > 0
        and last_write_ms(plan.files, facts.write_history)
        > facts.now_ms - facts.policy.cold_hours * HOUR_MS
    )


def keeps_cores_busy(
    facts: PlanningFacts,
    plans: Iterable[PartitionPlan],
    *,
    added: Callable[[tuple[Bin, ...]], int] = len,
) -> bool:
    """Whether the table keeps enough files for all cores; with fewer, a full scan is slower.

    Partitions are not checked one by one: a statement has a single bin size, so the smallest
    partition would determine it for all.
    """
    wanted = min(facts.policy.scan_cores, facts.snapshot.size_bytes // TRIVIAL_BYTES_PER_CORE)
    return (
        facts.snapshot.file_count - sum(plan.file_count - added(plan.bins) for plan in plans)
        >= wanted
    )


def partition_plans(
    facts: PlanningFacts, bins_of: Callable[[tuple[DataFile, ...]], tuple[Bin, ...]]
) -> tuple[list[PartitionPlan], int]:
    """The plans of cold partitions with bins, and the number of warm ones.

    `bins_of` packs the files of a partition into bins.
    """
    plans = [
        PartitionPlan(files=files, bins=bins)
        for files in files_by_partition(facts.snapshot).values()
        if (bins := bins_of(files))
    ]
    cold = [plan for plan in plans if not is_warm(facts, plan)]
    return cold, len(plans) - len(cold)


def fits(facts: PlanningFacts, size_bytes: int) -> bool:
    """Whether one run may rewrite this many bytes."""
    return size_bytes <= (facts.policy.max_bytes_per_run or inf)


def within_bounds(
    facts: PlanningFacts, plans: Sequence[PartitionPlan]
) -> tuple[PartitionPlan, ...]:
    """The plans that fit into one run, in the order of `in_order`.

    A plan that does not fit waits for the next run; smaller ones after it may still fit. The result
    is empty if the first plan alone is too large.
    """
    chosen, size_bytes = list[PartitionPlan](), 0
    for plan in in_order(facts, plans):
        if fits(facts, size_bytes + plan.size_bytes):
            chosen.append(plan)
            size_bytes += plan.size_bytes
        elif not chosen:
            break
    return tuple(chosen)


def one_run(facts: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[tuple[Bin, ...], int]:
    """The bins of one run, and the number of files left to the next run.

    A partition is never split. The first partition is always taken, whatever its size.
    """
    chosen = within_bounds(facts, plans) or (in_order(facts, plans)[0],)
    left = sum(plan.file_count for plan in plans) - sum(plan.file_count for plan in chosen)
    return tuple(bin_ for plan in chosen for bin_ in plan.bins), left


def in_order(facts: PlanningFacts, plans: Iterable[PartitionPlan]) -> list[PartitionPlan]:
    """The plans in the order of execution: most files removed per byte first.

    If the policy has `cold_hours`, the plans with the oldest writes come first.
    """
    if facts.policy.cold_hours:
        return sorted(plans, key=lambda plan: last_write_ms(plan.files, facts.write_history))
    return sorted(
        plans, key=lambda plan: (len(plan.bins) - plan.file_count) / max(1, plan.size_bytes)
    )
