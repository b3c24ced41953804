"""Computes what readers have lost to small files since the last compaction.

A full read of a table opens more files than it would after a compaction. The loss is the number of
extra file openings, summed over all full reads. It depends only on the commits since the last
compaction and on the times of the reads; nothing is forecast. A compaction is due when the loss
reaches its cost. docs/internals/rent-or-buy.md proves a bound on the total cost of this rule.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.units import DAY_MS

# A plan does not merge a single new file with a compacted one (docs/internals/decisions/0003).
_LEAST_NEW_FILES = 2
# A table has at most this many steps (`OpeningSteps`), which take about 1 KiB, because each of its
# Dagster events holds a copy of them.
_MOST_STEPS = 48

# Steps: a time in ms, and how many openings a compaction would save each full read from then on.
OpeningSteps = tuple[tuple[int, int], ...]
# Reads without known times: begin and end of a period (ms), and the number of reads per day.
SpreadReads = tuple[int, int, float]


@dataclass(slots=True)
class _Partition:
    """The small files of one partition: new files, and the last file that a compaction wrote."""

    new_files: int = 0
    new_bytes: int = 0
    compacted_bytes: int = 0  # 0: no compacted file


class _SmallFiles:
    """Tracks the small files of each partition, and the openings that a compaction would save.

    The log does not record past plans, so this class models them. The model packs bins by size
    only, and ignores deleted rows and the bounds of a run. `removed` are the paths that later
    commits remove; only these are remembered, and `remove` ignores all others.
    """

    def __init__(self, *, target_bytes: int, candidate_bytes: int, removed: Set[str]) -> None:
        self.openings_saved = 0
        self._removed = removed
        self._target_bytes = target_bytes
        self._candidate_bytes = candidate_bytes
        self._partitions: dict[str, _Partition] = {}
        self._new_files: dict[str, tuple[str, int]] = {}  # path -> (partition, bytes)

    def add(self, path: str, partition: str, size_bytes: int, *, compacted: bool) -> None:
        """Adds a file. A compacted file can be part of a merge, but does not cause a merge."""
        if size_bytes >= self._candidate_bytes:
            return
        files = self._partitions.setdefault(partition, _Partition())
        self.openings_saved -= self._savings(files)
        if compacted:
            files.compacted_bytes = size_bytes
        else:
            if path in self._removed:
                self._new_files[path] = (partition, size_bytes)
            files.new_files += 1
            files.new_bytes += size_bytes
        self.openings_saved += self._savings(files)

    def remove(self, path: str) -> None:
        """Removes a new file. The path of a compacted file is not tracked, so it has no effect."""
        if path not in self._new_files:
            return
        partition, size_bytes = self._new_files.pop(path)
        files = self._partitions[partition]
        self.openings_saved -= self._savings(files)
        files.new_files -= 1
        files.new_bytes -= size_bytes
        self.openings_saved += self._savings(files)

    def _savings(self, files: _Partition) -> int:
        if files.new_files < _LEAST_NEW_FILES:
            return 0
        files_before = files.new_files + (files.compacted_bytes > 0)
        files_after = max(1, ceil((files.new_bytes + files.compacted_bytes) / self._target_bytes))
        return files_before - files_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBalance:
    """The losses of readers since the last compaction, and the cost of a compaction now.

    The cost includes the verification that compares the rows.
    """

    lost_seconds: float
    lost_usd: float
    cost_seconds: float
    cost_usd: float
    on_s3: bool

    @property
    def lost_and_cost(self) -> tuple[float, float]:
        """Loss and cost in USD, or in seconds if both are 0 USD."""
        if self.lost_usd or self.cost_usd:
            return self.lost_usd, self.cost_usd
        return self.lost_seconds, self.cost_seconds

    @property
    def is_due(self) -> bool:
        """Whether the losses have reached the cost."""
        lost, cost = self.lost_and_cost
        return lost > 0 and lost >= cost

    @property
    def texts(self) -> dict[str, str]:
        """`lost` and `cost` in seconds. On S3 also in USD, because each opening costs requests."""
        lost = f"{self.lost_seconds:.1f} s"
        cost = f"{self.cost_seconds:.1f} s"
        if self.on_s3:
            lost = f"{lost} ({self.lost_usd:.2g} USD)"
            cost = f"{cost} ({self.cost_usd:.2g} USD)"
        return {"lost": lost, "cost": cost}


def opening_steps(
    snapshot: Snapshot, plan: CompactionPlan, history: Commits
) -> OpeningSteps | None:
    """The openings that a compaction would have saved, after each commit since the last compaction.

    The newest step comes from the plan; earlier steps are modelled. A commit that replaced all
    files counts as a compaction. If `history` has no compaction, the steps begin at its oldest
    commit. `None` if `history` has no commit.
    """
    commits = _since_last_compaction(history, snapshot.file_count)
    if not commits:
        return None
    starts_with_rewrite = is_rewrite(commits[0])
    later_commits = commits[1:] if starts_with_rewrite else commits
    later_paths = _written_paths(later_commits)
    later_sizes = dict[str, int]()
    small_files = _SmallFiles(
        target_bytes=plan.policy.target_file_bytes,
        candidate_bytes=plan.policy.candidate_bytes,
        removed={path for commit in later_commits for path in commit.removed_paths},
    )
    # The small files before the later commits: those of the snapshot that these did not write.
    for file in snapshot.files:
        if file.path in later_paths:
            later_sizes[file.path] = file.size_bytes
        else:
            partition = _partition_of(file.path, snapshot)
            small_files.add(file.path, partition, file.size_bytes, compacted=file.compacted)
    steps: list[tuple[int, int]] = []
    if starts_with_rewrite:
        steps.append((commits[0].committed_ms, small_files.openings_saved))
    for commit in later_commits:
        _apply(commit, small_files, snapshot, later_sizes)
        steps.append((commit.committed_ms, small_files.openings_saved))
    newest_ms = steps[-1][0]
    steps[-1] = (newest_ms, max(0, plan.files_removed - plan.files_added))
    return _merged_steps(steps)


def lost_openings(
    steps: OpeningSteps,
    reads_ms: Iterable[int],
    *,
    spread: Iterable[SpreadReads] = (),
    now_ms: int,
) -> float:
    """Openings lost by reads at these times, and by reads that are evenly `spread` over periods.

    A read loses as many openings as the step in force at its time says. Reads before the first step
    lost nothing.
    """
    if not steps:
        return 0.0
    # Clocks differ, so times are corrected: no step begins in the future or before an earlier step.
    starts_ms = list(accumulate((min(since_ms, now_ms) for since_ms, _ in steps), max))
    ends_ms = [*starts_ms[1:], now_ms]
    openings = [saved for _, saved in steps]
    lost = 0.0
    for read_ms in reads_ms:
        index = bisect_right(starts_ms, read_ms)
        if index > 0:
            lost += openings[index - 1]
    for from_ms, until_ms, reads_per_day in spread:
        for start_ms, end_ms, saved in zip(starts_ms, ends_ms, openings, strict=True):
            overlap_ms = max(0, min(until_ms, end_ms) - max(from_ms, start_ms))
            lost += reads_per_day / DAY_MS * overlap_ms * saved
    return lost


def is_rewrite(commit: Commit) -> bool:
    """Whether the commit replaced files without changing a row."""
    return not commit.changed_data and bool(commit.removed_paths)


def replaces_all_files(
    operation: str, added_paths: Iterable[str], removed_paths: Collection[str], file_count: int
) -> bool:
    """Whether a commit replaced all earlier files, so that the losses start again from 0.

    `file_count` is the number of files after the commit. A RESTORE does not count.
    """
    return (
        bool(removed_paths)
        and operation != "RESTORE"
        and len({*added_paths} - {*removed_paths}) == file_count
    )


def _apply(
    commit: Commit, small_files: _SmallFiles, snapshot: Snapshot, sizes: Mapping[str, int]
) -> None:
    """Applies a commit. A file of unknown size gets the mean size of the files in its commit."""
    added = set(commit.added_paths)
    removed = set(commit.removed_paths)
    replaced = added & removed  # files that only got a deletion vector or statistics
    for path in removed - replaced:
        small_files.remove(path)
    if not commit.changed_data:
        return
    mean_bytes = commit.added_bytes // max(1, len(commit.added_paths))
    for path in added - replaced:
        partition = _partition_of(path, snapshot)
        small_files.add(path, partition, sizes.get(path, mean_bytes), compacted=False)


def _written_paths(commits: Iterable[Commit]) -> set[str]:
    """The paths of the files that these commits wrote, without files that got only a vector."""
    paths: set[str] = set()
    for commit in commits:
        # Without a data change, a commit that only adds files adds existing files again.
        if commit.changed_data or commit.removed_paths:
            paths |= {*commit.added_paths} - {*commit.removed_paths}
    return paths


def _partition_of(path: str, snapshot: Snapshot) -> str:
    return path.rpartition("/")[0] if snapshot.partition_columns else ""


def _since_last_compaction(history: Commits, file_count: int) -> Sequence[Commit]:
    """The commits from the last compaction on, or from the last commit that replaced all files."""
    counts = history.file_counts(file_count)
    undone = history.undone()
    for index in reversed(range(len(history.commits))):
        commit = history.commits[index]
        if is_rewrite(commit) and commit.version not in undone:
            return history.commits[index:]
        if commit.changed_data and replaces_all_files(
            commit.operation, commit.added_paths, commit.removed_paths, counts[index]
        ):
            return history.commits[index:]
    return history.commits


def _merged_steps(steps: Sequence[tuple[int, int]]) -> OpeningSteps:
    """Drops steps that repeat the previous value, and bounds their number by `_MOST_STEPS`.

    While too many steps are left, neighbouring pairs are merged. A merged step has the smaller
    value, so that the loss is never overstated. The newest step is kept as it is.
    """
    kept = list[tuple[int, int]]()
    for step in steps:
        if not kept or step[1] != kept[-1][1]:
            kept.append(step)
    while len(kept) > _MOST_STEPS:
        *earlier, newest = kept
        pairs = [earlier[index : index + 2] for index in range(0, len(earlier), 2)]
        kept = [(pair[0][0], min(saved for _, saved in pair)) for pair in pairs]
        kept.append(newest)
    return tuple(kept)
