"""Tracks which rows are in which file: a table's history without its compactions.

A grain is the set of rows that one commit of a writer wrote into one file. Compactions combine
grains but do not change them; only a later commit of a writer removes or changes them. So the
grains are the same under every policy.

Two things are not in the log, so they are estimated and counted:

- A deletion vector on a compacted file: the deleted rows are spread over the file's grains, in
  proportion to their row counts.
- A compaction of one partition into several files: grains are assigned by row counts (Delta packs
  by size). If the counts are ambiguous (Z-order, missing statistics), files are filled by size.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.delta.partition_values import TypedPartition, by_name, typed_partition
from lakehouse.core.delta.snapshot import DataFile, live_bytes

# The grains in a file, each with the number of its deleted rows. Equal for files with equal rows.
GrainContent = frozenset[tuple[int, int]]


@dataclass(slots=True)
class SimulatedFile:
    """A live file, and the grains in it."""

    file: DataFile
    grains: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorChange:
    """A file with a new deletion vector. `deleted`: rows deleted by grain (negative: restored)."""

    file: DataFile
    grains: frozenset[int]
    deleted: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEffect:
    """The effect of a writer's commit.

    `gone` has the removed paths with their grains, `marks` has the files with new deletion vectors,
    and `added` has the new grains with their files.
    """

    commit: FileCommit
    gone: tuple[tuple[str, frozenset[int]], ...]
    marks: tuple[VectorChange, ...]
    added: tuple[tuple[int, DataFile], ...]


class Lineage:
    """A table's history as grains.

    - `start`: the grains at the beginning of the history.
    - `effects`: the effects of the writers' commits.
    - `grains`: each grain's file, as the writer wrote it.
    - `outputs`: the outputs of real compactions, by content.
    - `unclear_count`: the number of compactions whose outputs the log does not match to grains.
    """

    def __init__(self, file_history: FileHistory) -> None:
        """Replays the history. `_live` has the real table's files as of the current commit."""
        self.effects: list[CommitEffect] = []
        self.grains: dict[int, DataFile] = {}
        self.outputs: dict[GrainContent, DataFile] = {}
        self.unclear_count = 0
        self._bytes_in = 0.0
        self._bytes_out = 0
        self._live: dict[str, SimulatedFile] = {}
        self._deleted: dict[int, int] = {}
        self.start = tuple(
            self._add(file) for file in (file_history.start.files if file_history.start else ())
        )
        for commit in file_history.commits:
            if commit.is_compaction:
                self._compact(commit)
            elif commit.changed_data:
                self._write(commit)

    @property
    def shrink_ratio(self) -> float | None:
        """Bytes that real compactions wrote per live byte read; `None` if there were none."""
        return self._bytes_out / self._bytes_in if self._bytes_in else None

    def _add(self, file: DataFile) -> tuple[int, DataFile]:
        grain = len(self.grains)
        self.grains[grain] = file
        self._live[file.path] = SimulatedFile(file, frozenset({grain}))
        self._deleted[grain] = file.deleted_row_count
        return grain, file

    def _write(self, commit: FileCommit) -> None:
        added = {file.path: file for file in commit.added}
        removed = [
            path for path in commit.removed_paths if path not in added and path in self._live
        ]
        gone = tuple((path, self._live.pop(path).grains) for path in removed)
        marks = tuple(self._mark(file) for path, file in added.items() if path in self._live)
        marked = {mark.file.path for mark in marks}
        new = tuple(self._add(file) for path, file in added.items() if path not in marked)
        self.effects.append(CommitEffect(commit=commit, gone=gone, marks=marks, added=new))

    def _compact(self, commit: FileCommit) -> None:
        columns = by_name(commit.shape.columns)
        inputs: defaultdict[TypedPartition, list[SimulatedFile]] = defaultdict(list)
        outputs: defaultdict[TypedPartition, list[DataFile]] = defaultdict(list)
        for path in commit.removed_paths:
            if path in self._live:
                held = self._live.pop(path)
                inputs[typed_partition(held.file.partition, columns)].append(held)
        for file in commit.added:
            outputs[typed_partition(file.partition, columns)].append(file)
        for partition, files in inputs.items():
            self._put_together(files, outputs.pop(partition, []))
        for file in (file for files in outputs.values() for file in files):
            self._live[file.path] = SimulatedFile(file, frozenset())

    def _put_together(self, inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]) -> None:
        dealt = _deal(inputs, outputs)
        self.unclear_count += dealt is None
        for file, grains in _fill(inputs, outputs) if dealt is None else dealt.items():
            self._live[file.path] = SimulatedFile(file, grains)
            if dealt is not None:
                self.outputs[content(grains, self._deleted)] = file
        self._bytes_in += sum(live_bytes(held.file) for held in inputs)
        self._bytes_out += sum(file.size_bytes for file in outputs)

    def _mark(self, file: DataFile) -> VectorChange:
        held = self._live[file.path]
        more = file.deleted_row_count - held.file.deleted_row_count
        weights = {
            grain: (self.grains[grain].row_count or 0) - self._deleted[grain]
            for grain in sorted(held.grains)
        }
        deleted = _spread(more, weights)
        for grain, rows in deleted.items():
            self._deleted[grain] += rows
        self._live[file.path] = SimulatedFile(file, held.grains)
        return VectorChange(file=file, grains=held.grains, deleted=deleted)


def live_rows(file: DataFile) -> int | None:
    """The rows of a file that are not deleted; `None` if unknown."""
    return None if file.row_count is None else file.row_count - file.deleted_row_count


def content(grains: Iterable[int], deleted: Mapping[int, int]) -> GrainContent:
    """The content of a file: its grains, and how many rows of each are deleted."""
    return frozenset((grain, deleted.get(grain, 0)) for grain in grains)


def _spread(rows: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Spreads `rows` over grains by their weights, as integers that add up to `rows`."""
    whole = sum(max(weight, 0) for weight in weights.values())
    spread: dict[int, int] = {}
    passed = given = 0
    for place, (grain, weight) in enumerate(weights.items(), start=1):
        passed += max(weight, 0)
        upto = (
            rows
            if place == len(weights)
            else rows * passed // whole
            if whole
            else rows * place // len(weights)
        )
        spread[grain] = upto - given
        given = upto
    return spread


def _deal(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]
) -> dict[DataFile, frozenset[int]] | None:
    """The grains of each output, matched by row counts; `None` if these are ambiguous."""
    if len(outputs) == 1:
        return {outputs[0]: frozenset().union(*(held.grains for held in inputs))}
    # OPTIMIZE drops bins with a single file; a purge does not.
    return _deal_bins(inputs, outputs, least_files=2) or _deal_bins(inputs, outputs, least_files=1)


def _deal_bins(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile], *, least_files: int
) -> dict[DataFile, frozenset[int]] | None:
    waiting: defaultdict[int | None, list[DataFile]] = defaultdict(list)
    for file in outputs:
        waiting[file.row_count].append(file)
    dealt: dict[DataFile, frozenset[int]] = {}
    bin_: list[SimulatedFile] = []
    bin_rows = 0
    for held in _by_size(inputs):
        rows = live_rows(held.file)
        if rows is None:
            return None
        bin_.append(held)
        bin_rows += rows
        if len(bin_) >= least_files and waiting.get(bin_rows):
            dealt[waiting[bin_rows].pop()] = frozenset().union(*(each.grains for each in bin_))
            bin_ = []
            bin_rows = 0
    return dealt if not bin_ and len(dealt) == len(outputs) else None


def _fill(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]
) -> Iterator[tuple[DataFile, frozenset[int]]]:
    """Assigns every grain to an output. Fills the outputs in turn, with inputs ordered by size."""
    left = _by_size(inputs)
    whole_in = sum(held.file.size_bytes for held in left) or 1
    whole_out = sum(file.size_bytes for file in outputs) or 1
    passed_in = passed_out = place = 0
    for number, file in enumerate(outputs, start=1):
        passed_out += file.size_bytes
        grains: set[int] = set()
        while place < len(left) and (
            number == len(outputs) or passed_in * whole_out < passed_out * whole_in
        ):
            passed_in += left[place].file.size_bytes
            grains |= left[place].grains
            place += 1
        yield file, frozenset(grains)


def _by_size(inputs: Iterable[SimulatedFile]) -> list[SimulatedFile]:
    return sorted(inputs, key=lambda held: (held.file.size_bytes, held.file.path))
