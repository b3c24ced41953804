"""The table of a simulation: the files that there would be, and whose rows lie in which of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lakehouse.core.backtest.result import Uncertainty
from lakehouse.core.backtest.row_lineage import CommitEffect, Lineage, SimulatedFile, VectorChange, content, live_bytes, live_rows
from lakehouse.core.compaction.bins import Bin
from lakehouse.core.delta.snapshot import DataFile, Snapshot, type_of_partition


class _Rest(NamedTuple):
    """The other rows in a file that a writer removed; they have to be written again."""

    partition: type_of_partition
    grains: frozenset[int]
    size_bytes: int
    row_count: int | None


class SimulatedTable:
    """The files of a simulation, changed by writers' commits and by compactions; estimates are counted."""

    def __init__(self, lineage: Lineage) -> None:
        """The table at the start of the history."""
        self.moved_removals = self.moved_vectors = self.carried_bytes = self.modelled_files = 0
        self._lineage = lineage
        self._live: dict[str, SimulatedFile] = {}
        self._place: dict[int, str] = {}
        self._deleted: dict[int, int] = {}
        self._named = 0
        for grain, file in lineage.start:
            self._add(grain, file)

    @property
    def uncertainty(self) -> Uncertainty:
        """The estimates made until now."""
        return Uncertainty(
            moved_removals=self.moved_removals,
            moved_vectors=self.moved_vectors,
            carried_bytes=self.carried_bytes,
            modelled_files=self.modelled_files,
            unclear_compactions=self._lineage.guesses,
            shrink_ratio=self._lineage.shrink_ratio,
        )

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The live files."""
        return tuple(held.file for held in self._live.values())

    def snapshot(self, shape: Snapshot) -> Snapshot:
        """The table in the shape that it had, with the files of the simulation."""
        return replace(shape, files=self.files)

    def apply(self, deed: CommitEffect) -> None:
        """A writer's commit, applied to the files of the simulation."""
        rests = self._remove(deed)
        for mark in deed.marks:
            self._mark(mark, deed.commit.version)
        paths = [self._add(grain, file) for grain, file in deed.added]
        for rest in rests:
            self._carry(rest, paths, deed)

    def merge(self, bin_: Bin, *, into: int = 1, now_ms: int) -> list[DataFile]:
        """The files that a bin becomes: one file, or about `into` where rows are laid out anew."""
        held = [self._live.pop(file.path) for file in bin_.files]
        grains = frozenset[int]().union(*(each.grains for each in held))
        made = self._lineage.made.get(content(grains, self._deleted))
        if into == 1 and made is not None and made.path not in self._live:
            self._hold(made, grains)
            return [made]
        whole = self._modelled(bin_, now_ms)
        parts = self._parted(grains, into)
        files = [whole] if len(parts) < 2 else [self._part(whole, part, grains) for part in parts]
        for file, part in zip(files, parts, strict=True):
            self._hold(file, part)
        self.modelled_files += len(files)
        return files

    def _parted(self, grains: frozenset[int], into: int) -> list[frozenset[int]]:
        """Grains in at most so many parts of about the same size."""
        sizes = {grain: self._live_grain_bytes(grain) for grain in sorted(grains)}
        whole, passed = sum(sizes.values()) or 1, 0.0
        parts: dict[int, set[int]] = {}
        for grain, size in sizes.items():
            parts.setdefault(min(into - 1, int(passed / whole * into)), set()).add(grain)
            passed += size
        return [frozenset(part) for part in parts.values()] or [grains]

    def _part(self, whole: DataFile, part: frozenset[int], grains: frozenset[int]) -> DataFile:
        rows = sum_known([self._live_grain_rows(grain) for grain in part])
        return replace(
            whole, path=self._name("merged"), size_bytes=max(1, round(whole.size_bytes * self._share(part, grains))), row_count=rows
        )

    def _modelled(self, bin_: Bin, now_ms: int) -> DataFile:
        return DataFile(
            path=self._name("merged"),
            size_bytes=max(1, round(sum(map(live_bytes, bin_.files)) * (self._lineage.shrink_ratio or 1))),
            modified_ms=now_ms,
            partition=bin_.partition,
            row_count=sum_known([live_rows(file) for file in bin_.files]),
            compacted=True,
        )

    def _remove(self, deed: CommitEffect) -> list[_Rest]:
        gone = frozenset[int]().union(*(grains for _, grains in deed.gone))
        for path, grains in deed.gone:
            self.moved_removals += path not in self._live or self._live[path].grains != grains
        rests: list[_Rest] = []
        for path in dict.fromkeys(self._place[grain] for grain in sorted(gone) if grain in self._place):
            held = self._live.pop(path)
            if rest := held.grains - gone:
                rests.append(self._rest(held, rest))
        for grain in gone:
            self._place.pop(grain, None)
        return rests

    def _rest(self, held: SimulatedFile, rest: frozenset[int]) -> _Rest:
        """The rest of a file by its grains' share of live bytes."""
        share = self._share(rest, held.grains)
        return _Rest(
            held.file.partition,
            rest,
            max(1, round(live_bytes(held.file) * share)),
            sum_known([self._live_grain_rows(grain) for grain in rest]),
        )

    def _carry(self, rest: _Rest, paths: Sequence[str], deed: CommitEffect) -> None:
        """The rest goes into a file that the same commit wrote in its partition, or into a file of its own where there is none."""
        self.carried_bytes += rest.size_bytes
        for path in paths:
            held = self._live[path]
            if held.file.partition == rest.partition:
                rows = sum_known([held.file.row_count, rest.row_count])
                grown = replace(held.file, size_bytes=held.file.size_bytes + rest.size_bytes, row_count=rows)
                self._hold(grown, held.grains | rest.grains)
                return
        file = DataFile(
            path=self._name("rest"),
            size_bytes=rest.size_bytes,
            modified_ms=deed.commit.committed_ms,
            partition=rest.partition,
            row_count=rest.row_count,
        )
        self._hold(file, rest.grains)

    def _mark(self, mark: VectorChange, version: int) -> None:
        for grain, rows in mark.deleted.items():
            self._deleted[grain] += rows
        held = self._live.get(mark.file.path)
        if held is not None and held.grains == mark.grains:
            held.file = replace(mark.file, compacted=held.file.compacted)
            return
        moved = {grain: rows for grain, rows in mark.deleted.items() if rows}
        self.moved_vectors += bool(moved)
        for grain, rows in moved.items():
            if grain in self._place:
                self._delete_rows(self._live[self._place[grain]], rows, version)

    def _delete_rows(self, held: SimulatedFile, rows: int, version: int) -> None:
        """So many rows of a file deleted more (fewer: restored); a file without any row left goes, as Delta has it."""
        file = held.file
        deleted = max(0, file.deleted_row_count + rows)
        if file.row_count is not None and deleted >= file.row_count:
            del self._live[file.path]
            for grain in held.grains:
                self._place.pop(grain, None)
            return
        held.file = replace(file, deleted_row_count=deleted, deletion_vector=f"simulation@{version}" if deleted else None)

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
        """The part's share of the live bytes of the grains."""
        whole = sum(self._live_grain_bytes(grain) for grain in grains)
        return sum(self._live_grain_bytes(grain) for grain in part) / whole if whole else len(part) / len(grains)

    def _name(self, what: str) -> str:
        self._named += 1
        return f"replay/{self._named}-{what}"

    def _live_grain_rows(self, grain: int) -> int | None:
        rows = self._lineage.grains[grain].row_count
        return None if rows is None else max(0, rows - self._deleted[grain])

    def _live_grain_bytes(self, grain: int) -> float:
        file = self._lineage.grains[grain]
        return file.size_bytes * (self._live_grain_rows(grain) or 0) / file.row_count if file.row_count else file.size_bytes


def sum_known(counts: Sequence[int | None]) -> int | None:
    """Their sum, unknown as soon as one is."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
