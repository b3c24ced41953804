"""The losses of readers to small files since a table's last compaction, and the price of a compaction: rent or buy.

A read of the whole table opens more files than a compaction would have left it: its loss is that many openings. The commits since the last
compaction tell them. No forecast is needed, and nothing is remembered but the log: docs/rent-or-buy.md has the bound that follows.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from math import ceil

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.units import DAY_MS

# A new file beside one that a compaction wrote is left alone: the plan's law, docs/decisions/0003.
_LEAST_NEW_FILES = 2
# The newest event of a table holds so many steps: some 1 KiB.
_MOST_STEPS = 48

type_of_steps = tuple[tuple[int, int], ...]
# Reads that nobody saw one by one: from when to when (ms), and how many a day.
type_of_spread_reads = tuple[int, int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """A commit of a writer: the files (path, partition, bytes) that it added and removed; or only a time, at which somebody compacted."""

    at_ms: int
    added: tuple[tuple[str, str, int], ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Folder:
    """The small files of one partition: those written since the last compaction, and the bytes of the one that it left (0: none)."""

    new_files: int = 0
    new_bytes: int = 0
    left_bytes: int = 0


class SmallFiles:
    """The small files of a table, folder by folder, as commits add and remove them; and what a compaction would make of them.

    A model of the plan for the times of which no log keeps a plan: bins by size only, no deleted rows, no bound of one run.
    """

    def __init__(self, *, target_bytes: int, candidate_bytes: int) -> None:
        """No file yet."""
        self.files_removed = self.bytes_removed = self.files_added = 0
        self._target_bytes, self._candidate_bytes = target_bytes, candidate_bytes
        self._folders: dict[str, _Folder] = {}
        self._new: dict[str, tuple[str, int]] = {}

    @property
    def openings_saved(self) -> int:
        """File openings that every full read would be spared by a compaction."""
        return self.files_removed - self.files_added

    def copy(self) -> "SmallFiles":
        """The same files, to go on with otherwise."""
        twin = SmallFiles(target_bytes=self._target_bytes, candidate_bytes=self._candidate_bytes)
        twin.files_removed, twin.bytes_removed, twin.files_added = (
            self.files_removed,
            self.bytes_removed,
            self.files_added,
        )
        twin._folders = {
            name: _Folder(each.new_files, each.new_bytes, each.left_bytes)
            for name, each in self._folders.items()
        }
        twin._new = dict(self._new)
        return twin

    def add(self, files: Iterable[tuple[str, str, int, bool]]) -> None:
        """Files are added, each told by path, folder, bytes and whether a compaction wrote it: that one is joined, but asks for nothing."""
        touched: dict[str, _Folder] = {}
        for path, folder, size_bytes, compacted in files:
            if size_bytes >= self._candidate_bytes:
                continue
            found = touched.get(folder)
            if found is None:
                found = touched[folder] = self._folders.setdefault(folder, _Folder())
                self._count(found, -1)
            if compacted:
                found.left_bytes = size_bytes
            else:
                self._new[path] = (folder, size_bytes)
                found.new_files += 1
                found.new_bytes += size_bytes
        for found in touched.values():
            self._count(found, 1)

    def remove(self, path: str) -> None:
        """A commit removed a file; the one that a compaction left is rewritten by its writer, and stays one."""
        if path in self._new:
            folder, size_bytes = self._new.pop(path)
            found = self._folders[folder]
            self._count(found, -1)
            found.new_files, found.new_bytes = found.new_files - 1, found.new_bytes - size_bytes
            self._count(found, 1)

    def apply(self, event: LogEvent) -> None:
        """A commit of a writer changed the files."""
        for path in event.removed:
            self.remove(path)
        self.add((*file, False) for file in event.added)

    def compact(self) -> None:
        """A compaction merged what can be merged."""
        for found in self._folders.values():
            if found.new_files >= _LEAST_NEW_FILES:
                left = (found.new_bytes + found.left_bytes) % self._target_bytes
                found.new_files, found.new_bytes, found.left_bytes = (
                    0,
                    0,
                    left if left < self._candidate_bytes else 0,
                )
        self._new = {path: at for path, at in self._new.items() if self._folders[at[0]].new_files}
        self.files_removed = self.bytes_removed = self.files_added = 0

    def _count(self, found: _Folder, sign: int) -> None:
        if found.new_files >= _LEAST_NEW_FILES:
            size_bytes = found.new_bytes + found.left_bytes
            self.files_removed += sign * (found.new_files + (found.left_bytes > 0))
            self.bytes_removed += sign * size_bytes
            self.files_added += sign * max(1, ceil(size_bytes / self._target_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBalance:
    """The losses of readers since the last compaction beside the cost of a compaction now, its comparison included."""

    lost_seconds: float
    lost_usd: float
    cost_seconds: float
    cost_usd: float
    on_s3: bool

    @property
    def lost_and_cost(self) -> tuple[float, float]:
        """Both in money, or in seconds on a machine whose time costs none."""
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
        """The loss and the cost for a person; on S3 requests cost more than seconds, so the money is told, too."""
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
) -> type_of_steps | None:
    """Since the last compaction: from when on (ms) a compaction would have saved each full read how many openings; `None` without a commit.

    The newest is the plan's own number, the earlier ones are modelled. Where the log remembers no compaction, its oldest commit begins.
    """
    since = _since_last_compaction(history, snapshot.file_count)
    if not since:
        return None
    later = since[1:] if is_rewrite(since[0]) else since
    sizes, written = {file.path: file.size_bytes for file in snapshot.files}, written_paths(later)
    small = SmallFiles(
        target_bytes=plan.policy.target_file_bytes, candidate_bytes=plan.policy.candidate_bytes
    )
    earlier = (file for file in snapshot.files if file.path not in written)
    small.add(
        (file.path, folder_of(file.path, snapshot), file.size_bytes, file.compacted)
        for file in earlier
    )
    steps = [(since[0].committed_ms, small.openings_saved)] if is_rewrite(since[0]) else []
    for commit in later:
        small.apply(event_of(commit, snapshot, sizes))
        steps.append((commit.committed_ms, small.openings_saved))
    steps[-1] = (steps[-1][0], max(0, plan.files_removed - plan.files_added))
    return _few(steps)


def lost_openings(
    steps: type_of_steps,
    reads_ms: Iterable[int],
    *,
    spread: Iterable[type_of_spread_reads] = (),
    now_ms: int,
) -> float:
    """Openings lost by reads at these times and by those that are `spread` evenly; what was read before the first step lost nothing."""
    times = settled_times([since_ms for since_ms, _ in steps], now_ms=now_ms)
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


def settled_times(times_ms: Sequence[int], *, now_ms: int) -> list[int]:
    """The times of commits in their order, none after now and none before an earlier one, as a clock that is wrong may tell them.

    A time that lies ahead is taken as that of the next commit; one that lies behind as that of the commit before it.
    """
    known, next_ms = list[int](), now_ms
    for at_ms in reversed(times_ms):
        next_ms = at_ms if at_ms <= now_ms else next_ms
        known.append(next_ms)
    return [*accumulate(reversed(known), max)]


def event_of(commit: Commit, shape: Snapshot, sizes: Mapping[str, int]) -> LogEvent:
    """The commit, where it changed rows, as an event; a file that is not among `sizes` any more has the mean size of its commit."""
    again = {*commit.added_paths} & {
        *commit.removed_paths
    }  # deletion vectors and statistics leave a file where it is
    added = [path for path in commit.added_paths if path not in again and commit.changed_data]
    mean_bytes = commit.added_bytes // max(1, len(commit.added_paths))
    return LogEvent(
        at_ms=commit.committed_ms,
        added=tuple((path, folder_of(path, shape), sizes.get(path, mean_bytes)) for path in added),
        removed=tuple(path for path in commit.removed_paths if path not in again),
    )


def written_paths(commits: Iterable[Commit]) -> set[str]:
    """The files that these commits wrote; one that only got another deletion vector, or a row id, was there before."""
    wrote = [commit for commit in commits if commit.changed_data or commit.removed_paths]
    return {path for commit in wrote for path in {*commit.added_paths} - {*commit.removed_paths}}


def folder_of(path: str, snapshot: Snapshot) -> str:
    """The partition of a file, as its path tells it."""
    return path.rpartition("/")[0] if snapshot.partition_columns else ""


def is_rewrite(commit: Commit) -> bool:
    """Whether the commit put files in the place of others and changed no row."""
    return not commit.changed_data and bool(commit.removed_paths)


def is_made_anew(
    operation: str, added_paths: Iterable[str], removed_paths: Collection[str], file_count: int
) -> bool:
    """Whether a writer's commit left no earlier file, where there are `file_count` after it: nothing that was read before is owed then."""
    return (
        bool(removed_paths)
        and operation != "RESTORE"
        and len({*added_paths} - {*removed_paths}) == file_count
    )


def _since_last_compaction(history: Commits, file_count: int) -> Sequence[Commit]:
    """The commits since, and with, the last compaction; or since the last one that left no earlier file, after which nothing is owed."""
    counts, undone = history.file_counts(file_count), history.undone()
    for place in reversed(range(len(history.commits))):
        commit = history.commits[place]
        if is_rewrite(commit) and commit.version not in undone:
            return history.commits[place:]
        if commit.changed_data and is_made_anew(
            commit.operation, commit.added_paths, commit.removed_paths, counts[place]
        ):
            return history.commits[place:]
    return history.commits


def _few(steps: Sequence[tuple[int, int]]) -> type_of_steps:
    """The steps without repetition; where they are very many, of two each the lesser counts for the time of both."""
    kept = [step for place, step in enumerate(steps) if not place or step[1] != steps[place - 1][1]]
    while len(kept) > _MOST_STEPS:
        pairs = zip_longest(kept[:-1:2], kept[1:-1:2])
        kept = [
            *((first[0], min(first[1], (later or first)[1])) for first, later in pairs),
            kept[-1],
        ]
    return tuple(kept)
