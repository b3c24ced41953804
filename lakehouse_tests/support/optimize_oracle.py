"""What Delta does with a plan, told step by step from its source, and the table that comes of it: an oracle for the planners."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import DataFile, Snapshot


def day_of(file: DataFile) -> int | None:
    """The value of the one partition column, a whole number; `None` also for a table without."""
    value = file.partition[0][1] if file.partition else None
    return None if value is None else int(value)


def delta_bins(
    table: Snapshot, done: CompactionPlan, *, ties: Callable[[DataFile], int] = lambda _: 0
) -> list[list[DataFile]]:
    """The bins that Delta makes in the plan's partitions; it knows no order among files of one size, so `ties` gives one."""
    by_day: defaultdict[int | None, list[DataFile]] = defaultdict(list)
    wanted = None
    if done.partitions is not None:
        wanted = {None if value is None else int(value) for ((_, value),) in done.partitions}
    for file in table.files:
        if (wanted is None or day_of(file) in wanted) and selects(done, file):
            by_day[day_of(file)].append(file)
    return [
        bin_
        for files in by_day.values()
        for bin_ in bins_of(done, sorted(files, key=lambda file: (file.size_bytes, ties(file))))
    ]


def selects(done: CompactionPlan, file: DataFile) -> bool:
    """filterCandidateFileList, and DeltaPurgeOperation.filterFilesToReorg."""
    match done.statement.kind:
        case "packing":
            has_vector = file.deletion_vector is not None
            return file.size_bytes < done.statement.smaller_than_bytes or (
                has_vector and too_many(file, 1.0)
            )
        case "purge":
            may_have = file.row_count is None or file.deleted_row_count > 0
            return file.deletion_vector is not None and may_have
        case "z-ordering" | "clustering":
            return True


def too_many(file: DataFile, ratio: float) -> bool:
    """shouldCompactBecauseOfDeletedRows, of a file with a deletion vector."""
    if file.row_count is None:
        return True
    return 1.0 - float(file.row_count - file.deleted_row_count) / file.row_count > ratio


def bins_of(done: CompactionPlan, files: Sequence[DataFile]) -> list[list[DataFile]]:
    """groupFilesIntoBins, of one partition."""
    statement = done.statement
    size = 1 << 62 if statement.kind in ("z-ordering", "clustering") else statement.up_to_bytes
    bins: list[list[DataFile]] = [[]]
    for file in files:
        if sum(other.size_bytes for other in bins[-1]) + file.size_bytes > size:
            bins.append([])
        bins[-1].append(file)
    return [bin_ for bin_ in bins if len(bin_) > 1 or (bin_ and statement.kind != "packing")]


def after(
    table: Snapshot,
    past: Commits,
    done: CompactionPlan,
    bins: Sequence[Sequence[DataFile]],
    outputs: Sequence[int],
) -> tuple[Snapshot, Commits]:
    """The table and its history once these bins were rewritten into one file each, of these sizes and without deletion vectors."""
    version = table.version + 1
    removed = {file.path for bin_ in bins for file in bin_}
    added = tuple(
        DataFile(
            path=f"v{version}-{place}",
            size_bytes=size,
            modified_ms=1_000 * version,
            partition=bin_[0].partition,
            row_count=sum((file.row_count or 100) - file.deleted_row_count for file in bin_),
            compacted=True,
        )
        for place, (bin_, size) in enumerate(zip(bins, outputs, strict=True))
    )
    figures = {name: value for name, value in done.as_json().items() if name != "bins"}
    columns = done.statement.columns
    if done.statement.kind == "clustering":
        columns = table.clustering_columns
    commit = Commit(
        version=version,
        committed_ms=1_000 * version,
        operation="REORG" if done.statement.kind == "purge" else "OPTIMIZE",
        changed_data=False,
        added_paths=tuple(file.path for file in added),
        removed_paths=tuple(removed),
        user_metadata=json.dumps({"compaction": "mark", "plan": figures}),
        parameters={"zOrderBy": json.dumps(columns)},
    )
    files = (*(file for file in table.files if file.path not in removed), *added)
    return _with(table, past, files, commit)


def written(table: Snapshot, past: Commits, files: Sequence[DataFile]) -> tuple[Snapshot, Commits]:
    """The table and its history once somebody has appended these files."""
    version = table.version + 1
    commit = Commit(
        version=version,
        committed_ms=1_000 * version,
        operation="WRITE",
        changed_data=True,
        added_paths=tuple(file.path for file in files),
    )
    return _with(table, past, (*table.files, *files), commit)


def _with(
    table: Snapshot, past: Commits, files: tuple[DataFile, ...], commit: Commit
) -> tuple[Snapshot, Commits]:
    newer = replace(table, files=files, version=commit.version)
    return newer, replace(past, commits=(*past.commits, commit))
