"""Folds a checkpoint and commits into a snapshot.

The newest action for each file, application and domain wins. Path and deletion vector together
identify a file, because a DELETE with vectors removes a path and adds the same path again.
Source: PROTOCOL.md, "Action Reconciliation".
"""

import json
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple, cast

import pyarrow as pa

from lakehouse.delta.commits import Commit
from lakehouse.delta.file_columns import (
    DataFile,
    PartitionValues,
    Rows,
    Texts,
    Tombstone,
    TombstoneColumns,
)
from lakehouse.delta.log.actions import (
    Actions,
    AddedColumns,
    AddedFile,
    RemovedFile,
    TextPairs,
    append_removed,
)
from lakehouse.delta.log.checkpoint import Checkpoint, compute, integers
from lakehouse.delta.log.log_segment import Segment
from lakehouse.delta.log.metadata import shape_of
from lakehouse.delta.snapshot import LogTail, Snapshot, last_removals

# Arrow copies the paths that it searches for. Copies of all paths would take too much memory.
_PATHS_AT_ONCE = 500_000

# The last action on each file in the commits after a checkpoint, by path and deletion vector.
LaterActions = Mapping[tuple[str, str | None], AddedFile | RemovedFile]


class ReadCommit(NamedTuple):
    """A commit, and the actions of its file."""

    commit: Commit
    actions: Actions


def fold_layout(
    segment: Segment, checkpoint: Checkpoint, commits: Sequence[ReadCommit], *, uri: str
) -> Snapshot:
    """The table at the segment's version.

    `commits` are all commits of the segment, oldest first, including commits before the checkpoint.
    The snapshot uses the columns of `checkpoint` without a copy, and may add rows to them. In this
    module, a place is the index of an action in such columns.

    Raises:
        Refused: a file is partitioned differently from the table.
        Broken, Refused: as `shape_of`.
    """
    tail = commits[len(commits) - len(segment.tail) :]
    later = last_actions(tail)
    newest = Actions()
    for actions in (checkpoint.table_actions, *(each.actions for each in tail)):
        newest.merge_newer(actions)
    shape = shape_of(newest, table=segment.table, uri=uri, version=segment.version)
    adds = checkpoint.adds
    checkpoint_count = checkpoint.add_count
    touched_keys = keys_among(adds, {path for path, _ in later})
    replaced_places = {place for place, key in touched_keys.items() if key in later}
    # The newest commit comes first, the checkpoint last, as deltalake lists files: its compaction
    # merges neighbours in this order.
    for each in reversed(tail):
        for add in each.actions.adds:
            # A later commit may have removed the file, or added it again.
            if later[add.path, add.vector] is add:
                adds.append(add)
    places = array("q", range(checkpoint_count, len(adds)))
    places.extend(_without(checkpoint_count, replaced_places))
    files = data_files(adds, places, shape.partition_of, compacted_paths(commits))
    removed_vectors = _removed_vectors(checkpoint.removes, commits, files)
    committed_ms = commits[-1].commit.committed_ms if commits else segment.checkpoint[0].modified_ms
    return replace(
        shape.snapshot,
        committed_ms=committed_ms,
        files=files,
        tombstones=_tombstones(checkpoint.removes, later, files),
        removed_vectors=removed_vectors,
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
    committed_ms = modified_ms
    for time in (info.get("timestamp"), info.get("inCommitTimestamp")):
        if isinstance(time, int) and not isinstance(time, bool):
            committed_ms = time or modified_ms
    operation = info.get("operation")
    user_metadata = info.get("userMetadata")
    engine = info.get("engineInfo") or info.get("clientVersion")
    return Commit(
        version=version,
        committed_ms=committed_ms,
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
            later.pop(key, None)  # so that the file moves to the end of the order
            later[key] = action
    return later


def compacted_paths(commits: Iterable[ReadCommit]) -> set[str]:
    """Paths of files that replaced other files in commits without data change.

    Commits that only add existing files again do not count.
    """
    paths: set[str] = set()
    for commit in commits:
        if any(not remove.data_change for remove in commit.actions.removes):
            paths.update(add.path for add in commit.actions.adds if not add.data_change)
    return paths


def _without(count: int, dropped: Set[int]) -> Iterable[int]:
    """The places below `count` that are not in `dropped`, in ascending order."""
    bounds = [-1, *sorted(dropped), count]
    return chain.from_iterable(range(low + 1, high) for low, high in pairwise(bounds))


def data_files(
    adds: AddedColumns,
    places: Sequence[int],
    partition_of: Callable[[TextPairs], PartitionValues],
    compacted: Set[str],
) -> Rows[DataFile]:
    """The files of the `add` actions at these places.

    `compacted` are the paths of files that compactions wrote. Sets `adds.partitions` and
    `adds.compacted`.
    """
    # Only partitions in use are translated: others may belong to a former partitioning.
    used = set(map(adds.partition.__getitem__, places))
    adds.partitions = [
        partition_of(pairs) if index in used else () for index, pairs in enumerate(adds.pairs)
    ]
    adds.compacted = set(keys_among(adds, compacted))
    return Rows(adds, places)


def keys_among(adds: AddedColumns, paths: Iterable[str]) -> dict[int, tuple[str, str | None]]:
    """The path and deletion vector of each action on one of these paths, by place."""
    places = _places_of(adds.path, _as_array(_texts_of(paths)))
    vectors = (adds.vectors.get(place, (None, 0))[0] for place in places)
    return dict(zip(places, zip(adds.path.at(places), vectors, strict=True), strict=True))


def _places_of(texts: Texts, values: pa.Array) -> list[int]:
    """The places of the texts that are in `values`."""
    pc = compute()
    return pc.indices_nonzero(pc.is_in(_as_array(texts), value_set=values)).to_pylist()


def _texts_of(values: Iterable[str]) -> Texts:
    texts = Texts()
    for value in values:
        texts.append(value)
    return texts


def _as_array(texts: Texts) -> pa.Array:
    """The texts as an Arrow array, which shares their memory."""
    buffers = [None, pa.py_buffer(texts.bounds), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(texts.bounds) - 1, buffers)


def _tombstones(
    removes: TombstoneColumns, later: LaterActions, files: Rows[DataFile]
) -> Rows[Tombstone]:
    """One tombstone per removed path that no live file has, with its last deletion time.

    The time is unknown if any of the path's deletion times is unknown. The log may remove a path
    several times: once for each deletion vector that the file ever had. The removes in `later` are
    appended to `removes`.
    """
    checkpoint_count = len(removes.size_bytes)
    for action in later.values():
        if isinstance(action, RemovedFile):
            append_removed(removes, action)
    count = len(removes.size_bytes)
    if not count:
        return Rows(removes, ())
    added_paths = cast("AddedColumns", files.columns).path
    added_again = set[int]()
    for start in range(0, count, _PATHS_AT_ONCE):
        removed_paths = _as_array(removes.path).slice(start, _PATHS_AT_ONCE)
        added_again.update(_places_of(added_paths, removed_paths))
    live_paths = [added_paths[place] for place in added_again.intersection(files.places)]
    # An empty path names no file.
    dropped = {*_places_of(removes.path, _as_array(_texts_of(["", *live_paths])))}
    # Only a path with a deletion vector, or a path that later commits removed, can occur twice.
    candidates = integers([*removes.vectors, *range(checkpoint_count, count)])
    places_by_path = defaultdict[str, list[int]](list)
    for place in _places_of(removes.path, _as_array(removes.path).take(candidates)):
        places_by_path[removes.path[place]].append(place)
    for places in places_by_path.values():
        *earlier, last = places
        times = [tombstone.deleted_ms for tombstone in Rows(removes, places)]
        dropped.update(earlier)
        removes.deleted_ms[last] = -1 if None in times else max(cast("list[int]", times))
    return Rows(removes, array("q", _without(count, dropped)))


def _removed_vectors(
    removes: TombstoneColumns, commits: Sequence[ReadCommit], files: Rows[DataFile]
) -> Mapping[str, int | None]:
    """The deletion vectors of removed files that no live file has, with their last deletion time.

    When a file gets a new vector, the log removes the file with its old vector. Commits before the
    checkpoint count, too: the checkpoint omits tombstones that had expired, perhaps by a retention
    that was shorter than today's. `removes` are the checkpoint's tombstones only.
    """
    vectors: list[str | None] = [*removes.vectors.values()]
    times = [tombstone.deleted_ms for tombstone in Rows(removes, [*removes.vectors])]
    for commit in commits:
        vectors += [remove.vector for remove in commit.actions.removes]
        times += [remove.deleted_ms for remove in commit.actions.removes]
    last_ms = last_removals(vectors, times)
    if last_ms:
        added_vectors = cast("AddedColumns", files.columns).vectors
        for place in filter(added_vectors.__contains__, files.places):
            last_ms.pop(added_vectors[place][0], None)
    return last_ms
