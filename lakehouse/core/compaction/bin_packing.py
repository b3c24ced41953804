"""Plain compaction: which small files OPTIMIZE will merge, exactly, and which of that is worth a rewrite.

The selection and packing are Delta's own, so that plan and outcome can be held against each other file by file. Files of equal size are
the one exception: Delta takes them in the order of its snapshot, which no log tells, the plan by path. Which of them ends in which bin (or
is left over) may differ, the figures cannot.
Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala` (filterCandidateFileList, groupFilesIntoBins), `OptimizeTableStrategy.scala`.

Ours is the choice of partitions, of the size below which a file is taken (the cut-off) and of the size of a bin. It makes a
compacted table a fixed point. A partition is worth its rewrite if a bin holds at least two fresh files: a file is fresh if no compaction
has written it, or if it has a deletion vector. OPTIMIZE does every bin there. It follows:

- Two files left alone in their bins never share a bin later: the first bin was closed because even the next smallest file
  no longer fitted. So of two fresh files that a run leaves behind, the sum is over the target.
- A run's outputs are not fresh: a compaction wrote them, and it wrote them without deletion vectors.
- So no later bin holds two fresh files until somebody writes or deletes rows, whatever size the outputs shrank to.
- A deletion vector makes a file fresh whatever its share of deleted rows: only a statement that changed data after the compaction can have
  put it there, and merging takes it away. If one such file, however many of its rows are deleted, were enough, the shrunken outputs of
  a run could make room for it and be rewritten with it.
- A file that was compacted under a smaller target and was right then (three quarters of it or more) is shielded: the cut-off of its
  partition is lowered to those three quarters. Only the second tier takes it: where the target has become eight times its own, and so
  many such files lie there that one full file comes of them. Then it is of the larger target, and shielded from nothing that comes.
- Of a table without partitions, large files that compactions wrote are left for later: the cut-off is lowered to a power of two
  that all smaller files together do not reach, if no file above is fresh. They all are in one bin, so that none of them is fresh after it.
- A bounded run takes fewer partitions, or of one partition the smallest files; in each bin that makes it worth its while two files
  stop being fresh (or of the first tier), so runs end. `files_left` are the files that the unbounded plan would remove beyond it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from lakehouse.core.compaction.bins import (
    Bin,
    Packing,
    PartitionPlan,
    PlanningFacts,
    Rewrite,
    files_by_partition,
    fits,
    in_order,
    is_fresh,
    is_warm,
    pack,
    within_bounds,
)
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.reasons import Reason

# 128 MiB files into files of 1 GiB: a byte is rewritten once per tier, and eight files become one.
_TIER = 8
# To rewrite so much takes about as long as any job that starts (`core.costs.estimate`): less is not worth a file.
LEAST_KEPT_BYTES = 16 * 1024 * 1024
# Spark counts the opening of a file as so many bytes (`spark.sql.files.openCostInBytes`): a core that gets less to read gains nothing.
TRIVIAL_BYTES_PER_CORE = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The plans of a table for one target, by cut-off, and the numbers that the sentences of doing nothing name."""

    by_cutoff: dict[int, list[PartitionPlan]]
    warm_count: int
    candidate_count: int
    fresh_count: int
    shared: bool


def plan_packing(now: PlanningFacts) -> Rewrite:
    """The compaction of small files, or why there is none."""
    target = now.policy.target_file_bytes
    first = found = _find(now, target)
    group = _best_group(found)
    while group and not keeps_cores_busy(now, group):
        target //= 2
        found = _find(now, target)
        group = _best_group(found)
    if not group:
        return _nothing(now, first, kept_for_cores=bool(first.by_cutoff))
    return _bounded(now, found, group, target=target)


def plain_statement(now: PlanningFacts) -> Packing:
    """The statement of the policy alone; that of a plan without bins, which sends none."""
    return Packing(
        smaller_than_bytes=now.policy.candidate_bytes,
        up_to_bytes=now.policy.target_file_bytes,
        max_deleted_rows_ratio=now.policy.max_deleted_rows_ratio,
    )


def has_too_many_deleted_rows(file: DataFile, *, max_ratio: float) -> bool:
    """Delta's own arithmetic, floating point included: 5 of 100 rows are more than 0.05, since 1 - 95 / 100 is.

    Source: delta-io/delta v4.4.0, `actions.scala`, HasNumRecords; `OptimizeTableCommand.scala`, filterCandidateFileList.
    """
    if file.deletion_vector is None:
        return False
    if file.row_count is None:
        return True
    return file.row_count > 0 and 1.0 - (file.row_count - file.deleted_row_count) / file.row_count > max_ratio


def keeps_cores_busy(now: PlanningFacts, plans: Iterable[PartitionPlan], *, added: Callable[[tuple[Bin, ...]], int] = len) -> bool:
    """Whether the whole table keeps as many files as cores scan it: with fewer, a scan of all of it is slower.

    A single partition is not asked: one statement has one size of bin, so the smallest partition would set it for all.
    """
    wanted = min(now.policy.scan_cores, now.snapshot.size_bytes // TRIVIAL_BYTES_PER_CORE)
    return now.snapshot.file_count - sum(plan.file_count - added(plan.bins) for plan in plans) >= wanted


def _find(now: PlanningFacts, target: int) -> _Found:
    by_cutoff: defaultdict[int, list[PartitionPlan]] = defaultdict(list)
    candidate_count = fresh_count = warm_count = 0
    shared = False
    for files in files_by_partition(now.snapshot.files, now.snapshot).values():
        plan, candidates = _partition_plan(now, files, target)
        candidate_count += len(candidates)
        fresh_count += sum(map(is_fresh, candidates))
        shared = shared or bool(plan.bins)
        if not any(_is_worthwhile(bin_, now, plan, target) for bin_ in plan.bins):
            continue
        if is_warm(now, plan):
            warm_count += 1
        else:
            by_cutoff[plan.cutoff_bytes].append(plan)
    return _Found(by_cutoff=dict(by_cutoff), warm_count=warm_count, candidate_count=candidate_count, fresh_count=fresh_count, shared=shared)


def _partition_plan(now: PlanningFacts, files: tuple[DataFile, ...], target: int) -> tuple[PartitionPlan, Sequence[DataFile]]:
    """The bins of one partition, and the candidates that they are made of."""
    right = [(file, under) for file in files if (under := _right_under(file, now, target))] if now.write_history.targets else []
    first_tier = [file.size_bytes for file, under in right if under * _TIER <= target]
    promoted = len(first_tier) >= _TIER and 4 * sum(first_tier) >= 3 * target
    shields = [under for _, under in right if not (promoted and under * _TIER <= target)]
    cutoff = min([target, *shields]) * 3 // 4
    candidates = _candidates(now, files, cutoff)
    lowered = cutoff if promoted else _tier_cutoff(now, candidates, cutoff)
    merged = _candidates(now, candidates, lowered) if lowered < cutoff else candidates
    bins = pack(merged, up_to_bytes=target)
    kept = tuple(candidates[len(merged) :])
    return PartitionPlan(files=files, bins=bins, cutoff_bytes=lowered, promoted=promoted, kept=kept), candidates


def _tier_cutoff(now: PlanningFacts, candidates: Sequence[DataFile], cutoff: int) -> int:
    """The size below which files are merged: `cutoff`, or the least power of two that all smaller ones together do not reach.

    To rewrite a large file with every few new ones costs its bytes again and again, and spares a reader one opening. Left until the smaller
    ones come near its size, a byte is rewritten about once for each doubling, as in a binary counter. A fresh file is never left out. The
    power of two is less than half of `cutoff`: with more beside it, a large file would fit into no bin any more. Partitions keep their
    cut-off: one statement has one for all of them, and each would keep files.
    """
    if now.snapshot.partition_columns or not candidates or candidates[-1].size_bytes < LEAST_KEPT_BYTES:
        return cutoff
    fresh = [file.size_bytes for file in candidates if is_fresh(file)]
    compacted = [file.size_bytes for file in candidates if not is_fresh(file)]
    lowered = LEAST_KEPT_BYTES
    while len(fresh) >= 2 and compacted and compacted[-1] >= lowered and 2 * lowered < cutoff:
        if fresh[-1] < lowered and sum(fresh) + sum(size for size in compacted if size < lowered) < lowered:
            return lowered
        lowered *= 2
    return cutoff


def _right_under(file: DataFile, now: PlanningFacts, target: int) -> int:
    """The smaller target that the file was compacted under and reached; 0 where there is none."""
    under = now.write_history.targets.get(file.path, 0)
    return under if file.deletion_vector is None and under < target and 4 * file.size_bytes >= 3 * under else 0


def _candidates(now: PlanningFacts, files: Iterable[DataFile], cutoff: int, *, max_ratio: float | None = None) -> list[DataFile]:
    ratio = now.policy.max_deleted_rows_ratio if max_ratio is None else max_ratio
    return [file for file in files if file.size_bytes < cutoff or has_too_many_deleted_rows(file, max_ratio=ratio)]


def _gains(bin_: Bin, now: PlanningFacts, plan: PartitionPlan, target: int) -> list[DataFile]:
    """The files for whose sake the bin is rewritten: the fresh ones, or, in the second tier, the files of the first if they are more."""
    fresh = [file for file in bin_.files if is_fresh(file)]
    first_tier = [file for file in bin_.files if plan.promoted and 0 < _right_under(file, now, target) * _TIER <= target]
    return max(fresh, first_tier, key=len)


def _is_worthwhile(bin_: Bin, now: PlanningFacts, plan: PartitionPlan, target: int) -> bool:
    return len(_gains(bin_, now, plan, target)) >= 2


def _best_group(found: _Found) -> list[PartitionPlan]:
    """One statement has one cut-off, so the partitions of one go together: those with the most files to lose."""
    groups = sorted(found.by_cutoff.values(), key=lambda plans: sum(plan.file_count - len(plan.bins) for plan in plans))
    return groups[-1] if groups else []


def _bounded(now: PlanningFacts, found: _Found, group: Sequence[PartitionPlan], *, target: int) -> Rewrite:
    chosen, ratio, least_left = within_bounds(now, group), now.policy.max_deleted_rows_ratio, 0
    if not chosen:
        whole = in_order(now, group)[0]
        lowered, ratio = _lowered(now, whole, target)
        # Without the large files of many deleted rows others may share a bin: as many files, and still not all of the work.
        chosen, least_left = (lowered,), int(lowered.bins != whole.bins)
    everything = sum(plan.file_count for plans in found.by_cutoff.values() for plan in plans)
    return Rewrite(
        statement=Packing(smaller_than_bytes=chosen[0].cutoff_bytes, up_to_bytes=target, max_deleted_rows_ratio=ratio),
        reason=Reason.SECOND_TIER if any(plan.promoted for plan in chosen) else Reason.MERGEABLE_FILES,
        bins=tuple(bin_ for plan in chosen for bin_ in plan.bins),
        files_left=max(least_left, everything - sum(plan.file_count for plan in chosen)),
        kept=tuple(file for plan in chosen for file in plan.kept),
        numbers={"target_bytes": target},
    )


def _lowered(now: PlanningFacts, plan: PartitionPlan, target: int) -> tuple[PartitionPlan, float]:
    """The smallest files of one partition that fit into one run, but at least two that are worth it; with its deleted-rows ratio.

    The ratio is put out of reach, since files that are taken for their deleted rows are of any size. Where only such files make a bin
    worth it, the whole partition is taken. So is every file of the size at the cut: a statement tells files apart by nothing else.
    """
    files = _candidates(now, plan.files, plan.cutoff_bytes, max_ratio=1.0)
    worthwhile = next((bin_ for bin_ in pack(files, up_to_bytes=target) if _is_worthwhile(bin_, now, plan, target)), None)
    if worthwhile is None:
        return plan, now.policy.max_deleted_rows_ratio
    sums = list(accumulate(file.size_bytes for file in files))
    fitting = bisect_left(range(len(files)), True, key=lambda place: not fits(now, sums[place]))
    cutoff = files[fitting].size_bytes if fitting < len(files) else plan.cutoff_bytes
    cutoff = min(max(cutoff, _gains(worthwhile, now, plan, target)[1].size_bytes + 1), plan.cutoff_bytes)
    bins = pack(_candidates(now, files, cutoff, max_ratio=1.0), up_to_bytes=target)
    return replace(plan, bins=bins, cutoff_bytes=cutoff), 1.0


def _nothing(now: PlanningFacts, found: _Found, *, kept_for_cores: bool) -> Rewrite:
    if kept_for_cores:
        reason = Reason.CORES_KEPT_BUSY
    elif found.warm_count:
        reason = Reason.ALL_WARM
    elif not now.snapshot.files:
        reason = Reason.NO_FILES
    elif not found.candidate_count:
        reason = Reason.NOTHING_SMALL
    else:
        reason = Reason.ALREADY_COMPACTED if found.shared else Reason.NOTHING_SHARES_A_BIN
    return Rewrite(
        statement=plain_statement(now),
        reason=reason,
        numbers={
            "candidates": found.candidate_count,
            "fresh": found.fresh_count,
            "candidate_bytes": now.policy.candidate_bytes,
            "target_bytes": now.policy.target_file_bytes,
            "warm": found.warm_count,
            "hours": f"{now.policy.cold_hours:g}",
            "cores": now.policy.scan_cores,
            "bytes": now.snapshot.size_bytes,
        },
    )
