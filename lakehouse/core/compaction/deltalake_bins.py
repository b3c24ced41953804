"""Plans a compaction by deltalake: exactly which files it merges, and which merges pay off.

deltalake packs the files of a partition in the order of the log, newest commit first. It skips a
file above the target. It closes a bin at a skipped file, or when the next file does not fit. Bins
of one file are dropped, and each other bin becomes one file, whatever its size.
Source: delta-io/delta-rs, crates/core/src/operations/optimize.rs, build_compaction_plan,
plan_compaction_bins_in_stable_order (deltalake 1.6.6 chose the same bins on 200 random tables).

- A file is fresh if a writer added it after the version that the partition's last compaction read.
  A partition is worth a rewrite if a bin has at least two fresh files. Therefore, a partition is
  not compacted again until writers have added files that its last compaction did not read.
- The target of a statement is halved as long as the fresh files of the partition together fit into
  half of it, but not below 16 MiB. deltalake skips files above this lowered target. Therefore, a
  large output is not rewritten together with a few small files, and each byte is rewritten only a
  few times, as in a log-structured merge tree.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial

from lakehouse.core.compaction.bins import (
    Bin,
    PackingInLogOrder,
    PartitionPlan,
    PlanningFacts,
    Rewrite,
    as_rows,
)
from lakehouse.core.compaction.choose_partitions import PlannedPartition, best_group, fits, one_run
from lakehouse.core.compaction.optimize_bins import LEAST_KEPT_BYTES, nothing_to_do
from lakehouse.core.delta.snapshot import DataFile, by_partition
from lakehouse.core.reasons import Reason
from lakehouse.core.text import size_text


def plan_for_deltalake(facts: PlanningFacts) -> Rewrite:
    """The merge of small files by deltalake, or the reason for doing nothing."""
    group = best_group(facts, partial(_planned, facts))
    if not group.plans:
        return nothing_to_do(facts, group)
    # All plans of a group have the same cut-off: the lowered target.
    lowered = group.plans[0].cutoff_bytes
    bins, _ = one_run(facts, group.plans)
    more = ""
    if not fits(facts, sum(bin_.size_bytes for bin_ in bins)):
        limit = size_text(facts.policy.max_bytes_per_run)
        more = f"; more than max_bytes_per_run ({limit}), since deltalake splits no partition"
    return Rewrite(
        statement=PackingInLogOrder(up_to_bytes=lowered),
        reason=Reason.MERGEABLE_FILES,
        bins=bins,
        files_left=group.file_count - sum(len(bin_.files) for bin_ in bins),
        numbers={"target_bytes": lowered},
        more=more,
    )


def pack_for_deltalake(files: Iterable[DataFile], *, up_to_bytes: int) -> tuple[Bin, ...]:
    """The bins of one partition, whose files are in the order of the log."""
    bins = list[list[DataFile]]([[]])
    open_bytes = 0
    for file in files:
        if file.size_bytes > up_to_bytes:
            bins.append([])
            open_bytes = 0
            continue
        if open_bytes + file.size_bytes > up_to_bytes:
            bins.append([])
            open_bytes = 0
        bins[-1].append(file)
        open_bytes += file.size_bytes
    return tuple(
        Bin(partition=members[0].partition, files=tuple(members))
        for members in bins
        if len(members) >= 2
    )


def _planned(facts: PlanningFacts, target: int) -> Iterator[PlannedPartition]:
    """The plans of all partitions. Their `cutoff_bytes` is the lowered target of the statement."""
    for partition in by_partition(facts.snapshot.files).values():
        files = tuple(partition)
        fresh = _fresh_paths(facts, files)
        small = [file for file in files if file.size_bytes < facts.policy.candidate_bytes]
        lowered = _lowered_target([file for file in files if file.path in fresh], target)
        bins = pack_for_deltalake(files, up_to_bytes=lowered)
        fresh_counts = [sum(file.path in fresh for file in bin_.files) for bin_ in bins]
        plan = PartitionPlan(files=files, bins=bins, cutoff_bytes=lowered)
        yield PlannedPartition(
            plan=as_rows(plan, partition, files),
            candidates=small,
            pays=max(fresh_counts, default=0) >= 2,
        )


def _fresh_paths(facts: PlanningFacts, files: Sequence[DataFile]) -> Set[str]:
    """The paths of the fresh files of one partition (see the module docstring).

    If the log shows no compaction of the partition, all files of writers are fresh.
    """
    history = facts.write_history
    read_version = max((history.read_versions.get(file.path, -1) for file in files), default=-1)
    written = [file.path for file in files if not file.compacted]
    if read_version < 0:
        return {*written}
    return {path for path in written if history.versions.get(path, -1) > read_version}


def _lowered_target(fresh: Sequence[DataFile], target: int) -> int:
    """The target, halved as described in the module docstring."""
    fresh_bytes = sum(file.size_bytes for file in fresh if file.size_bytes <= target)
    lowered = target
    while lowered // 2 >= max(fresh_bytes, LEAST_KEPT_BYTES):
        lowered //= 2
    return lowered
