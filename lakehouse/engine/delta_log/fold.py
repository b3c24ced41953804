"""Checkpoint and commits, folded: newer actions win by file, application and domain.

Source: PROTOCOL.md, "Action Reconciliation". A file is told apart by its path and deletion vector together: a DELETE
with vectors removes and adds the same path.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.partition_values import type_of_partition
from lakehouse.core.delta.snapshot import DataFile, LogTail, Snapshot, Tombstone
from lakehouse.engine.delta_log.actions import Actions, AddedFile, RemovedFile
from lakehouse.engine.delta_log.checkpoint import Checkpoint
from lakehouse.engine.delta_log.columns import AddedColumns, added_columns, made_of_columns
from lakehouse.engine.delta_log.fields import type_of_pairs
from lakehouse.engine.delta_log.log_segment import Segment
from lakehouse.engine.delta_log.schema import CLUSTERING_DOMAIN, Metadata, Shape, partitioner, shape_of

type_of_later = Mapping[tuple[str, str | None], AddedFile | RemovedFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommit:
    """One commit file's actions, with its version, and its time: in-commit timestamp, else commitInfo's, else the file's."""

    version: int
    committed_ms: int
    actions: Actions


def fold_layout(segment: Segment, checkpoint: Checkpoint, commits: Sequence[ReadCommit], *, uri: str) -> Snapshot:
    """The table at the segment's version; `commits` are all that were read, oldest first, those before the checkpoint included.

    Raises:
        Broken, Refused: see `shape_of` and `partitioner`.
    """
    tail = commits[len(commits) - len(segment.tail) :]
    later = _later(tail)
    shape = _shape(segment, (checkpoint.small, *_actions(tail)))
    files = tuple(_live_files(segment.table, shape.metadata, checkpoint, later, compacted=_compacted_paths(commits)))
    return Snapshot(
        table=segment.table,
        uri=uri,
        version=segment.version,
        committed_ms=commits[-1].committed_ms if commits else segment.checkpoint[0].modified_ms,
        files=files,
        tombstones=tuple(_tombstones(checkpoint, later, files)),
        removed_vectors=_removed_vectors(checkpoint, commits, files),
        log=LogTail(
            checkpoint_version=segment.checkpoint_version,
            commit_count=len(segment.tail),
            commit_bytes=sum(file.size_bytes for file in segment.tail),
        ),
        columns=shape.metadata.columns,
        partition_columns=shape.metadata.partition_columns,
        clustering_columns=shape.clustering_columns,
        properties=shape.metadata.properties,
        features=shape.features,
        transactions=dict(chain.from_iterable(actions.transactions.items() for actions in (checkpoint.small, *_actions(tail)))),
        table_id=shape.metadata.table_id,
    )


def fold_history(table: str, commits: Sequence[ReadCommit]) -> Commits:
    """The commits, oldest first, as they tell of themselves."""
    return Commits(table=table, commits=tuple(_commit(commit) for commit in commits))


def _actions(commits: Iterable[ReadCommit]) -> Iterator[Actions]:
    return (commit.actions for commit in commits)


def _later(tail: Sequence[ReadCommit]) -> type_of_later:
    """The last word of the commits on each file they touch; in one commit no file is both added and removed."""
    later: dict[tuple[str, str | None], AddedFile | RemovedFile] = {}
    for actions in _actions(tail):
        for action in chain(actions.removes, actions.adds):
            key = (action.path, action.vector)
            later.pop(key, None)
            later[key] = action
    return later


def _shape(segment: Segment, said: Iterable[Actions]) -> Shape:
    protocol = metadata = clustering = None
    for actions in said:
        protocol, metadata = actions.protocol or protocol, actions.metadata or metadata
        clustering = actions.domains.get(CLUSTERING_DOMAIN, clustering)
    return shape_of(metadata, protocol, clustering, table=segment.table, version=segment.version)


def _compacted_paths(commits: Sequence[ReadCommit]) -> frozenset[str]:
    """What commits without data change wrote in place of other files; commits that only add anew what is there do not count."""
    written: set[str] = set()
    for actions in _actions(commits):
        replaced = any(not remove.data_change for remove in actions.removes)
        written.update(add.path for add in actions.adds if replaced and not add.data_change)
    return frozenset(written)


def _live_files(
    table: str, metadata: Metadata, checkpoint: Checkpoint, later: type_of_later, *, compacted: frozenset[str]
) -> Iterator[DataFile]:
    partition_of = partitioner(metadata, table=table)
    for adds in (*_untouched(checkpoint, later), added_columns([action for action in later.values() if isinstance(action, AddedFile)])):
        yield from data_files(adds, partition_of, compacted)


def data_files(adds: AddedColumns, partition_of: Callable[[type_of_pairs], type_of_partition], compacted: Set[str]) -> list[DataFile]:
    """The files of these actions; `compacted` are the paths that compactions wrote."""
    partitions = [partition_of(pairs) for pairs in adds.pairs]
    return made_of_columns(
        DataFile,
        len(adds.path),
        path=adds.path,
        size_bytes=adds.size_bytes,
        modified_ms=adds.modified_ms,
        partition=map(partitions.__getitem__, adds.places),
        row_count=adds.row_count,
        deletion_vector=adds.vector,
        deleted_row_count=adds.deleted_row_count,
        compacted=map(compacted.__contains__, adds.path),
    )


def _untouched(checkpoint: Checkpoint, later: type_of_later) -> Iterator[AddedColumns]:
    """The checkpoint's files of which the commits after it say nothing."""
    touched = {path for path, _ in later}
    for adds in checkpoint.adds:
        if touched.isdisjoint(adds.path):
            yield adds
        else:
            files = zip(adds.path, adds.vector, strict=True)
            yield adds.where([path not in touched or (path, vector) not in later for path, vector in files])


def _tombstones(checkpoint: Checkpoint, later: type_of_later, files: Sequence[DataFile]) -> Sequence[Tombstone]:
    """One per path that no live file has, with its last deletion: a path is removed once for each vector it ever had."""
    before = chain.from_iterable(zip(each.path, each.deleted_ms, each.size_bytes, strict=True) for each in checkpoint.removes)
    after = ((action.path, action.deleted_ms, action.size_bytes) for action in later.values() if isinstance(action, RemovedFile))
    last: dict[str, tuple[int | None, int | None]] = {}
    for path, deleted_ms, size_bytes in chain(before, after):
        known_ms = last[path][0] if path in last else deleted_ms
        if known_ms is None or deleted_ms is None:  # a time that is unknown may be the last one
            last[path] = (None, size_bytes)
        elif path not in last or known_ms <= deleted_ms:
            last[path] = (deleted_ms, size_bytes)
    for path in last.keys() & map(attrgetter("path"), files):
        del last[path]
    return made_of_columns(
        Tombstone,
        len(last),
        path=last,
        deleted_ms=(deleted_ms for deleted_ms, _ in last.values()),
        size_bytes=(size_bytes for _, size_bytes in last.values()),
    )


def _removed_vectors(checkpoint: Checkpoint, commits: Sequence[ReadCommit], files: Sequence[DataFile]) -> Mapping[str, int | None]:
    """The vectors that removed files had, with their last deletion; a file that got a new vector was removed with its old one.

    Of the commits before the checkpoint, too: it drops tombstones by the retention of its time, which may have been a shorter one.
    """
    before = chain.from_iterable(zip(each.vector, each.deleted_ms, strict=True) for each in checkpoint.removes)
    after = ((remove.vector, remove.deleted_ms) for commit in commits for remove in commit.actions.removes)
    last: dict[str, int | None] = {}
    for vector, deleted_ms in chain(before, after):
        if vector is not None:
            known = last.get(vector, 0)
            last[vector] = None if deleted_ms is None or known is None else max(deleted_ms, known)
    for vector in last.keys() & {file.deletion_vector for file in files} if last else ():
        del last[vector]
    return last


def _commit(commit: ReadCommit) -> Commit:
    actions, info = commit.actions, commit.actions.info
    return Commit(
        version=commit.version,
        committed_ms=commit.committed_ms,
        operation=info.operation,
        engine=info.engine,
        changed_data=any(action.data_change for action in chain(actions.adds, actions.removes)),
        added_paths=tuple(add.path for add in actions.adds),
        removed_paths=tuple(remove.path for remove in actions.removes),
        removed_vectors=tuple(remove.vector for remove in actions.removes if remove.vector is not None),
        change_paths=tuple(actions.changes),
        added_bytes=sum(add.size_bytes for add in actions.adds),
        removed_bytes=sum(remove.size_bytes or 0 for remove in actions.removes),
        user_metadata=info.user_metadata,
        parameters=info.parameters,
        metrics=info.metrics,
        applications=actions.transactions,
    )
