"""Tracks which rows are in which file: a table's history without its compactions.

A grain is the set of rows that one commit of a writer wrote into one file, or that a file has at
the start of the history. Compactions combine grains but do not change them. Only a later commit of
a writer removes or changes a grain, so the grains are the same under every policy.

The log does not show two things, so they are estimated:

- Which rows a deletion vector deletes in a compacted file. The deleted rows are spread over the
  file's grains, in proportion to the rows that each grain still has. How often this happens is
  not counted.
- Which grains are in which file, if a compaction writes several files into a partition. The inputs
  are packed in Delta's order, ascending by size. A bin ends when its row count equals that of an
  output. If the row counts do not match (Z-order) or are missing, grains are assigned by file size,
  and `unclear_count` counts the partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.delta.partition_values import TypedPartition, by_name, typed_partition
from lakehouse.core.delta.snapshot import DataFile, live_bytes

# The grains in a file, each with the number of its deleted rows. Two files with equal content are
# taken to have the same rows.
GrainContent = frozenset[tuple[int, int]]


@dataclass(slots=True)
class SimulatedFile:
    """A live file, and the grains in it."""

    file: DataFile
    grains: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorChange:
    """A live file that a writer's commit adds again, usually with another deletion vector.

    `deleted` maps each grain to the number of its newly deleted rows, negative if rows are
    restored.
    """

    file: DataFile
    grains: frozenset[int]
    deleted: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEffect:
    """The effect of a writer's commit.

    `removed` lists removed paths with their grains. `added` lists new grains with their files.
    """

    commit: FileCommit
    removed: tuple[tuple[str, frozenset[int]], ...]
    vector_changes: tuple[VectorChange, ...]
    added: tuple[tuple[int, DataFile], ...]


class Lineage:
    """A table's history as grains.

    - `start`: the grains at the beginning of the history.
    - `effects`: the effects of the writers' commits.
    - `grains`: each grain's file, as it first appears in the history.
    - `outputs`: the outputs of real compactions whose content is known, by content.
    - `unclear_count`: the number of compacted partitions for which the log does not show which
      grains are in which output.
    """

    def __init__(self, file_history: FileHistory) -> None:
        """Replays the history. `_live` holds the real files after the last replayed commit."""
        self.effects: list[CommitEffect] = []
        self.grains: dict[int, DataFile] = {}
        self.outputs: dict[GrainContent, DataFile] = {}
        self.unclear_count = 0
        self._bytes_in = 0.0
        self._bytes_out = 0
        self._live: dict[str, SimulatedFile] = {}
        self._deleted: dict[int, int] = {}
        start_files = file_history.start.files if file_history.start else ()
        self.start = tuple(self._add(file) for file in start_files)
        for commit in file_history.commits:
            if commit.is_compaction:
                self._apply_compaction(commit)
            elif commit.changed_data:
                self._apply_write(commit)

    @property
    def shrink_ratio(self) -> float | None:
        """Bytes that real compactions wrote per live byte they read; `None` without compactions."""
        return self._bytes_out / self._bytes_in if self._bytes_in else None

    def _add(self, file: DataFile) -> tuple[int, DataFile]:
        """Makes the rows of a file a new grain; returns its number, and the file."""
        grain = len(self.grains)
        self.grains[grain] = file
        self._live[file.path] = SimulatedFile(file, frozenset({grain}))
        self._deleted[grain] = file.deleted_row_count
        return grain, file

    def _apply_write(self, commit: FileCommit) -> None:
        # A live path that the commit adds again is not removed: its deletion vector changes.
        added = {file.path: file for file in commit.added}
        removed_paths = [
            path for path in commit.removed_paths if path not in added and path in self._live
        ]
        removed = tuple((path, self._live.pop(path).grains) for path in removed_paths)
        vector_changes = tuple(
            self._change_vector(file) for path, file in added.items() if path in self._live
        )
        changed_paths = {change.file.path for change in vector_changes}
        new_files = [file for path, file in added.items() if path not in changed_paths]
        self.effects.append(
            CommitEffect(
                commit=commit,
                removed=removed,
                vector_changes=vector_changes,
                added=tuple(self._add(file) for file in new_files),
            )
        )

    def _apply_compaction(self, commit: FileCommit) -> None:
        columns = by_name(commit.shape.columns)
        inputs: defaultdict[TypedPartition, list[SimulatedFile]] = defaultdict(list)
        outputs: defaultdict[TypedPartition, list[DataFile]] = defaultdict(list)
        for path in commit.removed_paths:
            if path in self._live:
                live = self._live.pop(path)
                inputs[typed_partition(live.file.partition, columns)].append(live)
        for file in commit.added:
            outputs[typed_partition(file.partition, columns)].append(file)
        for partition, files in inputs.items():
            self._compact_partition(files, outputs.pop(partition, []))
        # Outputs in other partitions: which rows they hold is unknown.
        for files_without_inputs in outputs.values():
            for file in files_without_inputs:
                self._live[file.path] = SimulatedFile(file, frozenset())

    def _compact_partition(
        self, inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]
    ) -> None:
        grains_by_output = _match_outputs(inputs, outputs)
        if grains_by_output is None:
            self.unclear_count += 1
            grains_by_output = dict(_assign_by_size(inputs, outputs))
        else:
            for file, grains in grains_by_output.items():
                self.outputs[content(grains, self._deleted)] = file
        for file, grains in grains_by_output.items():
            self._live[file.path] = SimulatedFile(file, grains)
        self._bytes_in += sum(live_bytes(live.file) for live in inputs)
        self._bytes_out += sum(file.size_bytes for file in outputs)

    def _change_vector(self, file: DataFile) -> VectorChange:
        previous = self._live[file.path]
        newly_deleted = file.deleted_row_count - previous.file.deleted_row_count
        live_row_counts = {
            grain: (self.grains[grain].row_count or 0) - self._deleted[grain]
            for grain in sorted(previous.grains)
        }
        deleted = _spread(newly_deleted, live_row_counts)
        for grain, rows in deleted.items():
            self._deleted[grain] += rows
        self._live[file.path] = SimulatedFile(file, previous.grains)
        return VectorChange(file=file, grains=previous.grains, deleted=deleted)


def live_rows(file: DataFile) -> int | None:
    """The rows of a file that are not deleted; `None` if unknown."""
    return None if file.row_count is None else file.row_count - file.deleted_row_count


def content(grains: Iterable[int], deleted: Mapping[int, int]) -> GrainContent:
    """The content of a file: its grains, and how many rows of each are deleted."""
    return frozenset((grain, deleted.get(grain, 0)) for grain in grains)


def _spread(rows: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Spreads `rows` over grains by their weights, as integers that add up to `rows`.

    If no weight is positive, all grains get about the same number.
    """
    total_weight = sum(max(weight, 0) for weight in weights.values())
    spread: dict[int, int] = {}
    weight_so_far = 0
    rows_so_far = 0
    for number, (grain, weight) in enumerate(weights.items(), start=1):
        weight_so_far += max(weight, 0)
        if number == len(weights):
            rows_up_to_grain = rows
        elif total_weight:
            rows_up_to_grain = rows * weight_so_far // total_weight
        else:
            rows_up_to_grain = rows * number // len(weights)
        spread[grain] = rows_up_to_grain - rows_so_far
        rows_so_far = rows_up_to_grain
    return spread


def _match_outputs(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]
) -> dict[DataFile, frozenset[int]] | None:
    """The grains of each output of a partition; `None` if row counts do not determine them.

    A single output has all grains. Several outputs are matched by row counts.
    """
    if len(outputs) == 1:
        return {outputs[0]: frozenset().union(*(each.grains for each in inputs))}
    # OPTIMIZE rewrites only bins of at least two files. A purge also rewrites single files.
    by_optimize = _match_bins(inputs, outputs, least_files=2)
    return by_optimize or _match_bins(inputs, outputs, least_files=1)


def _match_bins(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile], *, least_files: int
) -> dict[DataFile, frozenset[int]] | None:
    """Packs inputs, smallest first, into bins of `least_files` or more that have an output's rows.

    `None` if a row count is unknown, or if an input or an output is left over.
    """
    unmatched: defaultdict[int | None, list[DataFile]] = defaultdict(list)
    for file in outputs:
        unmatched[file.row_count].append(file)
    matched: dict[DataFile, frozenset[int]] = {}
    bin_: list[SimulatedFile] = []
    bin_rows = 0
    for each in _by_size(inputs):
        rows = live_rows(each.file)
        if rows is None:
            return None
        bin_.append(each)
        bin_rows += rows
        if len(bin_) >= least_files and unmatched.get(bin_rows):
            grains = frozenset[int]().union(*(member.grains for member in bin_))
            matched[unmatched[bin_rows].pop()] = grains
            bin_ = []
            bin_rows = 0
    return matched if not bin_ and len(matched) == len(outputs) else None


def _assign_by_size(
    inputs: Sequence[SimulatedFile], outputs: Sequence[DataFile]
) -> Iterator[tuple[DataFile, frozenset[int]]]:
    """Assigns every grain to an output, by size alone.

    The outputs are filled one after the other, with the inputs in ascending order of size. An
    output with a tenth of the output bytes gets about a tenth of the input bytes.
    """
    ordered = _by_size(inputs)
    total_in = sum(each.file.size_bytes for each in ordered) or 1
    total_out = sum(file.size_bytes for file in outputs) or 1
    bytes_in = 0
    bytes_out = 0
    index = 0
    for number, file in enumerate(outputs, start=1):
        bytes_out += file.size_bytes
        is_last = number == len(outputs)
        grains: set[int] = set()
        while index < len(ordered):
            # The inputs so far have the same share of all inputs' bytes as the outputs so far.
            is_full = bytes_in * total_out >= bytes_out * total_in
            if is_full and not is_last:
                break
            bytes_in += ordered[index].file.size_bytes
            grains |= ordered[index].grains
            index += 1
        yield file, frozenset(grains)


def _by_size(inputs: Iterable[SimulatedFile]) -> list[SimulatedFile]:
    return sorted(inputs, key=lambda each: (each.file.size_bytes, each.file.path))
