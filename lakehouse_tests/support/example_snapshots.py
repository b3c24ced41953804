"""Layouts made in one line, for tests of the core."""

from collections.abc import Sequence
from typing import Any

from lakehouse.compact.plan.compaction import CompactionPlan, plan_compaction
from lakehouse.compact.plan.estimate import DEFAULT_RATES
from lakehouse.declare.policies import Compaction
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import Column, DataFile, LogTail, PartitionValues, Snapshot, Tombstone
from lakehouse.evolve.plan.rebuild import ColumnSource

TARGET = 8_000
# Whatever a time or a share would set off is off.
QUIET: dict[str, Any] = {
    "max_small_file_age_hours": 0,
    "purge_deleted_rows_share": 0,
    "cooldown_minutes": 0,
    "max_bytes_per_run": 0,
}
NO_PAST = Commits(table="bronze/t", commits=())
POLICY = Compaction(target_file_bytes=TARGET, min_small_files=4, **QUIET)


def data_file(
    size_bytes: int,
    path: str = "",
    *,
    partition: PartitionValues = (),
    compacted: bool = False,
    rows: int | None = 100,
    deleted: int = 0,
    vector: str | None = None,
) -> DataFile:
    """A live file; `deleted` rows give it a deletion vector."""
    return DataFile(
        path=path or f"part-{size_bytes}",
        size_bytes=size_bytes,
        modified_ms=0,
        partition=partition,
        row_count=rows,
        deletion_vector=vector or ("u1" if deleted else None),
        deleted_row_count=deleted,
        compacted=compacted,
    )


def snapshot(
    files: Sequence[DataFile | int],
    *,
    commit_count: int = 1,
    checkpoint_version: int | None = None,
    tombstones: Sequence[Tombstone] = (),
    columns: Sequence[Column] = (),
    partition_columns: Sequence[str] | None = None,
    properties: dict[str, str] | None = None,
    features: frozenset[str] = frozenset(),
    clustering_columns: Sequence[str] = (),
) -> Snapshot:
    """A table of these files at version 7; a bare number is an unpartitioned file of that size, named by its place."""
    made = tuple(
        data_file(file, f"part-{place}") if isinstance(file, int) else file
        for place, file in enumerate(files)
    )
    named = (
        tuple(name for name, _ in made[0].partition)
        if made and partition_columns is None
        else tuple(partition_columns or ())
    )
    return Snapshot(
        table="bronze/t",
        uri="/lake/bronze/t",
        version=7,
        committed_ms=0,
        files=made,
        tombstones=tuple(tombstones),
        log=LogTail(
            checkpoint_version=checkpoint_version,
            commit_count=commit_count,
            commit_bytes=1_000 * commit_count,
        ),
        columns=tuple(columns),
        partition_columns=named,
        properties=properties or {},
        features=features,
        clustering_columns=tuple(clustering_columns),
    )


def plan_of(
    table: Snapshot, policy: Compaction = POLICY, *, now_ms: int = 0, past: Commits = NO_PAST
) -> CompactionPlan:
    """The plan of a layout under a policy, at the default rates."""
    return plan_compaction(table, policy, rates=DEFAULT_RATES, now_ms=now_ms, history=past)


def plan(files: Sequence[DataFile | int], **more: object) -> CompactionPlan:
    """The plan of files under `POLICY`."""
    return plan_of(snapshot(files, **more))  # type: ignore[arg-type]


def history(*changed: bool, first: int = 0) -> Commits:
    """Commits in a row from version `first`, each with or without changed rows."""
    commits = [
        Commit(version=first + place, committed_ms=place, operation="WRITE", changed_data=data)
        for place, data in enumerate(changed)
    ]
    return Commits(table="bronze/t", commits=tuple(commits))


def own_columns(layout: Snapshot) -> tuple[ColumnSource, ...]:
    """The columns of a table, as a rebuild from own rows keeps them."""
    return tuple(ColumnSource(column=each, source=each) for each in layout.columns)
