"""Folds a checkpoint and commits into a snapshot.

The newest action for each file, application and domain wins. A file is identified by its path and
its deletion vector, because a DELETE with vectors removes and adds the same path.
Source: PROTOCOL.md, "Action Reconciliation".
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.partition_values import PartitionValues
from lakehouse.core.delta.snapshot import DataFile, LogTail, Snapshot, Tombstone, last_removals
from lakehouse.engine.delta_log.actions import (
    Actions,
    AddedColumns,
    AddedFile,
    RemovedFile,
    added_columns,
    removed_columns,
)
from lakehouse.engine.delta_log.checkpoint import Checkpoint
from lakehouse.engine.delta_log.fields import TextPairs
from lakehouse.engine.delta_log.log_segment import Segment
from lakehouse.engine.delta_log.schema import shape_of

Made = TypeVar("Made")
LaterActions = Mapping[tuple[str, str | None], AddedFile | RemovedFile]


class ReadCommit(NamedTuple):
    """A commit, and the actions of its file."""

    commit: Commit
    actions: Actions


def fold_layout(
    segment: Segment, checkpoint: Checkpoint, commits: Sequence[ReadCommit], *, uri: str
) -> Snapshot:
    """The table at the segment's version.

    `commits` are all commits that were read, oldest first, including those before the checkpoint.
    Empties `checkpoint.adds` along the way, so that a large table is in memory only once.

    Raises:
        Refused: a file is partitioned differently from the table.
        Broken, Refused: as `shape_of`.
    """
    tail = commits[len(commits) - len(segment.tail) :]
    later, newest = last_actions(tail), Actions()
    for actions in (checkpoint.small, *(each.actions for each in tail)):
        newest.learn(actions)
    shape, compacted = (
        shape_of(newest, table=segment.table, uri=uri, version=segment.version),
        compacted_paths(commits),
    )
    # deltalake merges neighbours in this order: the newest commit first, then the checkpoint.
    added = added_columns(
        [
            add
            for each in reversed(tail)
            for add in each.actions.adds
            if later[add.path, add.vector] is add
        ]
    )
    live = (
        data_files(adds, shape.partition_of, compacted)
        for adds in chain([added], _untouched(checkpoint, later))
    )
    files = tuple(chain.from_iterable(live))
    return replace(
        shape.snapshot,
        committed_ms=commits[-1].commit.committed_ms
        if commits
        else segment.checkpoint[0].modified_ms,
        files=files,
        tombstones=tuple(_tombstones(checkpoint, later, files)),
        removed_vectors=_removed_vectors(checkpoint, commits, files),
        log=LogTail(
            checkpoint_version=segment.checkpoint_version,
            commit_count=len(segment.tail),
            commit_bytes=sum(file.size_bytes for file in segment.tail),
        ),
        transactions=newest.transactions,
    )


def fold_commit(actions: Actions, *, version: int, modified_ms: int) -> Commit:
    """A commit from the actions of its file.

    Its time is the in-commit timestamp, else the timestamp of commitInfo, else `modified_ms`.
    Writers may put anything into commitInfo, so a value of an unexpected type counts as missing.
    """
    info = actions.info
    times = (info.get("inCommitTimestamp"), info.get("timestamp"))
    operation, user_metadata, engine = (
        info.get("operation"),
        info.get("userMetadata"),
        info.get("engineInfo") or info.get("clientVersion"),
    )
    return Commit(
        version=version,
        committed_ms=next(
            (time for time in times if isinstance(time, int) and not isinstance(time, bool)), 0
        )
        or modified_ms,
        operation=operation if isinstance(operation, str) else "UNKNOWN",
        engine=engine if isinstance(engine, str) else "",
        changed_data=any(action.data_change for action in chain(actions.adds, actions.removes)),
        added_paths=tuple(add.path for add in actions.adds),
        removed_paths=tuple(remove.path for remove in actions.removes),
        removed_vectors=tuple(
            remove.vector for remove in actions.removes if remove.vector is not None
        ),
        change_paths=tuple(actions.changes),
        added_bytes=sum(add.size_bytes for add in actions.adds),
        removed_bytes=sum(remove.size_bytes or 0 for remove in actions.removes),
        user_metadata=user_metadata if isinstance(user_metadata, str) else None,
        parameters=_as_texts(info.get("operationParameters")),
        metrics=_as_texts(info.get("operationMetrics")),
        applications=actions.transactions,
    )


def _as_texts(values: Any) -> dict[str, str]:
    if not isinstance(values, Mapping):
        return {}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }


def last_actions(commits: Sequence[ReadCommit]) -> LaterActions:
    """The last action on each file that the commits touch.

    One commit never both adds and removes the same file with the same deletion vector.
    """
    later: dict[tuple[str, str | None], AddedFile | RemovedFile] = {}
    for commit in commits:
        for action in chain(commit.actions.removes, commit.actions.adds):
            key = (action.path, action.vector)
            later.pop(key, None)
            later[key] = action
    return later


def compacted_paths(commits: Iterable[ReadCommit]) -> set[str]:
    """Paths of files that replaced other files in commits without data change.

    Commits that only add existing files again do not count.
    """
    written: set[str] = set()
    for commit in commits:
        if any(not remove.data_change for remove in commit.actions.removes):
            written.update(add.path for add in commit.actions.adds if not add.data_change)
    return written


def data_files(
    adds: AddedColumns,
    partition_of: Callable[[TextPairs], PartitionValues],
    compacted: Set[str],
) -> list[DataFile]:
    """The files of these actions; `compacted` are the paths that compactions wrote."""
    # Only partitions in use are translated: others may belong to a former partitioning.
    partitions = {place: partition_of(adds.pairs[place]) for place in set(adds.places)}
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


def made_of_columns(kind: type[Made], count: int, **columns: Iterable[object]) -> list[Made]:
    """`count` values of a dataclass, with each field taken from its column.

    The class must have slots and no `__post_init__`, and every field must be given. The result is
    that of `[kind(a=a, b=b) for a, b in zip(...)]`, in a third of the time, because the constructor
    of a frozen dataclass calls a function for each field.
    """
    assert columns.keys() == set(kind.__slots__)  # type: ignore[attr-defined]
    assert not hasattr(kind, "__post_init__")
    values = list(map(object.__new__, repeat(kind, count)))
    for name, column in columns.items():
        deque(map(getattr(kind, name).__set__, values, column), maxlen=0)
    return values


def _untouched(checkpoint: Checkpoint, later: LaterActions) -> Iterator[AddedColumns]:
    """The checkpoint's files that no later commit touched. Removes them from the checkpoint."""
    touched = {path for path, _ in later}
    checkpoint.adds.reverse()
    while checkpoint.adds:
        adds = checkpoint.adds.pop()
        if touched.isdisjoint(adds.path):
            yield adds
        else:
            files = zip(adds.path, adds.vector, strict=True)
            yield adds.where(
                [path not in touched or (path, vector) not in later for path, vector in files]
            )


def _tombstones(
    checkpoint: Checkpoint, later: LaterActions, files: Sequence[DataFile]
) -> Sequence[Tombstone]:
    """One tombstone per removed path that no live file has, with its last deletion time.

    The log may remove a path several times: once for each deletion vector that it ever had.
    """
    removes = [
        *checkpoint.removes,
        removed_columns([action for action in later.values() if isinstance(action, RemovedFile)]),
    ]
    paths, times_ms, sizes = (
        [*chain.from_iterable(map(attrgetter(name), removes))]
        for name in ("path", "deleted_ms", "size_bytes")
    )
    last_ms = last_removals(paths, times_ms)
    if len(last_ms) < len(paths):
        size_of = dict(zip(paths, sizes, strict=True))
        sizes = [size_of[path] for path in last_ms]
    live = last_ms.keys() & map(attrgetter("path"), files)
    if live:
        sizes = [size for path, size in zip(last_ms, sizes, strict=True) if path not in live]
        for path in live:
            del last_ms[path]
    return made_of_columns(
        Tombstone,
        len(last_ms),
        path=last_ms,
        deleted_ms=last_ms.values(),
        size_bytes=sizes,
    )


def _removed_vectors(
    checkpoint: Checkpoint, commits: Sequence[ReadCommit], files: Sequence[DataFile]
) -> Mapping[str, int | None]:
    """The deletion vectors of removed files, with their last deletion time.

    When a file gets a new vector, the log removes it with the old one. Commits before the
    checkpoint count, too: the checkpoint dropped tombstones by the retention of its time, which may
    have been shorter than the current one.
    """
    removes = [
        *checkpoint.removes,
        removed_columns([remove for commit in commits for remove in commit.actions.removes]),
    ]
    vectors, times_ms = (
        [*chain.from_iterable(map(attrgetter(name), removes))] for name in ("vector", "deleted_ms")
    )
    last_ms = last_removals(vectors, times_ms)
    for vector in last_ms.keys() & {file.deletion_vector for file in files} if last_ms else ():
        del last_ms[vector]
    return last_ms
