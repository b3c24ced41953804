"""The table of a simulation: the files that would exist, and the grains in each of them.

A grain is the set of rows that one commit of a writer wrote into one file (`row_lineage`).
"""

from collections.abc import Sequence
from dataclasses import replace

from lakehouse.core.backtest.result import Uncertainty
from lakehouse.core.backtest.row_lineage import (
    CommitEffect,
    Lineage,
    SimulatedFile,
    VectorChange,
    content,
    live_rows,
)
from lakehouse.core.compaction.bins import Bin
from lakehouse.core.delta.snapshot import DataFile, PartitionValues, live_bytes


class SimulatedTable:
    """The files of a simulation, which commits of writers and simulated compactions change.

    `uncertainty` counts what is estimated.
    """

    def __init__(self, lineage: Lineage) -> None:
        """Starts with the files at the beginning of the history. Each of them counts as a grain."""
        self.uncertainty = Uncertainty(
            unclear_compactions=lineage.unclear_count, shrink_ratio=lineage.shrink_ratio
        )
        self._lineage = lineage
        self._live: dict[str, SimulatedFile] = {}
        self._paths: dict[int, str] = {}  # grain -> path of its live file
        self._deleted: dict[int, int] = {}  # grain -> number of deleted rows
        self._name_count = 0
        for grain, file in lineage.start:
            self._add(grain, file)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The live files."""
        return tuple(live.file for live in self._live.values())

    def apply(self, effect: CommitEffect) -> None:
        """Applies a writer's commit to the files of the simulation."""
        remaining = self._remove(effect)
        for change in effect.vector_changes:
            self._change_vector(change, effect.commit.version)
        paths = [self._add(grain, file) for grain, file in effect.added]
        for each in remaining:
            self._rewrite_remaining(each, paths)

    def merge(self, bin_: Bin, *, into: int = 1, now_ms: int) -> list[DataFile]:
        """Merges a bin into one file, or into at most `into` files if the rewrite orders rows.

        Returns the new files. If `into` is 1 and a real compaction wrote a file with the same rows,
        the real file is taken.
        """
        inputs = [self._live.pop(file.path) for file in bin_.files]
        grains = frozenset[int]().union(*(each.grains for each in inputs))
        real_output = self._lineage.outputs.get(content(grains, self._deleted))
        if into == 1 and real_output is not None and real_output.path not in self._live:
            self._set_live(real_output, grains)
            return [real_output]
        size_bytes = sum(map(live_bytes, bin_.files)) * (self._lineage.shrink_ratio or 1)
        parts = self._split(grains, into)
        files = [
            self._file(
                part,
                size_bytes * self._share(part, grains),
                "merged",
                partition=bin_.partition,
                modified_ms=now_ms,
            )
            for part in parts
        ]
        # The row counts of the inputs may be known even if the row count of a grain is not.
        if len(files) == 1:
            row_count = sum_known([live_rows(file) for file in bin_.files])
            files = [replace(files[0], row_count=row_count)]
        for file, part in zip(files, parts, strict=True):
            self._set_live(file, part)
        self.uncertainty.modelled_files += len(files)
        return files

    def _split(self, grains: frozenset[int], into: int) -> list[frozenset[int]]:
        """Splits the grains into at most `into` parts of about the same size."""
        sizes = {grain: self._live_grain_bytes(grain) for grain in sorted(grains)}
        total_bytes = sum(sizes.values()) or 1
        bytes_so_far = 0.0
        parts: dict[int, set[int]] = {}
        for grain, size in sizes.items():
            # The place of the grain's first byte decides which of `into` equal parts it joins.
            number = min(into - 1, int(bytes_so_far / total_bytes * into))
            parts.setdefault(number, set()).add(grain)
            bytes_so_far += size
        return [frozenset(part) for part in parts.values()] or [grains]

    def _file(
        self,
        grains: frozenset[int],
        size_bytes: float,
        kind: str,
        *,
        partition: PartitionValues,
        modified_ms: int,
    ) -> DataFile:
        """A new file with these grains."""
        return DataFile(
            path=self._name(kind),
            size_bytes=max(1, round(size_bytes)),
            modified_ms=modified_ms,
            partition=partition,
            row_count=sum_known([self._live_grain_rows(grain) for grain in grains]),
            compacted=kind == "merged",
        )

    def _remove(self, effect: CommitEffect) -> list[SimulatedFile]:
        """Removes each file that holds a grain which the commit removed.

        Returns a file for each removed file that also held other grains: the file that the writer
        would have had to write with these grains. The caller adds it to the table.
        """
        for path, grains in effect.removed:
            live = self._live.get(path)
            if live is None or live.grains != grains:
                self.uncertainty.moved_removals += 1
        removed = frozenset[int]().union(*(grains for _, grains in effect.removed))
        paths = [self._paths[grain] for grain in sorted(removed) if grain in self._paths]
        remaining: list[SimulatedFile] = []
        for path in dict.fromkeys(paths):
            live = self._live.pop(path)
            rest = live.grains - removed
            if not rest:
                continue
            file = self._file(
                rest,
                live_bytes(live.file) * self._share(rest, live.grains),
                "rest",
                partition=live.file.partition,
                modified_ms=effect.commit.committed_ms,
            )
            remaining.append(SimulatedFile(file, rest))
        for grain in removed:
            self._paths.pop(grain, None)
        return remaining

    def _rewrite_remaining(self, remaining: SimulatedFile, paths: Sequence[str]) -> None:
        """Adds grains that remain of a removed file.

        They join the first of the commit's new files (`paths`) in the same partition. If there is
        no such file, they stay in a file of their own.
        """
        file = remaining.file
        self.uncertainty.carried_bytes += file.size_bytes
        for path in paths:
            live = self._live[path]
            if live.file.partition == file.partition:
                size_bytes = live.file.size_bytes + file.size_bytes
                row_count = sum_known([live.file.row_count, file.row_count])
                extended = replace(live.file, size_bytes=size_bytes, row_count=row_count)
                self._set_live(extended, live.grains | remaining.grains)
                return
        self._set_live(file, remaining.grains)

    def _change_vector(self, change: VectorChange, version: int) -> None:
        """Applies a new deletion vector.

        If the simulation has the same file with the same grains, it gets the vector. Otherwise, the
        rows are deleted from the files that hold the grains.
        """
        for grain, rows in change.deleted.items():
            self._deleted[grain] += rows
        live = self._live.get(change.file.path)
        if live is not None and live.grains == change.grains:
            live.file = replace(change.file, compacted=live.file.compacted)
            return
        moved = {grain: rows for grain, rows in change.deleted.items() if rows}
        if moved:
            self.uncertainty.moved_vectors += 1
        for grain, rows in moved.items():
            if grain in self._paths:
                self._delete_rows(self._live[self._paths[grain]], rows, version)

    def _delete_rows(self, live: SimulatedFile, rows: int, version: int) -> None:
        """Deletes rows of a file (negative: restores them).

        The file is removed if no row is left. If its row count is unknown, it stays.
        """
        file = live.file
        deleted = max(0, file.deleted_row_count + rows)
        if file.row_count is not None and deleted >= file.row_count:
            del self._live[file.path]
            for grain in live.grains:
                self._paths.pop(grain, None)
            return
        live.file = replace(
            file,
            deleted_row_count=deleted,
            deletion_vector=f"simulation@{version}" if deleted else None,
        )

    def _add(self, grain: int, file: DataFile) -> str:
        self._deleted[grain] = file.deleted_row_count
        # The simulation may still have another file of this path.
        if file.path in self._live:
            file = replace(file, path=self._name(file.path))
        self._set_live(file, frozenset({grain}))
        return file.path

    def _set_live(self, file: DataFile, grains: frozenset[int]) -> None:
        self._live[file.path] = SimulatedFile(file, grains)
        for grain in grains:
            self._paths[grain] = file.path

    def _share(self, part: frozenset[int], grains: frozenset[int]) -> float:
        """The share of the grains' live bytes that belongs to the part."""
        total_bytes = sum(self._live_grain_bytes(grain) for grain in grains)
        if not total_bytes:
            return len(part) / len(grains)
        return sum(self._live_grain_bytes(grain) for grain in part) / total_bytes

    def _name(self, kind: str) -> str:
        self._name_count += 1
        return f"replay/{self._name_count}-{kind}"

    def _live_grain_rows(self, grain: int) -> int | None:
        rows = self._lineage.grains[grain].row_count
        return None if rows is None else max(0, rows - self._deleted[grain])

    def _live_grain_bytes(self, grain: int) -> float:
        file = self._lineage.grains[grain]
        if not file.row_count:
            return file.size_bytes
        return file.size_bytes * (self._live_grain_rows(grain) or 0) / file.row_count


def sum_known(counts: Sequence[int | None]) -> int | None:
    """The sum of the counts; `None` if any of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
