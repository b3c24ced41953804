"""Computes what readers have lost to small files since the last compaction (rent or buy).

A full read of a table opens more files than it would after a compaction. The loss is the number of
extra openings. The loss is computed from the commits since the last compaction, without a forecast
and without stored state. docs/internals/rent-or-buy.md proves the resulting bound.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from math import ceil

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.units import DAY_MS

# A plan does not merge a single new file with a compacted one (docs/internals/decisions/0003).
_LEAST_NEW_FILES = 2
# The table's newest Dagster event stores the steps. This many take about 1 KiB.
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
    """Tracks the small files of each partition by commits, and what a compaction would save.

    This models past plans, since no log records them. The model packs bins by size only, and
    ignores deleted rows and the bounds of a run. Only files at the paths `removed` can be removed.
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
        """Removes a new file. A compacted file is kept, since the commit adds a similar file."""
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

    The cost includes comparing the rows.
    """

    lost_seconds: float
    lost_usd: float
    cost_seconds: float
    cost_usd: float
    on_s3: bool

    @property
    def lost_and_cost(self) -> tuple[float, float]:
        """Loss and cost in USD, or in seconds if both are free."""
        return (
            (self.lost_usd, self.cost_usd)
            if self.lost_usd or self.cost_usd
            else (self.lost_seconds, self.cost_seconds)
        )

    @property
    def is_due(self) -> bool:
        """Whether the losses have reached the cost."""
        lost, cost = self.lost_and_cost
        return lost > 0 and lost >= cost

    @property
    def numbers(self) -> dict[str, str]:
        """Loss and cost as text; on S3 also in USD, since requests cost more than the time."""
        amounts = {
            "lost": (self.lost_seconds, self.lost_usd),
            "cost": (self.cost_seconds, self.cost_usd),
        }
        return {
            name: f"{seconds:.1f} s" + (f" ({usd:.2g} USD)" if self.on_s3 else "")
            for name, (seconds, usd) in amounts.items()
        }


def opening_steps(
    snapshot: Snapshot, plan: CompactionPlan, history: Commits
) -> OpeningSteps | None:
    """The openings that a compaction would have saved, after each commit since the last compaction.

    The newest step is the number in the plan; earlier steps are modelled. If the log has no
    compaction, the steps begin at the log's oldest commit. `None` if the log has no commit.
    """
    since = _since_last_compaction(history, snapshot.file_count)
    if not since:
        return None
    later = since[1:] if is_rewrite(since[0]) else since
    written = _written_paths(later)
    sizes = dict[str, int]()
    small = _SmallFiles(
        target_bytes=plan.policy.target_file_bytes,
        candidate_bytes=plan.policy.candidate_bytes,
        removed={path for commit in later for path in commit.removed_paths},
    )
    for file in snapshot.files:
        if file.path in written:
            sizes[file.path] = file.size_bytes
        else:
            partition = _partition_of(file.path, snapshot)
            small.add(file.path, partition, file.size_bytes, compacted=file.compacted)
    steps: list[tuple[int, int]] = []
    if is_rewrite(since[0]):
        steps.append((since[0].committed_ms, small.openings_saved))
    for commit in later:
        _apply(commit, small, snapshot, sizes)
        steps.append((commit.committed_ms, small.openings_saved))
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

    Reads before the first step lost nothing.
    """
    # Clocks differ, so times are corrected: no step begins in the future or before an earlier step.
    times = [*accumulate((min(since_ms, now_ms) for since_ms, _ in steps), max)]
    by_runs = sum(
        steps[place - 1][1] for at_ms in reads_ms if (place := bisect_right(times, at_ms))
    )
    spans = (
        [
            (*span, openings)
            for span, (_, openings) in zip(pairwise([*times, now_ms]), steps, strict=True)
        ]
        if steps
        else []
    )

    def openings_within(from_ms: int, until_ms: int) -> int:
        return sum(
            openings * max(0, min(until_ms, end_ms) - max(from_ms, begin_ms))
            for begin_ms, end_ms, openings in spans
        )

    return by_runs + sum(
        per_day / DAY_MS * openings_within(from_ms, until_ms)
        for from_ms, until_ms, per_day in spread
    )


def is_rewrite(commit: Commit) -> bool:
    """Whether the commit replaced files without changing a row."""
    return not commit.changed_data and bool(commit.removed_paths)


def replaces_all_files(
    operation: str, added_paths: Iterable[str], removed_paths: Collection[str], file_count: int
) -> bool:
    """Whether a commit replaced all earlier files. If so, readers have lost nothing yet.

    `file_count` is the number of files after the commit.
    """
    return (
        bool(removed_paths)
        and operation != "RESTORE"
        and len({*added_paths} - {*removed_paths}) == file_count
    )


def _apply(
    commit: Commit, small: _SmallFiles, snapshot: Snapshot, sizes: Mapping[str, int]
) -> None:
    """Applies a commit. A file of unknown size gets the mean size of the files in its commit."""
    added = set(commit.added_paths)
    removed = set(commit.removed_paths)
    replaced = added & removed  # files that only got a deletion vector or statistics
    for path in removed - replaced:
        small.remove(path)
    if not commit.changed_data:
        return
    mean_bytes = commit.added_bytes // max(1, len(commit.added_paths))
    for path in added - replaced:
        partition = _partition_of(path, snapshot)
        small.add(path, partition, sizes.get(path, mean_bytes), compacted=False)


def _written_paths(commits: Iterable[Commit]) -> set[str]:
    """The files that these commits wrote, without files that only got a deletion vector."""
    written: set[str] = set()
    for commit in commits:
        if commit.changed_data or commit.removed_paths:
            written |= {*commit.added_paths} - {*commit.removed_paths}
    return written


def _partition_of(path: str, snapshot: Snapshot) -> str:
    return path.rpartition("/")[0] if snapshot.partition_columns else ""


def _since_last_compaction(history: Commits, file_count: int) -> Sequence[Commit]:
    """The commits from the last compaction on, or from the last commit that replaced all files."""
    counts = history.file_counts(file_count)
    undone = history.undone()
    for place in reversed(range(len(history.commits))):
        commit = history.commits[place]
        if is_rewrite(commit) and commit.version not in undone:
            return history.commits[place:]
        if commit.changed_data and replaces_all_files(
            commit.operation, commit.added_paths, commit.removed_paths, counts[place]
        ):
            return history.commits[place:]
    return history.commits


def _merged_steps(steps: Sequence[tuple[int, int]]) -> OpeningSteps:
    """The steps without repetitions. If too many, pairs are merged, with the smaller value."""
    kept = [step for place, step in enumerate(steps) if not place or step[1] != steps[place - 1][1]]
    while len(kept) > _MOST_STEPS:
        pairs = zip_longest(kept[:-1:2], kept[1:-1:2])
        kept = [
            *((first[0], min(first[1], (later or first)[1])) for first, later in pairs),
            kept[-1],
        ]
    return tuple(kept)
