"""The table of a simulation: the files that would exist, and the rows in each of them."""

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
    """The files of a simulation, which writers and compactions change. Estimates are counted."""

    def __init__(self, lineage: Lineage) -> None:
        """Holds the files that existed at the beginning of the history."""
        self.uncertainty = Uncertainty(
            unclear_compactions=lineage.unclear_count, shrink_ratio=lineage.shrink_ratio
        )
        self._lineage = lineage
        self._live: dict[str, SimulatedFile] = {}
        self._place: dict[int, str] = {}
        self._deleted: dict[int, int] = {}
        self._named = 0
        for grain, file in lineage.start:
            self._add(grain, file)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The live files."""
        return tuple(held.file for held in self._live.values())

    def apply(self, effect: CommitEffect) -> None:
        """Applies a writer's commit to the files of the simulation."""
        rests = self._remove(effect)
        for mark in effect.marks:
            self._mark(mark, effect.commit.version)
        paths = [self._add(grain, file) for grain, file in effect.added]
        for rest in rests:
            self._carry(rest, paths)

    def merge(self, bin_: Bin, *, into: int = 1, now_ms: int) -> list[DataFile]:
        """Merges a bin, and returns the new files: one, or about `into` for an ordered rewrite."""
        held = [self._live.pop(file.path) for file in bin_.files]
        grains = frozenset[int]().union(*(each.grains for each in held))
        made = self._lineage.outputs.get(content(grains, self._deleted))
        if into == 1 and made is not None and made.path not in self._live:
            self._hold(made, grains)
            return [made]
        size_bytes = sum(map(live_bytes, bin_.files)) * (self._lineage.shrink_ratio or 1)
        parts = self._parted(grains, into)
        files = [
            self._file(
                part, grains, size_bytes, "merged", partition=bin_.partition, modified_ms=now_ms
            )
            for part in parts
        ]
        # The sum of the inputs is known even if the row count of a grain is not.
        if len(files) == 1:
            files = [
                replace(files[0], row_count=sum_known([live_rows(file) for file in bin_.files]))
            ]
        for file, part in zip(files, parts, strict=True):
            self._hold(file, part)
        self.uncertainty.modelled_files += len(files)
        return files

    def _parted(self, grains: frozenset[int], into: int) -> list[frozenset[int]]:
        """Splits the grains into at most `into` parts of about the same size."""
        sizes = {grain: self._live_grain_bytes(grain) for grain in sorted(grains)}
        whole = sum(sizes.values()) or 1
        passed = 0.0
        parts: dict[int, set[int]] = {}
        for grain, size in sizes.items():
            parts.setdefault(min(into - 1, int(passed / whole * into)), set()).add(grain)
            passed += size
        return [frozenset(part) for part in parts.values()] or [grains]

    def _file(
        self,
        part: frozenset[int],
        grains: frozenset[int],
        size_bytes: float,
        what: str,
        *,
        partition: PartitionValues,
        modified_ms: int,
    ) -> DataFile:
        """A new file for a part of the grains. `size_bytes` is the size of all grains together."""
        return DataFile(
            path=self._name(what),
            size_bytes=max(1, round(size_bytes * self._share(part, grains))),
            modified_ms=modified_ms,
            partition=partition,
            row_count=sum_known([self._live_grain_rows(grain) for grain in part]),
            compacted=what == "merged",
        )

    def _remove(self, effect: CommitEffect) -> list[SimulatedFile]:
        """Removes the files with rows that a writer removed, and returns their other rows.

        The writer's commit has to write these other rows again.
        """
        gone = frozenset[int]().union(*(grains for _, grains in effect.gone))
        for path, grains in effect.gone:
            self.uncertainty.moved_removals += (
                path not in self._live or self._live[path].grains != grains
            )
        rests: list[SimulatedFile] = []
        for path in dict.fromkeys(
            self._place[grain] for grain in sorted(gone) if grain in self._place
        ):
            held = self._live.pop(path)
            if rest := held.grains - gone:
                partition = held.file.partition
                size_bytes = live_bytes(held.file)
                file = self._file(
                    rest,
                    held.grains,
                    size_bytes,
                    "rest",
                    partition=partition,
                    modified_ms=effect.commit.committed_ms,
                )
                rests.append(SimulatedFile(file, rest))
        for grain in gone:
            self._place.pop(grain, None)
        return rests

    def _carry(self, rest: SimulatedFile, paths: Sequence[str]) -> None:
        """Puts remaining rows into a file of the same commit and partition, or into a new one."""
        file = rest.file
        self.uncertainty.carried_bytes += file.size_bytes
        for held in map(self._live.__getitem__, paths):
            if held.file.partition == file.partition:
                rows = sum_known([held.file.row_count, file.row_count])
                grown = replace(
                    held.file, size_bytes=held.file.size_bytes + file.size_bytes, row_count=rows
                )
                self._hold(grown, held.grains | rest.grains)
                return
        self._hold(file, rest.grains)

    def _mark(self, mark: VectorChange, version: int) -> None:
        for grain, rows in mark.deleted.items():
            self._deleted[grain] += rows
        held = self._live.get(mark.file.path)
        if held is not None and held.grains == mark.grains:
            held.file = replace(mark.file, compacted=held.file.compacted)
            return
        moved = {grain: rows for grain, rows in mark.deleted.items() if rows}
        self.uncertainty.moved_vectors += bool(moved)
        for grain, rows in moved.items():
            if grain in self._place:
                self._delete_rows(self._live[self._place[grain]], rows, version)

    def _delete_rows(self, held: SimulatedFile, rows: int, version: int) -> None:
        """Deletes rows of a file (negative: restores them). A file without rows is removed."""
        file = held.file
        deleted = max(0, file.deleted_row_count + rows)
        if file.row_count is not None and deleted >= file.row_count:
            del self._live[file.path]
            for grain in held.grains:
                self._place.pop(grain, None)
            return
        held.file = replace(
            file,
            deleted_row_count=deleted,
            deletion_vector=f"simulation@{version}" if deleted else None,
        )

    def _add(self, grain: int, file: DataFile) -> str:
        self._deleted[grain] = file.deleted_row_count
        named = replace(file, path=self._name(file.path)) if file.path in self._live else file
        self._hold(named, frozenset({grain}))
        return named.path

    def _hold(self, file: DataFile, grains: frozenset[int]) -> None:
        self._live[file.path] = SimulatedFile(file, grains)
        for grain in grains:
            self._place[grain] = file.path

    def _share(self, part: frozenset[int], grains: frozenset[int]) -> float:
        """The share that the part has in the live bytes of the grains."""
        whole = sum(self._live_grain_bytes(grain) for grain in grains)
        return (
            sum(self._live_grain_bytes(grain) for grain in part) / whole
            if whole
            else len(part) / len(grains)
        )

    def _name(self, what: str) -> str:
        self._named += 1
        return f"replay/{self._named}-{what}"

    def _live_grain_rows(self, grain: int) -> int | None:
        rows = self._lineage.grains[grain].row_count
        return None if rows is None else max(0, rows - self._deleted[grain])

    def _live_grain_bytes(self, grain: int) -> float:
        file = self._lineage.grains[grain]
        return (
            file.size_bytes * (self._live_grain_rows(grain) or 0) / file.row_count
            if file.row_count
            else file.size_bytes
        )


def sum_known(counts: Sequence[int | None]) -> int | None:
    """The sum of the counts; `None` if any of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
