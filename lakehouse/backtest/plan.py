"""Replays the commits of a table's log under another compaction policy.

1. Each commit of a writer is applied to the replay's files. Real compactions are left out.
2. The real planner and the sensor's rules decide at the commit, and right before the next one.
3. A compaction merges each bin of the plan. A merged file has the bytes of its inputs.

A writer may remove a file that the replay has merged with others. The merged file then loses the
bytes of that file, and stays as long as it has any. A file that a real compaction wrote stands for
a share of the files that it merged, in their order by size.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from lakehouse.base.frozen import frozen
from lakehouse.base.stored_objects import total_bytes
from lakehouse.compact.plan.bins import Bin, files_added
from lakehouse.compact.plan.compaction import plan_compaction
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    decide_fleet,
    state_of,
)
from lakehouse.compact.plan.estimate import DEFAULT_RATES
from lakehouse.declare.policies import AfterWrite, Compaction, Scheduled, cron_times
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import DataFile, FileCommit, FileHistory, Snapshot

# A plan reads this many of the newest commits, as the planner of a real run does.
_COMMITS_REMEMBERED = 500


@frozen
class Replay:
    """A table's past under one policy, or as it really was.

    - `file_counts`: the live files after each commit of a writer, and after the compactions that
      follow it.
    - `bytes_rewritten`: the bytes of the files that compactions merged.
    """

    file_counts: tuple[int, ...]
    compaction_count: int
    bytes_rewritten: int

    @property
    def mean_file_count(self) -> float:
        """The mean of `file_counts`; 0 without commits."""
        return fmean(self.file_counts) if self.file_counts else 0.0


def replay(history: FileHistory, policy: Compaction) -> Replay:
    """The table's past as it would have been under `policy`.

    Raises:
        Refused: the planner cannot plan the table.
    """
    table = _Table(history, policy)
    file_counts = list[int]()
    for commit, following in pairwise([*history.commits, None]):
        assert commit is not None
        if commit.is_rewrite:
            table.remember_real_compaction(commit)
        elif commit.changed_data:
            table.apply(commit)
            for now_ms in _evaluation_times(policy, commit, following):
                table.compact_if_due(commit.shape, now_ms)
            file_counts.append(len(table.files))
    return Replay(
        file_counts=tuple(file_counts),
        compaction_count=table.compaction_count,
        bytes_rewritten=table.bytes_rewritten,
    )


def real_replay(history: FileHistory) -> Replay:
    """The table's past as it really was."""
    live = {file.path: file for file in history.start.files} if history.start else {}
    file_counts = list[int]()
    compaction_count = 0
    bytes_rewritten = 0
    for commit in history.commits:
        removed = [live.pop(path) for path in commit.removed_paths if path in live]
        live |= {file.path: file for file in commit.added}
        if commit.is_rewrite:
            compaction_count += 1
            bytes_rewritten += total_bytes(removed)
            file_counts[-1:] = [len(live)] if file_counts else []
        elif commit.changed_data:
            file_counts.append(len(live))
    return Replay(
        file_counts=tuple(file_counts),
        compaction_count=compaction_count,
        bytes_rewritten=bytes_rewritten,
    )


def bytes_ingested(history: FileHistory) -> int:
    """The bytes of the new files that writers added."""
    return sum(
        file.size_bytes
        for commit in history.commits
        if commit.changed_data
        for file in commit.added
        if file.path not in commit.removed_paths
    )


class _Table:
    """The replay's live files, and what became of the files that it has merged."""

    def __init__(self, history: FileHistory, policy: Compaction) -> None:
        start_files = history.start.files if history.start else ()
        self._policy = policy
        self._live = {file.path: file for file in start_files}
        self._merged_into: dict[str, list[str]] = {}
        # The files for which an output of a real compaction stands. Each file the log has named.
        self._stands_for: dict[str, list[str]] = {}
        self._known = dict(self._live)
        self._commits: deque[Commit] = deque(maxlen=_COMMITS_REMEMBERED)
        self._last_run_ms: int | None = None
        self.compaction_count = 0
        self.bytes_rewritten = 0

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(self._live.values())

    def apply(self, commit: FileCommit) -> None:
        """Applies a commit of a writer. A path it removes and adds has a new deletion vector."""
        added = {file.path: file for file in commit.added}
        for path in commit.removed_paths:
            if path not in added:
                self._remove(path)
        self._known |= added
        for path, file in added.items():
            if path in self._live or path not in commit.removed_paths:
                self._live[path] = file
        self._remember(commit.committed_ms, tuple(added), changed_data=True)

    def remember_real_compaction(self, commit: FileCommit) -> None:
        """Records for which files each output of a real compaction stands."""
        removed = defaultdict[object, list[DataFile]](list)
        added = defaultdict[object, list[DataFile]](list)
        for path in commit.removed_paths:
            if path in self._known:
                file = self._known[path]
                removed[file.partition].append(file)
        for file in commit.added:
            self._known[file.path] = file
            added[file.partition].append(file)
        for partition, outputs in added.items():
            inputs = sorted(removed[partition], key=lambda file: file.size_bytes)
            input_bytes = total_bytes(inputs) or 1
            bytes_so_far = 0
            for file in inputs:
                output = outputs[bytes_so_far * len(outputs) // input_bytes]
                self._stands_for.setdefault(output.path, []).append(file.path)
                bytes_so_far += file.size_bytes

    def compact_if_due(self, shape: Snapshot, now_ms: int) -> None:
        """Compacts the table if the policy does so at this time."""
        if self._policy.mode != "automatic":
            return
        snapshot = replace(shape, files=self.files)
        history = Commits(table=snapshot.table, commits=tuple(self._commits))
        plan = plan_compaction(
            snapshot, self._policy, rates=DEFAULT_RATES, now_ms=now_ms, history=history
        )
        if not plan.bins:
            return
        if not isinstance(self._policy.strategy, AfterWrite | Scheduled):
            state = replace(state_of(snapshot, plan), last_compaction_ms=self._last_run_ms)
            candidate = CompactionCandidate(state=state, policy=plan.policy)
            [decision] = decide_fleet([candidate], bounds=Bounds(), now_ms=now_ms)
            if not decision.request:
                return
        added = list[DataFile]()
        for bin_ in plan.bins:
            added += self._merge(bin_, files_added(plan.statement, [bin_]), now_ms)
            self.bytes_rewritten += bin_.size_bytes
        self.compaction_count += 1
        self._last_run_ms = now_ms
        self._remember(now_ms, [file.path for file in added], changed_data=False)

    def _merge(self, bin_: Bin, output_count: int, now_ms: int) -> list[DataFile]:
        for file in bin_.files:
            del self._live[file.path]
        names = [
            f"replay/{self.compaction_count}/{bin_.files[0].path}/{number}"
            for number in range(output_count)
        ]
        for file in bin_.files:
            self._merged_into[file.path] = names
        rows = [file.row_count for file in bin_.files]
        known_rows = [count for count in rows if count is not None]
        outputs = [
            DataFile(
                path=name,
                size_bytes=max(1, bin_.size_bytes // max(1, output_count)),
                modified_ms=now_ms,
                partition=bin_.partition,
                row_count=sum(known_rows) // output_count if len(known_rows) == len(rows) else None,
                compacted=True,
            )
            for name in names
        ]
        self._live |= {file.path: file for file in outputs}
        return outputs

    def _remove(self, path: str) -> None:
        """Removes a file, or its bytes from the file into which the replay has merged it."""
        if self._live.pop(path, None) is not None:
            return
        if path in self._merged_into:
            self._take_away(path, self._known[path].size_bytes)
            return
        for member in self._stands_for.get(path, ()):
            self._remove(member)

    def _take_away(self, path: str, size_bytes: int) -> None:
        for name in self._merged_into[path]:
            file = self._live.get(name)
            if file is None and name in self._merged_into:  # merged again
                self._take_away(name, size_bytes)
                return
            if file is not None:
                if file.size_bytes > size_bytes:
                    self._live[name] = replace(file, size_bytes=file.size_bytes - size_bytes)
                    return
                del self._live[name]
                size_bytes -= file.size_bytes

    def _remember(self, at_ms: int, added: Sequence[str], *, changed_data: bool) -> None:
        commit = Commit(
            version=len(self._commits),
            committed_ms=at_ms,
            operation="WRITE" if changed_data else "OPTIMIZE",
            changed_data=changed_data,
            added_paths=tuple(added),
        )
        self._commits.append(commit)


def _evaluation_times(
    policy: Compaction, commit: FileCommit, following: FileCommit | None
) -> Iterator[int]:
    """When the policy looks at the table between two commits."""
    if isinstance(policy.strategy, Scheduled):
        if following is not None:
            yield from cron_times(policy.strategy.cron, commit.committed_ms, following.committed_ms)
        return
    yield commit.committed_ms
    if following is None or isinstance(policy.strategy, AfterWrite):
        return
    if following.committed_ms > commit.committed_ms + 1:
        yield following.committed_ms - 1
