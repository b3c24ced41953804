"""The input of a planner (facts), its output (a statement, bins and a reason), and what planners
share: how files are packed into bins, and which partitions one run rewrites.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from math import inf
from typing import Literal

from lakehouse.base.frozen import frozen
from lakehouse.base.paths import name_in_table
from lakehouse.base.reasons import Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import HOUR_MS
from lakehouse.compact.plan.estimate import Rates
from lakehouse.compact.plan.target_size import WriteHistory
from lakehouse.declare.policies import Compaction
from lakehouse.delta.partition_values import (
    TypedPartition,
    is_changed_by_rewrite,
    typed_partition,
)
from lakehouse.delta.snapshot import (
    DataFile,
    PartitionValues,
    Snapshot,
    by_partition,
    by_size,
    live_bytes,
    types_by_name,
)


@frozen
class Statement:
    """The statement that rewrites files into files of up to `up_to_bytes`, by its `kind`.

    - `packing`: OPTIMIZE, by Spark or deltalake. Packs the files below `smaller_than_bytes`.
      deltalake writes no file for a bin without rows, so it does not have `writes_empty_files`.
    - `z-ordering`: OPTIMIZE ZORDER BY. Rewrites every file of a partition, ordered along `columns`.
    - `clustering`: OPTIMIZE of a table with liquid clustering. Packs files by Z-cube, the set of
      files that one such OPTIMIZE wrote.
    - `purge`: REORG APPLY (PURGE). Rewrites every file with deleted rows, without these rows.
    """

    kind: Literal["packing", "z-ordering", "clustering", "purge"]
    up_to_bytes: int
    columns: tuple[str, ...] = ()
    smaller_than_bytes: int = 0
    writes_empty_files: bool = True


@frozen
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
        object.__setattr__(self, "size_bytes", total_bytes(self.files))


@frozen
class PlanningFacts:
    """The input of a planner. `policy.target_file_bytes` is the target in force, and never 0."""

    snapshot: Snapshot
    policy: Compaction
    rates: Rates
    write_history: WriteHistory
    now_ms: int


@frozen
class PartitionPlan:
    """The effect of a statement on one partition.

    `files` are all files of the partition, and `bins` the files that are rewritten. The other
    fields are set only by the plan of a packing.

    - `cutoff_bytes`: files below this size are selected.
    - `has_second_tier`: whether outputs of compactions with a much smaller target are merged, too.
    - `kept`: small outputs of compactions that are not merged yet, because each is larger than all
      merged files together.
    - `candidates`: the files that a merge may select.
    """

    files: Sequence[DataFile]
    bins: Sequence[Bin]
    candidates: Sequence[DataFile] = ()
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
        return total_bytes(self.bins)


@frozen
class Rewrite:
    """The result of a planner. Without bins, there is nothing to do.

    `numbers` contains additional numbers for the sentence of `reason`. `files_left` is the number
    of files that are left for the next run. `kept`: see `PartitionPlan`.
    """

    statement: Statement
    reason: Reason
    bins: Sequence[Bin] = ()
    files_left: int = 0
    kept: Sequence[DataFile] = ()
    numbers: Mapping[str, object] = {}


def files_added(statement: Statement, bins: Sequence[Bin]) -> int:
    """The number of files that the bins are rewritten into; for ordered rewrites, an upper bound.

    Packing and purge write one file per bin. An ordered rewrite writes a file per range of values,
    and a range may be empty.

    Source: delta-io/delta v4.4.0, `OptimizeTableCommand.scala`, runOptimizeBinJob: `max(1, size /
    maxFileSize)` ranges.
    """
    if statement.kind in ("z-ordering", "clustering"):
        return sum(max(1, bin_.size_bytes // statement.up_to_bytes) for bin_ in bins)
    if statement.writes_empty_files:
        return len(bins)
    return sum(any(file.row_count != 0 for file in bin_.files) for bin_ in bins)


def live_share(bins: Sequence[Bin]) -> float:
    """The estimated share of the bins' bytes that belongs to live rows; 1 without bins.

    A file without a row count counts as if all of its rows were live.
    """
    size_bytes = total_bytes(bins)
    live = sum(live_bytes(file) for bin_ in bins for file in bin_.files)
    return live / size_bytes if size_bytes else 1.0


def files_by_partition(
    snapshot: Snapshot,
) -> Mapping[TypedPartition, Sequence[DataFile]]:
    """Live files by partition, in ascending order of size, whatever their order in the log.

    Partitions whose values a rewrite would change are omitted (`unmergeable_files`).
    """
    types = types_by_name(snapshot.columns)
    files_by_spelling = by_partition(snapshot.files)
    groups = defaultdict[TypedPartition, list[Sequence[DataFile]]](list)
    for partition in sorted(files_by_spelling, key=str):
        if not is_changed_by_rewrite(partition, types):
            groups[typed_partition(partition, types)].append(files_by_spelling[partition])
    return {key: by_size(files) for key, files in groups.items()}


def unmergeable_files(snapshot: Snapshot) -> Sequence[DataFile]:
    """Files that no plan merges, because OPTIMIZE would change a partition value to null."""
    types = types_by_name(snapshot.columns)
    partitions = {file.partition for file in snapshot.files}
    changed = {each for each in partitions if is_changed_by_rewrite(each, types)}
    return [file for file in snapshot.files if file.partition in changed] if changed else ()


def pack(files: Iterable[DataFile], *, up_to_bytes: int, least_files: int = 2) -> Sequence[Bin]:
    """The bins of one partition, packed as Delta does, with one open bin at a time.

    `files` are in ascending order of size. Bins with fewer than `least_files` files are dropped.
    """
    return [
        Bin(partition=members[0].partition, files=members)
        for members in _fill_bins(files, up_to_bytes)
        if len(members) >= least_files
    ]


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


# A core that reads less than this does not speed up a scan: Spark counts the opening of a file as
# this many bytes (`spark.sql.files.openCostInBytes`).
TRIVIAL_BYTES_PER_CORE = 4 * 1024 * 1024


def last_write_ms(files: Sequence[DataFile], write_history: WriteHistory) -> int:
    """The time at which rows of these files were last added or deleted; 0 if unknown.

    Outputs of compactions do not count. A deletion vector counts from the time of its commit,
    because it does not change the file's modification time.
    """
    commit_times = (write_history.written_ms.get(file.path, 0) for file in files)
    file_times = (file.modified_ms for file in files if not file.compacted)
    return max(chain(commit_times, file_times), default=0)


def may_be_rewritten(facts: PlanningFacts, plan: PartitionPlan, counts: Counter[str]) -> bool:
    """Whether the partition may be rewritten now. If not, `counts` gets it as warm or cold.

    `warm` counts partitions that changed within `cold_hours`. `cold` counts partitions whose
    rewrite would read `cold_files` in a storage class that is slow or paid to read.
    """
    cold_since_ms = facts.now_ms - facts.policy.cold_hours * HOUR_MS
    if facts.policy.cold_hours and last_write_ms(plan.files, facts.write_history) > cold_since_ms:
        counts["warm"] += 1
        return False
    if not facts.snapshot.cold_files:
        return True
    files = chain.from_iterable(bin_.files for bin_ in plan.bins)
    cold_files = [
        file for file in files if (name_in_table(file.path) or "") in facts.snapshot.cold_files
    ]
    if cold_files:
        counts["cold"] += 1
        counts["cold_files"] += len(cold_files)
        counts["cold_bytes"] += total_bytes(cold_files)
    return not cold_files


def keeps_cores_busy(
    facts: PlanningFacts,
    plans: Iterable[PartitionPlan],
    *,
    added: Callable[[Sequence[Bin]], int] = len,
) -> bool:
    """Whether the table keeps enough files for all cores; with fewer, a full scan is slower.

    `added` returns the number of files that bins are rewritten into. The whole table is checked,
    and not each partition: a statement has a single bin size for all partitions, which the smallest
    partition would then determine.
    """
    core_count = min(facts.policy.scan_cores, facts.snapshot.size_bytes // TRIVIAL_BYTES_PER_CORE)
    removed_count = sum(plan.file_count - added(plan.bins) for plan in plans)
    return facts.snapshot.file_count - removed_count >= core_count


def partition_plans(
    facts: PlanningFacts, bins_of: Callable[[Sequence[DataFile]], Sequence[Bin]]
) -> tuple[list[PartitionPlan], Mapping[str, int]]:
    """The plans of all partitions with bins that may be rewritten now, and counts of the others.

    `bins_of` packs the files of a partition into bins.
    """
    plans = list[PartitionPlan]()
    for files in files_by_partition(facts.snapshot).values():
        bins = bins_of(files)
        if bins:
            plans.append(PartitionPlan(files=files, bins=bins))
    counts = Counter[str]()
    ready = [plan for plan in plans if may_be_rewritten(facts, plan, counts)]
    return ready, counts


def not_now(counts: Mapping[str, int]) -> Reason | None:
    """The reason if partitions are only left out because they are cold files' or warm."""
    if counts["cold"]:
        return Reason.COLD_FILES
    return Reason.ALL_WARM if counts["warm"] else None


def fits(facts: PlanningFacts, size_bytes: int) -> bool:
    """Whether one run may rewrite this many bytes."""
    return size_bytes <= (facts.policy.max_bytes_per_run or inf)


def within_bounds(facts: PlanningFacts, plans: Sequence[PartitionPlan]) -> Sequence[PartitionPlan]:
    """The plans that fit into one run, in the order of `in_order`.

    A plan that does not fit waits for the next run; smaller plans after it may still fit. The
    result is empty if the first plan alone is too large.
    """
    chosen = list[PartitionPlan]()
    size_bytes = 0
    for plan in in_order(facts, plans):
        if fits(facts, size_bytes + plan.size_bytes):
            chosen.append(plan)
            size_bytes += plan.size_bytes
        elif not chosen:
            break
    return chosen


def one_run(facts: PlanningFacts, plans: Sequence[PartitionPlan]) -> tuple[Sequence[Bin], int]:
    """The bins of one run, and the number of files that are left for the next run.

    A partition is never split. The first partition is always rewritten, whatever its size.
    """
    chosen = within_bounds(facts, plans) or in_order(facts, plans)[:1]
    files_left = sum(plan.file_count for plan in plans) - sum(plan.file_count for plan in chosen)
    return [bin_ for plan in chosen for bin_ in plan.bins], files_left


def in_order(facts: PlanningFacts, plans: Iterable[PartitionPlan]) -> list[PartitionPlan]:
    """The plans in the order of execution: most files removed per byte first.

    If the policy has `cold_hours`: the partitions with the oldest writes first.
    """
    if facts.policy.cold_hours:
        return sorted(plans, key=lambda plan: last_write_ms(plan.files, facts.write_history))
    return sorted(
        plans, key=lambda plan: (len(plan.bins) - plan.file_count) / max(1, plan.size_bytes)
    )
