"""The facts that a planner is given, and its answer: the statement, the bins that it will make, and why."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter
from typing import ClassVar, assert_never

from lakehouse.core.compaction.target_size import WriteHistory
from lakehouse.core.costs.rates import Rates
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.delta.partition_values import (
    by_name,
    grouping_key,
    is_changed_by_rewrite,
    type_of_typed_partition,
    typed_partition,
)
from lakehouse.core.delta.snapshot import Column, DataFile, Snapshot, type_of_partition
from lakehouse.core.reasons import Reason
from lakehouse.core.units import HOUR_MS

_SIZE, _SIZE_AND_PATH = attrgetter("size_bytes"), attrgetter("size_bytes", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """OPTIMIZE: files below `smaller_than_bytes`, or with too many deleted rows, into files of up to `up_to_bytes`."""

    kind: ClassVar[str] = "packing"
    smaller_than_bytes: int
    up_to_bytes: int
    max_deleted_rows_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZOrdering:
    """OPTIMIZE ZORDER BY: every file of a partition, laid out anew along `columns`."""

    kind: ClassVar[str] = "z-ordering"
    columns: tuple[str, ...]
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """OPTIMIZE of a liquid table, which packs by Z-cube."""

    kind: ClassVar[str] = "clustering"
    columns: tuple[str, ...]
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """REORG APPLY (PURGE): every file with deleted rows, without them, into files of up to `up_to_bytes`."""

    kind: ClassVar[str] = "purge"
    up_to_bytes: int


type_of_statement = Packing | ZOrdering | Clustering | Purge


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files of one partition that one job rewrites together; `partition` as the smallest of them spells it."""

    partition: type_of_partition
    files: tuple[DataFile, ...]
    # Bytes that go in; usually fewer come out. Summed once: a plan of many files asks for it again and again.
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", sum(map(_SIZE, self.files)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFacts:
    """The facts that a plan is made from. The policy's target is the one in force, never 0."""

    snapshot: Snapshot
    policy: Compaction
    rates: Rates
    write_history: WriteHistory
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The part of a statement in one partition. `files` are all that lie there; packing alone sets the fields after `bins`.

    `kept` are small files that are left for later: a compaction wrote each, and it is larger than all merged ones together.
    """

    files: tuple[DataFile, ...]
    bins: tuple[Bin, ...]
    cutoff_bytes: int = 0
    promoted: bool = False
    kept: tuple[DataFile, ...] = ()

    @property
    def file_count(self) -> int:
        """Files that would be removed."""
        return sum(len(bin_.files) for bin_ in self.bins)

    @property
    def size_bytes(self) -> int:
        """Bytes that would be removed."""
        return sum(bin_.size_bytes for bin_ in self.bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One planner's answer; no bins means nothing to do. `numbers` has the numbers that only its own sentence names."""

    statement: type_of_statement
    reason: Reason
    bins: tuple[Bin, ...] = ()
    files_left: int = 0
    kept: tuple[DataFile, ...] = ()
    numbers: Mapping[str, object] = field(default_factory=dict[str, object])


def files_added(statement: type_of_statement, bins: Iterable[Bin]) -> int:
    """Files that these bins become. Exact for packing and purge, one per bin; of the others at most so many, since a range may stay empty.

    Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala`, runOptimizeBinJob: `max(1, size / maxFileSize)` ranges.
    """
    match statement:
        case Packing() | Purge():
            return sum(1 for _ in bins)
        case ZOrdering() | Clustering():
            return sum(max(1, bin_.size_bytes // statement.up_to_bytes) for bin_ in bins)
        case _:
            assert_never(statement)


def files_by_partition(
    snapshot: Snapshot,
) -> Mapping[type_of_typed_partition, tuple[DataFile, ...]]:
    """Live files by partition, ascending by size, in an order that no order of the log changes.

    Partitions whose values a rewrite would change are left out (`left_alone`).
    """
    columns = by_name(snapshot.columns)
    spelled: defaultdict[type_of_partition, list[DataFile]] = defaultdict(list)
    for file in snapshot.files:
        spelled[file.partition].append(file)
    typed: defaultdict[type_of_typed_partition, list[DataFile]] = defaultdict(list)
    for partition in sorted(spelled, key=str):
        if not is_changed_by_rewrite(partition, columns):
            typed[typed_partition(partition, columns)].extend(spelled[partition])
    for found in typed.values():  # by path only where sizes are equal: it takes three times as long
        found.sort(key=_SIZE if len(set(map(_SIZE, found))) == len(found) else _SIZE_AND_PATH)
    return {key: tuple(found) for key, found in typed.items()}


def left_alone(snapshot: Snapshot) -> tuple[DataFile, ...]:
    """Files that no plan touches, since OPTIMIZE would turn a text of their partition into null."""
    columns = by_name(snapshot.columns)
    changed = {
        partition
        for partition in {file.partition for file in snapshot.files}
        if is_changed_by_rewrite(partition, columns)
    }
    return tuple(file for file in snapshot.files if file.partition in changed) if changed else ()


def pack(
    files: Iterable[DataFile],
    columns: Sequence[Column],
    *,
    up_to_bytes: int,
    least_files: int = 2,
) -> tuple[Bin, ...]:
    """Bins of one partition as Delta makes them of ascending files: one open bin at a time, those of fewer files dropped."""
    return tuple(
        Bin(partition=found[0].partition, files=tuple(found))
        for together in _packed_together(files, columns)
        for found in _filled(together, up_to_bytes)
        if len(found) >= least_files
    )


def _packed_together(
    files: Iterable[DataFile], columns: Sequence[Column]
) -> Sequence[Sequence[DataFile]]:
    """The files of one partition as OPTIMIZE puts them together: mostly all of them."""
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


def _filled(files: Iterable[DataFile], up_to_bytes: int) -> Iterator[list[DataFile]]:
    open_bin, open_bytes = list[DataFile](), 0
    for file in files:
        if open_bytes + file.size_bytes > up_to_bytes:
            yield open_bin
            open_bin, open_bytes = [], 0
        open_bin.append(file)
        open_bytes += file.size_bytes
    yield open_bin


def is_fresh(file: DataFile) -> bool:
    """Whether somebody wrote the file, or deleted rows of it, since a compaction last did."""
    return not file.compacted or file.deletion_vector is not None


def last_write_ms(files: Sequence[DataFile], write_history: WriteHistory) -> int:
    """The time at which rows of these files were last added or deleted; 0 where no file tells.

    A compaction's outputs tell nothing, and a deletion vector is told by its commit alone: its file keeps the time it was written.
    """
    told = (write_history.written_ms.get(file.path, 0) for file in files)
    own = (file.modified_ms for file in files if not file.compacted)
    return max(chain(told, own), default=0)


def is_warm(now: PlanningFacts, plan: PartitionPlan) -> bool:
    """Whether rows of the partition changed so lately that only cold ones may be rewritten."""
    return (
        now.policy.cold_hours > 0
        and last_write_ms(plan.files, now.write_history)
        > now.now_ms - now.policy.cold_hours * HOUR_MS
    )


def partition_plans(
    now: PlanningFacts, bins_of: Callable[[tuple[DataFile, ...]], tuple[Bin, ...]]
) -> tuple[list[PartitionPlan], int]:
    """The plans of the partitions that have bins, and how many more are warm; `bins_of` gives the bins of a partition's files."""
    plans = [
        PartitionPlan(files=files, bins=bins)
        for files in files_by_partition(now.snapshot).values()
        if (bins := bins_of(files))
    ]
    cold = [plan for plan in plans if not is_warm(now, plan)]
    return cold, len(plans) - len(cold)


def fits(now: PlanningFacts, size_bytes: int) -> bool:
    """Whether one run may rewrite so much."""
    return size_bytes <= (now.policy.max_bytes_per_run or inf)


def within_bounds(now: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[PartitionPlan, ...]:
    """The plans that one run takes: most files gone per byte first, or, where only cold partitions are taken, the newest last.

    A plan that does not fit waits for the next run, but smaller ones behind it are taken; none is where the first is too large by itself.
    """
    chosen, size_bytes = list[PartitionPlan](), 0
    for plan in in_order(now, plans):
        if fits(now, size_bytes + plan.size_bytes):
            chosen.append(plan)
            size_bytes += plan.size_bytes
        elif not chosen:
            break
    return tuple(chosen)


def one_run(now: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[tuple[Bin, ...], int]:
    """The bins that one run takes, and how many files it leaves to the next; a partition goes whole, the first one whatever its size."""
    chosen = within_bounds(now, plans) or (in_order(now, plans)[0],)
    left = sum(plan.file_count for plan in plans) - sum(plan.file_count for plan in chosen)
    return tuple(bin_ for plan in chosen for bin_ in plan.bins), left


def in_order(now: PlanningFacts, plans: Iterable[PartitionPlan]) -> list[PartitionPlan]:
    """The plans in the order in which runs take them."""
    if now.policy.cold_hours:
        return sorted(plans, key=lambda plan: last_write_ms(plan.files, now.write_history))
    return sorted(
        plans, key=lambda plan: (len(plan.bins) - plan.file_count) / max(1, plan.size_bytes)
    )
