"""Plans a plain compaction by Spark or deltalake: exactly which small files are merged.

Files are selected and packed exactly as in Delta, so plan and outcome can be compared file by file.
There is one exception: Delta orders files of equal size as in its snapshot, and the plan orders
them by path. Such files may change places, which changes no count and no number of removed bytes.
Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala` (filterCandidateFileList,
groupFilesIntoBins), `OptimizeTableStrategy.scala`.

This module chooses the partitions, the size below which a file is selected (the cut-off), and the
size of a bin. With these choices, a compacted table is not compacted again before a writer commits
(proof: docs/internals/decisions/0003).

- A partition is worth a rewrite if a bin holds at least two fresh files, or two files that the
  second tier (below) merges. A file is fresh if no compaction wrote it, or if it has a deletion
  vector. OPTIMIZE then rewrites every bin of the partition.
- If the target grew, an output of an earlier compaction would be small again. An output with at
  least three quarters of the target under which it was written is shielded: the cut-off of its
  partition is at most these three quarters.
- The *second tier* merges shielded files whose own target was at most an eighth of the present
  target, as soon as a partition has at least eight of them, which together have three quarters of
  the present target.
- In a table without partitions, large compacted files wait: the cut-off is lowered to a power of
  two if all files below this power are together smaller than it, and include every fresh file. The
  merged files share one bin, so their rows are in a single compacted file afterwards.
- A partition whose merge would read a file in a storage class that is slow or paid to read is
  omitted as a whole.
- A large file is not selected for its deleted rows, because these have a trigger and a rewrite of
  their own (`plan_purge`). The exception is a file with a deletion vector and no row count, which
  Delta always selects.
- If `max_bytes_per_run` bounds a run, it rewrites fewer partitions, or the smallest files of one.
  It merges at least two fresh files, or two files of the second tier, so the runs come to an end.
  `files_left` estimates how many files later runs will merge.

deltalake gets the same plan. It packs the planned files in the order of a log that this program
writes for it (`compact/deltalake_run.py`), with the end of each bin marked.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.bins import (
    Bin,
    PartitionPlan,
    PlanningFacts,
    Rewrite,
    Statement,
    files_by_partition,
    fits,
    in_order,
    is_fresh,
    keeps_cores_busy,
    may_be_rewritten,
    not_now,
    pack,
    within_bounds,
)
from lakehouse.delta.snapshot import DataFile

# The second tier merges at least this many files, and only if the target has grown by this factor:
# for example, eight files of 128 MiB into one of 1 GiB.
_SECOND_TIER_FACTOR = 8
# Smaller files never wait for a later merge: rewriting 16 MiB takes as long as starting a job.
LEAST_KEPT_BYTES = 16 * 1024 * 1024


def plan_packing(facts: PlanningFacts) -> Rewrite:
    """The merge of small files, or the reason for doing nothing.

    A statement selects files below one size, the cut-off, in all partitions. So it rewrites those
    partitions with the same cut-off whose rewrite removes the most files. The target is halved
    until the table keeps enough files for all cores, or no rewrite pays off.
    """
    target = facts.policy.target_file_bytes
    by_cutoff, counts = _by_cutoff(facts, target)
    if not by_cutoff:
        return _nothing_to_do(facts, counts)
    plans = _most_removed(by_cutoff)
    while plans and not keeps_cores_busy(facts, plans):
        target //= 2
        by_cutoff, _ = _by_cutoff(facts, target)
        plans = _most_removed(by_cutoff)
    if not plans:
        return _nothing_to_do(facts, counts, Reason.CORES_KEPT_BUSY)
    file_count = sum(plan.file_count for group in by_cutoff.values() for plan in group)
    return _bounded(facts, plans, target, file_count)


def _by_cutoff(
    facts: PlanningFacts, target: int
) -> tuple[Mapping[int, Sequence[PartitionPlan]], Mapping[str, int]]:
    """The partitions whose rewrite pays off now, by cut-off, and counts over all partitions."""
    by_cutoff = defaultdict[int, list[PartitionPlan]](list)
    counts = Counter[str]()
    for files in files_by_partition(facts.snapshot).values():
        plan = _partition_plan(facts, files, target)
        counts["candidates"] += len(plan.candidates)
        counts["fresh"] += sum(map(is_fresh, plan.candidates))
        counts["bins"] += len(plan.bins)
        pays = any(_worthwhile_files(bin_, facts, plan, target) for bin_ in plan.bins)
        if pays and may_be_rewritten(facts, plan, counts):
            by_cutoff[plan.cutoff_bytes].append(plan)
    return by_cutoff, counts


def _most_removed(by_cutoff: Mapping[int, Sequence[PartitionPlan]]) -> Sequence[PartitionPlan]:
    """The group of partitions whose rewrite removes the most files; empty without groups."""

    def removed_count(plans: Sequence[PartitionPlan]) -> int:
        return sum(plan.file_count - len(plan.bins) for plan in plans)

    return max(by_cutoff.values(), key=removed_count, default=())


def plain_statement(facts: PlanningFacts) -> Statement:
    """The statement for a plan without bins. It is never sent."""
    return Statement(
        kind="packing",
        smaller_than_bytes=facts.policy.candidate_bytes,
        up_to_bytes=facts.policy.target_file_bytes,
        writes_empty_files=facts.policy.engine != "deltalake",
    )


def _partition_plan(facts: PlanningFacts, files: Sequence[DataFile], target: int) -> PartitionPlan:
    """The plan of one partition."""
    shielded_targets, has_second_tier = _shielded_targets(facts, files, target)
    cutoff = min([target, *shielded_targets]) * 3 // 4
    candidates = _candidates(files, cutoff)
    merged = candidates
    merge_cutoff = cutoff
    if not has_second_tier:
        merge_cutoff = _merge_cutoff(facts, candidates, cutoff)
        if merge_cutoff < cutoff:
            merged = _candidates(candidates, merge_cutoff)
    return PartitionPlan(
        files=files,
        candidates=candidates,
        bins=pack(merged, up_to_bytes=target),
        cutoff_bytes=merge_cutoff,
        has_second_tier=has_second_tier,
        kept=candidates[len(merged) :],
    )


def _shielded_targets(
    facts: PlanningFacts, files: Sequence[DataFile], target: int
) -> tuple[list[int], bool]:
    """The earlier targets that shield files, and whether the second tier merges files."""
    if not facts.write_history.targets:
        return [], False
    small_targets = list[int]()
    small_target_file_bytes = 0
    other_targets = list[int]()
    for file in files:
        earlier = _earlier_target(file, facts, target)
        if not earlier:
            continue
        if earlier * _SECOND_TIER_FACTOR <= target:
            small_targets.append(earlier)
            small_target_file_bytes += file.size_bytes
        else:
            other_targets.append(earlier)
    fills_new_file = 4 * small_target_file_bytes >= 3 * target
    if len(small_targets) >= _SECOND_TIER_FACTOR and fills_new_file:
        return other_targets, True
    return [*small_targets, *other_targets], False


def _merge_cutoff(facts: PlanningFacts, candidates: Sequence[DataFile], cutoff: int) -> int:
    """The size below which files are merged: `cutoff`, or a lower power of two.

    Rewriting a large file together with a few new files saves readers a single opening, but costs
    all bytes of the large file each time. If the large file waits until the smaller files together
    approach its size, each byte is rewritten about once each time the table doubles, as in a binary
    counter. A fresh file is never left out. The power of two stays below half of `cutoff`. If the
    target is a power of two, the large file therefore always fits into one bin with the merged
    files. Tables with partitions keep `cutoff`, because a statement has a single cut-off for all
    partitions.
    """
    largest_bytes = candidates[-1].size_bytes if candidates else 0
    if facts.snapshot.partition_columns or largest_bytes < LEAST_KEPT_BYTES:
        return cutoff
    fresh_sizes = [file.size_bytes for file in candidates if is_fresh(file)]
    compacted_sizes = [file.size_bytes for file in candidates if not is_fresh(file)]
    if len(fresh_sizes) < 2 or not compacted_sizes:
        return cutoff
    power = LEAST_KEPT_BYTES
    while power <= compacted_sizes[-1] and 2 * power < cutoff:
        compacted_bytes = sum(size for size in compacted_sizes if size < power)
        merged_bytes = sum(fresh_sizes) + compacted_bytes
        if fresh_sizes[-1] < power and merged_bytes < power:
            return power
        power *= 2
    return cutoff


def _earlier_target(file: DataFile, facts: PlanningFacts, target: int) -> int:
    """The smaller target under which the file was compacted, if it shields the file; else 0."""
    earlier = facts.write_history.targets.get(file.path, 0)
    if earlier >= target or file.deletion_vector is not None:
        return 0
    return earlier if 4 * file.size_bytes >= 3 * earlier else 0


def _candidates(files: Iterable[DataFile], cutoff: int) -> list[DataFile]:
    return [
        file
        for file in files
        if file.size_bytes < cutoff or (file.deletion_vector and file.row_count is None)
    ]


def _worthwhile_files(
    bin_: Bin, facts: PlanningFacts, plan: PartitionPlan, target: int
) -> list[DataFile]:
    """The files that make the bin worth a rewrite; empty if fewer than two.

    These are the fresh files, or the files that the second tier merges, whichever are more.
    """
    worthwhile = [file for file in bin_.files if is_fresh(file)]
    if plan.has_second_tier:
        second_tier = [
            file
            for file in bin_.files
            if 0 < _SECOND_TIER_FACTOR * _earlier_target(file, facts, target) <= target
        ]
        if len(second_tier) > len(worthwhile):
            worthwhile = second_tier
    return worthwhile if len(worthwhile) >= 2 else []


def _bounded(
    facts: PlanningFacts, plans: Sequence[PartitionPlan], target: int, file_count: int
) -> Rewrite:
    """The rewrite of one run: whole partitions, or the smallest files of one partition.

    All runs together remove `file_count` files.
    """
    chosen = within_bounds(facts, plans)
    if not chosen:
        chosen = [_limited_to_run(facts, in_order(facts, plans)[0], target)]
    return Rewrite(
        statement=replace(
            plain_statement(facts),
            smaller_than_bytes=chosen[0].cutoff_bytes,
            up_to_bytes=target,
        ),
        reason=Reason.MERGEABLE_FILES,
        bins=[bin_ for plan in chosen for bin_ in plan.bins],
        files_left=file_count - sum(plan.file_count for plan in chosen),
        kept=[file for plan in chosen for file in plan.kept],
        numbers={"target_bytes": target},
    )


def _limited_to_run(facts: PlanningFacts, plan: PartitionPlan, target: int) -> PartitionPlan:
    """The plan of one run for a partition that is too large.

    The plan has the smallest files that fit into one run, but at least two that make a bin worth a
    rewrite.
    """
    files = _candidates(plan.files, plan.cutoff_bytes)
    worthwhile_by_bin = (_worthwhile_files(bin_, facts, plan, target) for bin_ in plan.bins)
    worthwhile = next(filter(None, worthwhile_by_bin))
    # The number of files, from the smallest on, that fit into one run.
    totals = accumulate(file.size_bytes for file in files)
    fitting_count = sum(fits(facts, total_bytes) for total_bytes in totals)
    cutoff = plan.cutoff_bytes
    if fitting_count < len(files):
        # A file as large as the cut-off is not selected, so one byte more includes the second file.
        least_cutoff = worthwhile[1].size_bytes + 1
        cutoff = min(cutoff, max(least_cutoff, files[fitting_count].size_bytes))
    selected = _candidates(files, cutoff)
    bins = pack(selected, up_to_bytes=target)
    return replace(plan, bins=bins, cutoff_bytes=cutoff)


def _nothing_to_do(
    facts: PlanningFacts, counts: Mapping[str, int], reason: Reason | None = None
) -> Rewrite:
    """A result without bins, with `reason`, or with the reason that the counts show."""
    reason = reason or not_now(counts)
    if reason is None and not counts["candidates"]:
        reason = Reason.NOTHING_SMALL
    elif reason is None:
        reason = Reason.ALREADY_COMPACTED if counts["bins"] else Reason.NOTHING_SHARES_A_BIN
    numbers = {
        "candidate_bytes": facts.policy.candidate_bytes,
        "target_bytes": facts.policy.target_file_bytes,
        "cores": facts.policy.scan_cores,
        "bytes": facts.snapshot.size_bytes,
    }
    return Rewrite(statement=plain_statement(facts), reason=reason, numbers={**counts, **numbers})
