"""Plans a plain compaction: exactly which small files OPTIMIZE merges, and which merges pay off.

Files are selected and packed exactly as in Delta, so plan and outcome can be compared file by file.
There is one exception: Delta orders files of equal size as in its snapshot, and the plan orders
them by path. Such files may swap their bins, which does not change any figure.
Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala` (filterCandidateFileList,
groupFilesIntoBins), `OptimizeTableStrategy.scala`.

This module chooses the partitions, the size below which a file is selected (the cut-off), and the
size of a bin. With these choices, a compacted table is not compacted again before a writer commits
(proof: docs/internals/decisions/0003).

- A partition is worth a rewrite if a bin holds at least two fresh files. A file is fresh if no
  compaction wrote it, or if it has a deletion vector. OPTIMIZE then rewrites every bin of the
  partition.
- A file that reached three quarters of an earlier, smaller target is shielded: the cut-off of its
  partition is lowered to these three quarters. Only the second tier rewrites a shielded file, once
  the target is eight times the earlier target and such files fill one new file.
- In a table without partitions, large compacted files are merged later. The cut-off is lowered to a
  power of two that is larger than all files below it together, if no fresh file is above it. The
  merged files share one bin, so their rows are in a single compacted file afterwards.
- A partition with files in a colder storage class is omitted as a whole, unless its merge pays off
  (`cold_tier.py`).
- A bounded run rewrites fewer partitions, or the smallest files of one partition. In each bin that
  makes a rewrite worthwhile, at least two files stop being fresh (or leave the first tier), so the
  runs come to an end. `files_left` counts the files that an unbounded plan would also remove.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from lakehouse.core.compaction.bins import (
    Bin,
    Packing,
    PartitionPlan,
    PlanningFacts,
    Rewrite,
    files_by_partition,
    in_columns,
    is_fresh,
    pack,
)
from lakehouse.core.compaction.cold_tier import PAYBACK_DAYS
from lakehouse.core.compaction.run_bounds import (
    BestGroup,
    PlannedPartition,
    best_group,
    fits,
    in_order,
    within_bounds,
)
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.reasons import Reason

# A file with a larger share of deleted rows is rewritten, whatever its size, if it shares a bin.
# Source: Delta's default, DeltaSQLConf, optimize.maxDeletedRowsRatio.
MAX_DELETED_ROWS_RATIO = 0.05
# The second tier merges eight files, for example of 128 MiB each into one of 1 GiB. Each tier
# rewrites a byte once.
_TIER = 8
# Smaller files never wait for a later merge: rewriting this much takes about as long as starting a
# job.
LEAST_KEPT_BYTES = 16 * 1024 * 1024


def plan_packing(facts: PlanningFacts) -> Rewrite:
    """The merge of small files, or the reason for doing nothing."""
    group = best_group(facts, partial(_planned, facts))
    return _bounded(facts, group) if group.plans else nothing_to_do(facts, group)


def plain_statement(facts: PlanningFacts) -> Packing:
    """The statement for a plan without bins. It is never sent."""
    return Packing(
        smaller_than_bytes=facts.policy.candidate_bytes,
        up_to_bytes=facts.policy.target_file_bytes,
        max_deleted_rows_ratio=MAX_DELETED_ROWS_RATIO,
    )


def has_too_many_deleted_rows(file: DataFile, *, max_ratio: float) -> bool:
    """Delta's test, with the same floating-point arithmetic: 5 of 100 rows exceed 0.05.

    Source: delta-io/delta v4.4.0, `actions.scala`, HasNumRecords; `OptimizeTableCommand.scala`,
    filterCandidateFileList.
    """
    if file.deletion_vector is None:
        return False
    if file.row_count is None:
        return True
    if file.row_count == 0:
        return False
    return 1.0 - (file.row_count - file.deleted_row_count) / file.row_count > max_ratio


def _planned(facts: PlanningFacts, target: int) -> Iterator[PlannedPartition]:
    for files in files_by_partition(facts.snapshot).values():
        objects = tuple(files)
        plan, candidates = _partition_plan(facts, objects, target)
        pays = any(_worthwhile_files(bin_, facts, plan, target) for bin_ in plan.bins)
        if pays:
            plan = in_columns(plan, files, objects)
        yield PlannedPartition(plan=plan, candidates=candidates, pays=pays)


def _partition_plan(
    facts: PlanningFacts, files: Sequence[DataFile], target: int
) -> tuple[PartitionPlan, Sequence[DataFile]]:
    """The plan of one partition, and the files that are small enough for it."""
    # The earlier targets of shielded files. A file of the first tier loses its shield if the
    # second tier merges it (`promoted`).
    shields = list[int]()
    first_tier_shields = list[int]()
    first_tier_bytes = 0
    for file in files if facts.write_history.targets else ():
        earlier = _earlier_target(file, facts, target)
        if not earlier:
            continue
        if earlier * _TIER <= target:
            first_tier_shields.append(earlier)
            first_tier_bytes += file.size_bytes
        else:
            shields.append(earlier)
    promoted = len(first_tier_shields) >= _TIER and 4 * first_tier_bytes >= 3 * target
    if not promoted:
        shields += first_tier_shields
    cutoff = min([target, *shields]) * 3 // 4
    candidates = _candidates(files, cutoff, MAX_DELETED_ROWS_RATIO)
    lowered = cutoff if promoted else _tier_cutoff(facts, candidates, cutoff)
    merged = candidates
    if lowered < cutoff:
        merged = _candidates(candidates, lowered, MAX_DELETED_ROWS_RATIO)
    plan = PartitionPlan(
        files=files,
        bins=pack(merged, facts.snapshot.columns, up_to_bytes=target),
        cutoff_bytes=lowered,
        promoted=promoted,
        kept=tuple(candidates[len(merged) :]),
    )
    return plan, candidates


def _tier_cutoff(facts: PlanningFacts, candidates: Sequence[DataFile], cutoff: int) -> int:
    """The size below which files are merged: `cutoff`, or a lower power of two.

    Rewriting a large file together with a few new files saves readers a single opening, but costs
    all bytes of the large file each time. If the large file waits until the smaller files together
    approach its size, a byte is rewritten about once per doubling, as in a binary counter. A fresh
    file is never left out. The power of two stays below half of `cutoff`; otherwise, the large file
    might no longer fit into a bin with the merged files. Tables with partitions keep `cutoff`,
    because a statement has a single cut-off for all partitions.
    """
    if (
        facts.snapshot.partition_columns
        or not candidates
        or candidates[-1].size_bytes < LEAST_KEPT_BYTES
    ):
        return cutoff
    fresh = [file.size_bytes for file in candidates if is_fresh(file)]
    compacted = [file.size_bytes for file in candidates if not is_fresh(file)]
    lowered = LEAST_KEPT_BYTES
    while len(fresh) >= 2 and compacted and compacted[-1] >= lowered and 2 * lowered < cutoff:
        merged_bytes = sum(fresh) + sum(size for size in compacted if size < lowered)
        if fresh[-1] < lowered and merged_bytes < lowered:
            return lowered
        lowered *= 2
    return cutoff


def _earlier_target(file: DataFile, facts: PlanningFacts, target: int) -> int:
    """The target of the file's compaction, if it was smaller and the file reached it; else 0."""
    earlier = facts.write_history.targets.get(file.path, 0)
    is_reached = 4 * file.size_bytes >= 3 * earlier
    return earlier if is_reached and earlier < target and file.deletion_vector is None else 0


def _candidates(files: Iterable[DataFile], cutoff: int, max_ratio: float) -> list[DataFile]:
    return [
        file
        for file in files
        if file.size_bytes < cutoff or has_too_many_deleted_rows(file, max_ratio=max_ratio)
    ]


def _worthwhile_files(
    bin_: Bin, facts: PlanningFacts, plan: PartitionPlan, target: int
) -> list[DataFile]:
    """The fresh or first-tier files that make the bin worth a rewrite; empty if fewer than two."""
    fresh = [file for file in bin_.files if is_fresh(file)]
    first_tier = list[DataFile]()
    if plan.promoted:
        first_tier = [
            file
            for file in bin_.files
            if 0 < _earlier_target(file, facts, target) * _TIER <= target
        ]
    worthwhile = max(fresh, first_tier, key=len)
    return worthwhile if len(worthwhile) >= 2 else []


def _bounded(facts: PlanningFacts, group: BestGroup) -> Rewrite:
    """The rewrite of one run: several partitions, or the smallest files of the first partition."""
    target = group.target
    chosen = within_bounds(facts, group.plans)
    ratio = MAX_DELETED_ROWS_RATIO
    least_left = 0
    if not chosen:
        first = in_order(facts, group.plans)[0]
        limited, ratio = _limited_to_run(facts, first, target)
        chosen = (limited,)
        # Without the large files with deleted rows, the bins differ, so some work may be left.
        least_left = int(limited.bins != first.bins)
    return Rewrite(
        statement=Packing(
            smaller_than_bytes=chosen[0].cutoff_bytes,
            up_to_bytes=target,
            max_deleted_rows_ratio=ratio,
        ),
        reason=Reason.MERGEABLE_FILES,
        bins=tuple(bin_ for plan in chosen for bin_ in plan.bins),
        files_left=max(least_left, group.file_count - sum(plan.file_count for plan in chosen)),
        kept=tuple(file for plan in chosen for file in plan.kept),
        numbers={"target_bytes": target},
    )


def _limited_to_run(
    facts: PlanningFacts, plan: PartitionPlan, target: int
) -> tuple[PartitionPlan, float]:
    """The plan for the smallest files of a partition that fit into one run, and its maximum ratio.

    The plan has at least two files that make a bin worth a rewrite. The maximum ratio of deleted
    rows is 1.0, which no file exceeds: files with deleted rows may be large, so a bounded run
    selects files by size alone. If only files with deleted rows make a bin worth a rewrite, the
    whole partition is planned, with the usual ratio. The statement selects every file below the
    cut-off, and so does the plan.
    """
    files = _candidates(plan.files, plan.cutoff_bytes, max_ratio=1.0)
    bins = pack(files, facts.snapshot.columns, up_to_bytes=target)
    worthwhile_by_bin = (_worthwhile_files(bin_, facts, plan, target) for bin_ in bins)
    worthwhile = next(filter(None, worthwhile_by_bin), None)
    if worthwhile is None:
        return plan, MAX_DELETED_ROWS_RATIO
    sums = list(accumulate(file.size_bytes for file in files))
    # The number of files, from the smallest on, that fit into one run.
    fitting = bisect_left(range(len(files)), True, key=lambda index: not fits(facts, sums[index]))
    cutoff = files[fitting].size_bytes if fitting < len(files) else plan.cutoff_bytes
    cutoff = min(max(cutoff, worthwhile[1].size_bytes + 1), plan.cutoff_bytes)
    selected = _candidates(files, cutoff, max_ratio=1.0)
    bins = pack(selected, facts.snapshot.columns, up_to_bytes=target)
    return replace(plan, bins=bins, cutoff_bytes=cutoff), 1.0


def nothing_to_do(facts: PlanningFacts, group: BestGroup) -> Rewrite:
    """A result without bins, and the reason."""
    counts = group.counts
    if group.leaves_cores_idle:
        reason = Reason.CORES_KEPT_BUSY
    elif counts["cold"]:
        reason = Reason.COLD_TIER
    elif counts["warm"]:
        reason = Reason.ALL_WARM
    elif not facts.snapshot.files:
        reason = Reason.NO_FILES
    elif not counts["candidates"]:
        reason = Reason.NOTHING_SMALL
    elif counts["bins"]:
        reason = Reason.ALREADY_COMPACTED
    else:
        reason = Reason.NOTHING_SHARES_A_BIN
    numbers = {
        "candidate_bytes": facts.policy.candidate_bytes,
        "target_bytes": facts.policy.target_file_bytes,
        "cores": facts.policy.scan_cores,
        "bytes": facts.snapshot.size_bytes,
        "days": PAYBACK_DAYS,
    }
    return Rewrite(statement=plain_statement(facts), reason=reason, numbers={**counts, **numbers})
