"""Which files OPTIMIZE will merge into what, exactly, before it runs.

The selection and packing are Delta's own, so that plan and outcome can be held against each other file by file.
Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala`, `OptimizeTableStrategy.scala`, `BinPackingUtils.scala`.

One rule is ours, and makes a compacted table a fixed point: a bin is worth its rewrite only if it holds at least
two files that no compaction has written. Two bins of one plan always sum to more than the target in input bytes,
so after a run no two files that it left behind can share a bin again, whatever its outputs shrank to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from lakehouse.core.errors import Refused
from lakehouse.core.layout import DataFile, Layout, type_of_partition
from lakehouse.core.policy import CompactionPolicy
from lakehouse.core.reason import Reason

# Clustered tables are packed by Z-cube, not by this rule. Source: OptimizeTableStrategy.scala, ClusteringStrategy.
_UNPLANNABLE = {"clustering": "liquid clustering packs by Z-cube", "catalogManaged": "a catalog-managed table refuses maintenance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files of one partition that one OPTIMIZE job turns into one file."""

    partition: type_of_partition
    files: tuple[DataFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that go in; what comes out is usually less."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What OPTIMIZE will do to `table` at `version` with these sizes; no bins means nothing to do, and `reason` says why.

    `partitions` are those that OPTIMIZE is limited to, `None` for the whole table.
    """

    table: str
    version: int
    reason: Reason
    sentence: str
    bins: tuple[Bin, ...]
    partitions: tuple[type_of_partition, ...] | None
    policy: CompactionPolicy

    @property
    def files_removed(self) -> int:
        """Files that the commit removes."""
        return sum(len(bin_.files) for bin_ in self.bins)

    @property
    def files_added(self) -> int:
        """Files that the commit adds: one per bin."""
        return len(self.bins)

    @property
    def bytes_removed(self) -> int:
        """Bytes of the removed files."""
        return sum(bin_.size_bytes for bin_ in self.bins)

    def as_json(self) -> dict[str, Any]:
        """The plan's documented shape, for `lakehouse plan --json` and the commit's userMetadata."""
        return {
            "table": self.table,
            "version": self.version,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "files_removed": self.files_removed,
            "files_added": self.files_added,
            "bytes_removed": self.bytes_removed,
            "bins": [[file.path for file in bin_.files] for bin_ in self.bins],
        }


def plan_compaction(layout: Layout, policy: CompactionPolicy) -> CompactionPlan:
    """The compaction of `layout` under `policy`, or a plan that does nothing and says why.

    Raises:
        Refused: the table has a feature that changes how OPTIMIZE selects files.
    """
    for feature, why in _UNPLANNABLE.items():
        if feature in layout.features:
            raise Refused(f"plan of {layout.table}: table feature {feature} is not planned: {why}; accepted: tables without it")
    candidates = [file for file in layout.files if _is_candidate(file, policy)]
    bins = tuple(_pack(candidates, max_bytes=policy.target_file_bytes))
    worthwhile = {bin_.partition for bin_ in bins if _is_worthwhile(bin_)}
    chosen = tuple(bin_ for bin_ in bins if bin_.partition in worthwhile)
    reason = _reason(layout, candidates, bins, chosen)
    return CompactionPlan(
        table=layout.table,
        version=layout.version,
        reason=reason,
        sentence=reason.say(
            files=layout.file_count,
            candidates=len(candidates),
            candidate_bytes=policy.candidate_bytes,
            files_removed=sum(len(bin_.files) for bin_ in chosen),
            files_added=len(chosen),
            bytes_removed=sum(bin_.size_bytes for bin_ in chosen),
            partitions=len(worthwhile),
        ),
        bins=chosen,
        partitions=tuple(sorted(worthwhile, key=str)) if layout.partition_columns and chosen else None,
        policy=policy,
    )


def _is_candidate(file: DataFile, policy: CompactionPolicy) -> bool:
    if file.size_bytes < policy.candidate_bytes:
        return True
    if file.deletion_vector is None:
        return False
    return file.row_count is None or file.deleted_row_count > policy.max_deleted_rows_ratio * file.row_count


def _pack(candidates: Sequence[DataFile], *, max_bytes: int) -> Iterator[Bin]:
    """Bins as Delta makes them: per partition, ascending by size, one open bin at a time, bins of one file dropped."""
    by_partition = sorted(candidates, key=lambda file: str(file.partition))
    for partition, members in groupby(by_partition, key=lambda file: file.partition):
        open_bin: list[DataFile] = []
        for file in sorted(members, key=lambda member: member.size_bytes):
            if open_bin and sum(member.size_bytes for member in open_bin) + file.size_bytes > max_bytes:
                yield from _closed(partition, open_bin)
                open_bin = []
            open_bin.append(file)
        yield from _closed(partition, open_bin)


def _closed(partition: type_of_partition, files: Sequence[DataFile]) -> Iterator[Bin]:
    if len(files) > 1:
        yield Bin(partition=partition, files=tuple(files))


def _is_worthwhile(bin_: Bin) -> bool:
    return sum(not file.compacted or file.deletion_vector is not None for file in bin_.files) >= 2


def _reason(layout: Layout, candidates: Sequence[DataFile], bins: Sequence[Bin], chosen: Sequence[Bin]) -> Reason:
    if chosen:
        return Reason.MERGEABLE_FILES
    if not layout.files:
        return Reason.NO_FILES
    if not candidates:
        return Reason.NOTHING_SMALL
    return Reason.ALREADY_COMPACTED if bins else Reason.NOTHING_SHARES_A_BIN
