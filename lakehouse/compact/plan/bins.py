"""The input of a planner (facts), and its output (a statement, bins and a reason)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import ClassVar, assert_never

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.estimate import Rates
from lakehouse.compact.plan.target_size import WriteHistory
from lakehouse.declare.compaction import Compaction
from lakehouse.delta.partition_values import (
    TypedPartition,
    by_name,
    grouping_key,
    is_changed_by_rewrite,
    typed_partition,
)
from lakehouse.delta.snapshot import (
    Column,
    DataFile,
    PartitionValues,
    Snapshot,
    by_partition,
    by_size,
    file_sizes,
    live_bytes,
    partitions_of,
)

_SIZE = attrgetter("size_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """OPTIMIZE: packs small files into files of up to `up_to_bytes`.

    Selects files below `smaller_than_bytes`, and files with too many deleted rows.
    """

    kind: ClassVar[str] = "packing"
    smaller_than_bytes: int
    up_to_bytes: int
    max_deleted_rows_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingInLogOrder:
    """deltalake's compaction: packs neighbours in the order of the log.

    Files above `up_to_bytes` are skipped.
    """

    kind: ClassVar[str] = "packing in log order"
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZOrdering:
    """OPTIMIZE ZORDER BY: rewrites every file of a partition, ordered along `columns`."""

    kind: ClassVar[str] = "z-ordering"
    columns: tuple[str, ...]
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """OPTIMIZE of a table with liquid clustering, which packs files by Z-cube.

    A Z-cube is the set of files that one such OPTIMIZE wrote.
    """

    kind: ClassVar[str] = "clustering"
    columns: tuple[str, ...]
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """REORG APPLY (PURGE): rewrites every file with deleted rows, without these rows."""

    kind: ClassVar[str] = "purge"
    up_to_bytes: int


Statement = Packing | PackingInLogOrder | ZOrdering | Clustering | Purge


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files of one partition that one job rewrites together.

    A clustering plan has a single bin, with all files that may be rewritten. `partition` is the
    partition of the first file; other files may spell the same value otherwise, as `01` and `1`.
    """

    partition: PartitionValues
    files: Sequence[DataFile]
    # Bytes of the files. Computed once, because plans of many files need it often.
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", sum(file_sizes(self.files)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFacts:
    """The input of a planner. `policy.target_file_bytes` is the target in force, and never 0."""

    snapshot: Snapshot
    policy: Compaction
    rates: Rates
    write_history: WriteHistory
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The effect of a statement on one partition.

    `files` are all files of the partition, and `bins` the files that are rewritten. The other
    fields are set only by the plan of OPTIMIZE, and `cutoff_bytes` also by the plan of deltalake.

    - `cutoff_bytes`: files below this size are selected. For deltalake, the statement's target.
    - `has_second_tier`: whether outputs of compactions with a much smaller target are merged, too.
    - `kept`: small outputs of compactions that are not merged yet, because each is larger than all
      merged files together.
    - `candidates`: the files that a merge may select.
    - `pays`: whether a rewrite pays off.
    """

    files: Sequence[DataFile]
    bins: tuple[Bin, ...]
    candidates: Sequence[DataFile] = ()
    pays: bool = True
    cutoff_bytes: int = 0
    has_second_tier: bool = False
    kept: Sequence[DataFile] = ()

    @property
    def file_count(self) -> int:
        """The number of files that would be removed."""
        return sum(len(bin_.files) for bin_ in self.bins)

    @property
    def size_bytes(self) -> int:
        """Bytes that would be removed."""
        return sum(bin_.size_bytes for bin_ in self.bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The result of a planner. Without bins, there is nothing to do.

    `numbers` contains additional numbers for the sentence of `reason`, and `more` is appended to
    that sentence. `files_left` is the number of files that are left for the next run. `kept`:
    see `PartitionPlan`.
    """

    statement: Statement
    reason: Reason
    bins: tuple[Bin, ...] = ()
    files_left: int = 0
    kept: Sequence[DataFile] = ()
    numbers: Mapping[str, object] = field(default_factory=dict[str, object])
    more: str = ""


def files_added(statement: Statement, bins: Iterable[Bin]) -> int:
    """The number of files that the bins are rewritten into; for ordered rewrites, an upper bound.

    Packing and purge write one file per bin. deltalake writes no file for a bin without rows. An
    ordered rewrite writes a file per range of values, and a range may be empty.

    Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala`, runOptimizeBinJob: `max(1, size /
    maxFileSize)` ranges.
    """
    match statement:
        case PackingInLogOrder():
            return sum(any(file.row_count != 0 for file in bin_.files) for bin_ in bins)
        case Packing() | Purge():
            return len([*bins])
        case ZOrdering() | Clustering():
            return sum(max(1, bin_.size_bytes // statement.up_to_bytes) for bin_ in bins)
        case _:
            assert_never(statement)


def live_share(bins: Iterable[Bin]) -> float:
    """The estimated share of the bins' bytes that belongs to live rows; 1 without bins.

    A file without a row count counts as if all of its rows were live.
    """
    files = [file for bin_ in bins for file in bin_.files]
    size_bytes = sum(map(_SIZE, files))
    return sum(map(live_bytes, files)) / size_bytes if size_bytes else 1.0


def files_by_partition(
    snapshot: Snapshot,
) -> Mapping[TypedPartition, Sequence[DataFile]]:
    """Live files by partition, in ascending order of size, whatever their order in the log.

    Partitions whose values a rewrite would change are omitted (`unmergeable_files`).
    """
    columns = by_name(snapshot.columns)
    files_by_spelling = by_partition(snapshot.files)
    groups: defaultdict[TypedPartition, list[Sequence[DataFile]]] = defaultdict(list)
    for partition in sorted(files_by_spelling, key=str):
        if not is_changed_by_rewrite(partition, columns):
            groups[typed_partition(partition, columns)].append(files_by_spelling[partition])
    return {key: by_size(files) for key, files in groups.items()}


def unmergeable_files(snapshot: Snapshot) -> tuple[DataFile, ...]:
    """Files that no plan merges, because OPTIMIZE would change a partition value to null."""
    columns = by_name(snapshot.columns)
    partitions = partitions_of(snapshot.files)
    changed = {each for each in partitions if is_changed_by_rewrite(each, columns)}
    if not changed:
        return ()
    return tuple(file for file in snapshot.files if file.partition in changed)


def pack(
    files: Iterable[DataFile],
    columns: Sequence[Column],
    *,
    up_to_bytes: int,
    least_files: int = 2,
) -> tuple[Bin, ...]:
    """The bins of one partition, packed as Delta does, with one open bin at a time.

    `files` are in ascending order of size. Bins with fewer than `least_files` files are dropped.
    """
    bins = list[Bin]()
    for group in _grouped_as_delta(files, columns):
        for members in _fill_bins(group, up_to_bytes):
            if len(members) >= least_files:
                bins.append(Bin(partition=members[0].partition, files=tuple(members)))
    return tuple(bins)


def _grouped_as_delta(
    files: Iterable[DataFile], columns: Sequence[Column]
) -> Sequence[Sequence[DataFile]]:
    """Groups the files of one partition as OPTIMIZE does.

    There is usually one group. `grouping_key` describes the exceptions.
    """
    candidates = [*files]
    spellings = {file.partition for file in candidates}
    if len(spellings) < 2:
        return [candidates]
    types = by_name(columns)
    keys = {partition: grouping_key(partition, types) for partition in spellings}
    groups: defaultdict[object, list[DataFile]] = defaultdict(list)
    for file in candidates:
        groups[keys[file.partition]].append(file)
    return [*groups.values()]


def _fill_bins(files: Iterable[DataFile], up_to_bytes: int) -> Iterator[list[DataFile]]:
    open_bin = list[DataFile]()
    open_bytes = 0
    for file in files:
        if open_bytes + file.size_bytes > up_to_bytes:
            yield open_bin
            open_bin = []
            open_bytes = 0
        open_bin.append(file)
        open_bytes += file.size_bytes
    yield open_bin


def is_fresh(file: DataFile) -> bool:
    """Whether no compaction wrote the file, or it has a deletion vector."""
    return not file.compacted or file.deletion_vector is not None
