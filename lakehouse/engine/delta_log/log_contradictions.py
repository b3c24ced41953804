"""Compares a log's checkpoint with other files of the log, to detect an incomplete checkpoint.

Only what must be equal by definition is compared:

- `numOfAddFiles` in `_last_checkpoint` must be the number of the checkpoint's `add` actions.
- `size` in `_last_checkpoint` must be the number of all the checkpoint's actions. Two other numbers
  are accepted, too: the number of `add` actions, which Delta Kernel (Java) writes, and the number
  of bytes, which delta-rs wrote in 2022.
- `parts` and `sizeInBytes` in `_last_checkpoint` must be the number and the total size of the
  checkpoint's files.
- `numFiles` and `tableSizeBytes` in a version checksum must match the live files of that version.
- A checkpoint must hold each file that the commits before the checkpoint added and did not remove
  later. It must not hold a file that these commits removed and did not add again.

Figures in `_last_checkpoint` are ignored if it refers to a checkpoint of another version. For a V2
checkpoint, only `numOfAddFiles` is compared, because writers disagree on whether the checkpoint's
own metadata counts. The same holds if the version has two checkpoints, because the other figures
may describe the second checkpoint. As in Delta, absent and negative figures and files that are not
JSON are ignored.
Source: PROTOCOL.md, "Last Checkpoint File Schema", "Version Checksum File Schema"; delta-io/delta,
Checkpoints.scala and Checkpointer.java; delta-rs, checkpoints.rs; delta-kernel-rs,
checkpoint/mod.rs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from lakehouse.core.delta.paths import bare_uri, name_in_table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.text import count_of
from lakehouse.engine.delta_log.actions import AddedFile
from lakehouse.engine.delta_log.checkpoint import Checkpoint
from lakehouse.engine.delta_log.fold import ReadCommit, keys_among, last_actions
from lakehouse.engine.delta_log.log_segment import LogChanged, LogContradiction, Segment
from lakehouse.engine.store import Store, StoredFile

FileKey = tuple[str, str | None]


def refuse_contradictions(
    store: Store,
    segment: Segment,
    checkpoint: Checkpoint,
    commits: Sequence[ReadCommit],
) -> None:
    """Compares a checkpoint with `_last_checkpoint`, the commits before it, and its checksum.

    `commits` are all commits of the segment, oldest first.

    Raises:
        LogContradiction: two figures or sets of files that must be equal differ.
        LogChanged: `_last_checkpoint` names a version that the log does not reach. This is not
            checked if an older version was requested.
    """
    if segment.pointer is not None:
        _check_pointer(segment, checkpoint, _json_in(store, segment.pointer))
    if segment.checkpoint:
        _check_older_commits(segment, checkpoint, commits[: len(segment.older)])
    # `refuse_wrong_totals` compares a checksum of the segment's version.
    is_of_checkpoint = segment.checksum_version != segment.version
    if segment.checksum is not None and is_of_checkpoint:
        size_bytes = sum(checkpoint.adds.size_bytes)
        figures = {"numFiles": checkpoint.add_count, "tableSizeBytes": size_bytes}
        _check_checksum(segment, figures, _json_in(store, segment.checksum))


def refuse_wrong_totals(store: Store, segment: Segment, snapshot: Snapshot) -> None:
    """Compares the snapshot with the checksum of its version, if there is one.

    Raises:
        LogContradiction: two figures that must be equal differ.
    """
    if segment.checksum is not None and segment.checksum_version == segment.version:
        figures = {"numFiles": snapshot.file_count, "tableSizeBytes": snapshot.size_bytes}
        _check_checksum(segment, figures, _json_in(store, segment.checksum))


def _check_pointer(segment: Segment, checkpoint: Checkpoint, pointer: Mapping[str, Any]) -> None:
    version = _count(pointer, "version")
    if version is not None and version > segment.version and not segment.is_older:
        raise LogChanged(
            f"log of {segment.table}: its _last_checkpoint names version {version}, but the log "
            f"reaches only version {segment.version}"
        )
    if version is None or version != segment.checkpoint_version:
        return
    add_count = checkpoint.add_count
    recorded = _count(pointer, "numOfAddFiles")
    if recorded not in (None, add_count):
        files = count_of(add_count, "file")
        raise _contradiction(segment, files, f"numOfAddFiles in _last_checkpoint is {recorded}")
    if segment.has_twin or segment.is_v2 or checkpoint.table_actions.sidecars:
        return
    size_bytes = sum(file.size_bytes for file in segment.checkpoint)
    recorded = _count(pointer, "size")
    if recorded not in (None, checkpoint.row_count, add_count, size_bytes):
        actions = count_of(checkpoint.row_count, "action")
        raise _contradiction(segment, actions, f"size in _last_checkpoint is {recorded}")
    recorded = _count(pointer, "parts")
    if recorded not in (None, len(segment.checkpoint)):
        parts = count_of(len(segment.checkpoint), "part")
        raise _contradiction(segment, parts, f"parts in _last_checkpoint is {recorded}")
    recorded = _count(pointer, "sizeInBytes")
    if recorded not in (None, size_bytes):
        sizes = f"sizeInBytes in _last_checkpoint is {recorded}"
        raise _contradiction(segment, f"{size_bytes} bytes", sizes)


def _contradiction(segment: Segment, content: str, record: str) -> LogContradiction:
    return LogContradiction(
        f"log of {segment.table}: its checkpoint {segment.checkpoint[0].name} holds {content}, but "
        f"{record}",
        evidence="_last_checkpoint",
    )


def _check_checksum(
    segment: Segment, figures: Mapping[str, int], checksum: Mapping[str, Any]
) -> None:
    """Compares a checksum with the figures of its version."""
    assert segment.checksum is not None
    source = "its commits"
    if segment.checkpoint:
        source = f"its checkpoint {segment.checkpoint[0].name} and commits"
    for name, actual in figures.items():
        recorded = _count(checksum, name)
        if recorded not in (None, actual):
            unit = "file" if name == "numFiles" else "byte"
            raise LogContradiction(
                f"log of {segment.table}: {count_of(actual, unit)} at version "
                f"{segment.checksum_version}, according to {source}, but {name} in "
                f"{segment.checksum.name} is {recorded}",
                evidence=segment.checksum.name,
            )


def _check_older_commits(
    segment: Segment, checkpoint: Checkpoint, older: Sequence[ReadCommit]
) -> None:
    """Compares the commits before the checkpoint with the checkpoint.

    The last action on a file decides whether the checkpoint must hold the file.
    """
    last = last_actions(older)
    if not last:
        return
    touched_paths = {path for path, _ in last}
    in_checkpoint = set(keys_among(checkpoint.adds, touched_paths).values())
    added = {key for key, action in last.items() if isinstance(action, AddedFile)}
    missing = added - in_checkpoint
    if missing:  # rare: a checkpoint may spell a path differently from the commit
        canonical_keys = {*_canonical_keys(checkpoint)}
        missing = {key for key in missing if _canonical_key(key) not in canonical_keys}
    first = older[0].commit.version
    final = older[-1].commit.version
    name = segment.checkpoint[0].name
    if missing:
        raise LogContradiction(
            f"log of {segment.table}: its checkpoint {name} holds {len(added) - len(missing)} of "
            f"the {len(added)} files that the commits {first} to {final} added and did not remove "
            f"later. It lacks, for example, {min(path for path, _ in missing)}",
            evidence="",
        )
    added_canonical = {_canonical_key(key) for key in added}
    removed_keys = last.keys() - added
    candidates = removed_keys & in_checkpoint
    removed = {key for key in candidates if _canonical_key(key) not in added_canonical}
    if removed:
        raise LogContradiction(
            f"log of {segment.table}: its checkpoint {name} holds {count_of(len(removed), 'file')} "
            f"that the commits {first} to {final} removed and did not add again, for example "
            f"{min(path for path, _ in removed)}",
            evidence="",
        )


def _canonical_keys(checkpoint: Checkpoint) -> Iterator[FileKey]:
    adds = checkpoint.adds
    for index, path in enumerate(adds.path.at(range(len(adds)))):
        vector, _ = adds.vectors.get(index, (None, 0))
        yield _canonical_key((path, vector))


def _canonical_key(key: FileKey) -> FileKey:
    """The key with its path in a canonical form, because Delta normalizes paths in checkpoints.

    Source: Snapshot.scala, canonicalizePath.
    """
    path, vector = key
    return name_in_table(path) or bare_uri(unquote(path)), vector


def _json_in(store: Store, file: StoredFile) -> Mapping[str, Any]:
    try:
        document = json.loads(store.read(file.name))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _count(figures: Mapping[str, Any], name: str) -> int | None:
    """A non-negative integer, or `None`; Delta writes -1 for an unknown `size`."""
    value = figures.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None
