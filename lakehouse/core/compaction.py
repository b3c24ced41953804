"""Which files OPTIMIZE will merge into what, exactly, before it runs.

The selection and packing are Delta's own, so that plan and outcome can be held against each other file by file. Files of equal size are
the one exception: Delta takes them in the order of its snapshot, which no log tells, the plan by path. Which of them ends in which bin (or
is left over) may differ, the figures cannot.
Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala` (filterCandidateFileList, groupFilesIntoBins), `OptimizeTableStrategy.scala`.

One rule is ours, and makes a compacted table a fixed point: a bin is worth its rewrite only if it holds at least two fresh files, which
are those that no compaction has written and those with a deletion vector. OPTIMIZE is limited to the partitions with such a bin, and does
every bin there. What follows:

- Two files left alone in their bins never share a bin later: the first bin was closed because even the next smallest file
  no longer fitted. So of two fresh files that a run leaves behind, the sum is over the target.
- A run's outputs are not fresh: a compaction wrote them, and it wrote them without deletion vectors.
- So no later bin holds two fresh files until somebody writes or deletes rows, whatever size the outputs shrank to.
- A deletion vector makes a file fresh whatever its share of deleted rows: only a statement that changed data after the compaction can have
  put it there, and merging takes it away. If one such file, however many of its rows are deleted, were enough, the shrunken outputs of
  a run could make room for it and be rewritten with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from lakehouse.core.cost import DEFAULT_RATES, Estimate, Rates, estimate, fit_rates
from lakehouse.core.errors import Refused
from lakehouse.core.history import History
from lakehouse.core.layout import DataFile, Layout, type_of_partition
from lakehouse.core.partition import by_name, type_of_typed_partition, typed_partition
from lakehouse.core.policy import CompactionPolicy, policy_for
from lakehouse.core.reason import Reason
from lakehouse.core.table import Table

# Clustered tables are packed by Z-cube, not by this rule. Source: OptimizeTableStrategy.scala, ClusteringStrategy.
# Catalog-managed ones refuse. Source: OptimizeTableCommand.scala, run; TableFeature.scala.
_UNPLANNABLE = {
    "clustering": "liquid clustering packs by Z-cube",
    "catalogManaged": "a catalog-managed table refuses maintenance",
    "catalogOwned-preview": "a catalog-managed table refuses maintenance",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files of one partition that one OPTIMIZE job turns into one file; `partition` as the smallest of them spells it."""

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
    estimate: Estimate

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
            "estimate": self.estimate.as_json(),
            "bins": [[file.path for file in bin_.files] for bin_ in self.bins],
        }


def plan_table(table: Table, layout: Layout, history: History, *, now_ms: int) -> CompactionPlan:
    """The compaction of a declared table, under the policy in force, priced by its own history; raises as `plan_compaction`."""
    return plan_compaction(layout, policy_for(table.layer, table.compaction), rates=fit_rates(history), now_ms=now_ms)


def plan_compaction(layout: Layout, policy: CompactionPolicy, *, rates: Rates = DEFAULT_RATES, now_ms: int | None = None) -> CompactionPlan:
    """The compaction of `layout` under `policy`, or a plan that does nothing and says why.

    Without `now_ms`, the plan is of the moment of the newest commit.

    Raises:
        Refused: the table has a feature that changes how OPTIMIZE selects files.
    """
    for feature, why in _UNPLANNABLE.items():
        if feature in layout.features:
            raise Refused(f"plan of {layout.table}: table feature {feature} is not planned: {why}; accepted: tables without it")
    candidates = [file for file in layout.files if _is_candidate(file, policy)]
    by_partition = {key: tuple(_pack(files, max_bytes=policy.target_file_bytes)) for key, files in _grouped(candidates, layout).items()}
    worthwhile = [bins for bins in by_partition.values() if any(_is_worthwhile(bin_) for bin_ in bins)]
    chosen = tuple(bin_ for bins in worthwhile for bin_ in bins)
    reason = _reason(layout, candidates, shared=any(by_partition.values()), chosen=chosen)
    files_removed, bytes_removed = sum(len(bin_.files) for bin_ in chosen), sum(bin_.size_bytes for bin_ in chosen)
    del now_ms
    return CompactionPlan(
        table=layout.table,
        version=layout.version,
        reason=reason,
        sentence=reason.say(
            version=layout.version,
            files=layout.file_count,
            candidates=len(candidates),
            fresh=sum(_is_fresh(file) for file in candidates),
            candidate_bytes=policy.candidate_bytes,
            target_bytes=policy.target_file_bytes,
            files_removed=files_removed,
            files_added=len(chosen),
            bytes_removed=bytes_removed,
            partitions=len(worthwhile),
        ),
        bins=chosen,
        partitions=tuple(bins[0].partition for bins in worthwhile) if layout.partition_columns and chosen else None,
        policy=policy,
        estimate=estimate(
            rates,
            files_removed=files_removed,
            bytes_removed=bytes_removed,
            files_added=len(chosen),
            on_s3=layout.uri.startswith("s3"),
        ),
    )


def _is_candidate(file: DataFile, policy: CompactionPolicy) -> bool:
    return file.size_bytes < policy.candidate_bytes or _has_too_many_deleted_rows(file, policy)


def _has_too_many_deleted_rows(file: DataFile, policy: CompactionPolicy) -> bool:
    """Delta's own arithmetic, floating point included: 5 of 100 rows are more than 0.05, since 1 - 95 / 100 is.

    Source: delta-io/delta v4.4.0, `actions.scala`, HasNumRecords; `OptimizeTableCommand.scala`, filterCandidateFileList.
    """
    if file.deletion_vector is None:
        return False
    if file.row_count is None:
        return True
    return file.row_count > 0 and 1.0 - (file.row_count - file.deleted_row_count) / file.row_count > policy.max_deleted_rows_ratio


def _grouped(candidates: Iterable[DataFile], layout: Layout) -> Mapping[type_of_typed_partition, Sequence[DataFile]]:
    """Candidates by partition, ordered by how the partitions are spelled, so that a plan depends on no order of the log."""
    columns = by_name(layout.columns)
    spelled: defaultdict[type_of_partition, list[DataFile]] = defaultdict(list)
    for file in candidates:
        spelled[file.partition].append(file)
    typed: defaultdict[type_of_typed_partition, list[DataFile]] = defaultdict(list)
    for partition in sorted(spelled, key=str):
        typed[typed_partition(partition, columns)].extend(spelled[partition])
    return typed


def _pack(files: Iterable[DataFile], *, max_bytes: int) -> Iterator[Bin]:
    """Bins of one partition as Delta makes them: ascending by size, one open bin at a time, bins of one file dropped."""
    open_bin: list[DataFile] = []
    open_bytes = 0
    for file in sorted(files, key=attrgetter("size_bytes", "path")):
        if open_bytes + file.size_bytes > max_bytes:
            yield from _closed(open_bin)
            open_bin, open_bytes = [], 0
        open_bin.append(file)
        open_bytes += file.size_bytes
    yield from _closed(open_bin)


def _closed(files: Sequence[DataFile]) -> Iterator[Bin]:
    if len(files) > 1:
        yield Bin(partition=files[0].partition, files=tuple(files))


def _is_fresh(file: DataFile) -> bool:
    return not file.compacted or file.deletion_vector is not None


def _is_worthwhile(bin_: Bin) -> bool:
    return sum(map(_is_fresh, bin_.files)) >= 2


def _reason(layout: Layout, candidates: Sequence[DataFile], *, shared: bool, chosen: Sequence[Bin]) -> Reason:
    if chosen:
        return Reason.MERGEABLE_FILES
    if not layout.files:
        return Reason.NO_FILES
    if not candidates:
        return Reason.NOTHING_SMALL
    return Reason.ALREADY_COMPACTED if shared else Reason.NOTHING_SHARES_A_BIN
