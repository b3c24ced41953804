"""Reads a version of a table from its log: its state and its history.

If the log changes meanwhile, it is read again (`log_segment.py` chooses the files).

A checkpoint is compared with other files of the log, to detect that it is incomplete. Only what
must be equal by definition is compared:

- `numOfAddFiles` in `_last_checkpoint` must be the number of the checkpoint's `add` actions.
- `numFiles` and `tableSizeBytes` in a version checksum must match the live files of that version.
- A checkpoint must hold each file that the commits before the checkpoint added and did not remove
  later. It must not hold a file that these commits removed and did not add again.

Figures in `_last_checkpoint` are ignored if it refers to a checkpoint of another version. As in
Delta, absent and negative figures and files that are not JSON are ignored.
Source: PROTOCOL.md, "Last Checkpoint File Schema", "Version Checksum File Schema".

The history begins with version 0 if the log still has all commits, otherwise with the oldest
checkpoint after which no commit is missing. Nothing is written.

`unreadable_files` compares the files of a version with the files in storage.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import unquote

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.paths import bare_uri, is_absolute, name_below, name_in_table, vector_path
from lakehouse.base.stored_objects import MUST_BE_RESTORED, total_bytes
from lakehouse.base.text import count_of
from lakehouse.delta.commits import Commits, json_object
from lakehouse.delta.log.actions import Actions, read_checkpoint
from lakehouse.delta.log.fold import (
    FileKey,
    ReadCommit,
    compacted_paths,
    data_files,
    fold_layout,
    key_of,
    last_actions,
    read_commits,
    shape_of,
)
from lakehouse.delta.log.log_segment import (
    CHECKPOINT_NAME,
    LogChanged,
    LogContradiction,
    Segment,
    find_segment,
    log_folder,
)
from lakehouse.delta.snapshot import (
    DataFile,
    FileCommit,
    FileHistory,
    Snapshot,
    TableFacts,
    files_with_vectors,
    log_version,
)
from lakehouse.store import Store, StoredFile

Result = TypeVar("Result")
_TRIES = 5
# At most this many commits are in a history and, if a file history starts with a checkpoint, show
# which files of the checkpoint compactions wrote.
NEWEST_COMMITS = 500


def read_facts(
    store: Store, key: str, *, uri: str, version: int | None = None
) -> TableFacts | None:
    """The facts of the table in folder `key`; `None` if there is no table.

    `uri` is the folder's URI as Spark spells it. `version` requests the facts at an older version.

    The history holds at most `NEWEST_COMMITS` commits, and none before a missing commit file.
    `DataFile.compacted` is derived from these commits and the commits after the checkpoint. Code
    that decides about rows uses `history_since` or `newest_first`, which have no such limit.

    Raises:
        Broken: a commit or checkpoint that is read is damaged or missing. The cause is a
            `LogContradiction` if the checkpoint cannot be read, or contradicts other files.
        Refused: a feature of the table makes it impossible to count files from the log, or the log
            cannot describe `version` (any more, or yet).
        Transient: the log changed during every attempt to read it.
    """

    def read(listing: Sequence[StoredFile]) -> TableFacts | None:
        segment = find_segment(listing, key, newest_commits=NEWEST_COMMITS, version=version)
        if segment is None:
            return None
        if version not in (None, segment.version):
            raise LogChanged(f"log of {key}: it reaches only version {segment.version}")
        return _read(store, segment, uri=uri)

    return _consistent(store, key, read, version=version)


def _consistent(
    store: Store,
    key: str,
    read: Callable[[Sequence[StoredFile]], Result],
    *,
    version: int | None = None,
) -> Result:
    """What `read` makes of the listing of a log, which is read again if it changes meanwhile.

    Raises as `read_facts`.
    """
    problem: Exception | None = None
    for _ in range(_TRIES):
        listing = store.list(log_folder(key))
        try:
            with garbage_uncollected():
                return read(listing)
        except LogContradiction as error:
            # The same contradiction in two readings is not due to a concurrent change.
            if str(error) == str(problem):
                removal = f", or remove {error.suspect} if the rest of the log is complete"
                raise Broken(
                    f"{error}. Restore the log from a backup{removal if error.suspect else ''}"
                ) from error
            problem = error
        except (LogChanged, FileNotFoundError) as error:
            problem = error
    if not isinstance(problem, LogChanged):
        raise Transient(
            f"log of {key}: it changed {_TRIES} times while it was read ({problem}); try again"
        ) from problem
    if version is not None:
        raise Refused(
            f"{problem}, so version {version} cannot be read. Use a version that the log still "
            "describes"
        ) from problem
    raise Broken(
        f"{problem}, so the table cannot be read. Restore the missing log files"
    ) from problem


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Pauses Python's garbage collector, which would repeatedly visit a million live values."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(store: Store, segment: Segment, *, uri: str) -> TableFacts:
    commits = list(read_commits(store, segment.commits))
    checkpoint = read_checkpoint(store, segment)
    if segment.pointer is not None:
        _check_pointer(segment, checkpoint, json_object(store.read(segment.pointer.name)))
    if segment.checkpoint:
        _check_older_commits(segment, checkpoint, commits[: len(segment.older)])
    snapshot = fold_layout(segment, checkpoint, commits, uri=uri)
    if segment.checksum is not None:
        is_newest = log_version(segment.checksum.name) == segment.version
        files = snapshot.files if is_newest else checkpoint.adds
        checksum = json_object(store.read(segment.checksum.name))
        _check_checksum(segment, segment.checksum, files, checksum)
    history = tuple(each.commit for each in commits[-NEWEST_COMMITS:])
    return TableFacts(
        newest=segment.newest,
        snapshot=snapshot,
        history=Commits(table=segment.table, commits=history),
    )


def _check_pointer(segment: Segment, checkpoint: Actions, pointer: Mapping[str, Any]) -> None:
    """Compares `_last_checkpoint` with the log and, if it names this one, with the checkpoint."""
    version = _count(pointer, "version")
    if version is not None and version > segment.version:
        raise LogChanged(
            f"log of {segment.table}: its _last_checkpoint names version {version}, but the log "
            f"reaches only version {segment.version}"
        )
    if version is None or version != segment.checkpoint_version:
        return
    add_count = len(checkpoint.adds)
    recorded = _count(pointer, "numOfAddFiles")
    if recorded not in (None, add_count):
        raise LogContradiction(
            f"log of {segment.table}: its checkpoint {segment.checkpoint[0].name} holds "
            f"{count_of(add_count, 'file')}, but numOfAddFiles in _last_checkpoint is {recorded}",
            suspect="_last_checkpoint",
        )


def _check_checksum(
    segment: Segment, file: StoredFile, files: Sequence[DataFile], checksum: Mapping[str, Any]
) -> None:
    """Compares a checksum with the files of its version."""
    figures = {"numFiles": len(files), "tableSizeBytes": total_bytes(files)}
    source = "its commits"
    if segment.checkpoint:
        source = f"its checkpoint {segment.checkpoint[0].name} and commits"
    for name, actual in figures.items():
        recorded = _count(checksum, name)
        if recorded not in (None, actual):
            unit = "file" if name == "numFiles" else "byte"
            raise LogContradiction(
                f"log of {segment.table}: {count_of(actual, unit)} at version "
                f"{log_version(file.name)}, according to {source}, but {name} in "
                f"{file.name} is {recorded}",
                suspect=file.name,
            )


def _check_older_commits(
    segment: Segment, checkpoint: Actions, older: Sequence[ReadCommit]
) -> None:
    """Compares the commits before the checkpoint with the checkpoint.

    The last action on a file decides whether the checkpoint must hold the file.
    """
    last = last_actions(older)
    if not last:
        return
    touched_paths = {path for path, _ in last}
    adds = checkpoint.adds
    in_checkpoint = {key_of(add) for add in adds if add.path in touched_paths}
    added = {key for key, action in last.items() if isinstance(action, DataFile)}
    missing = added - in_checkpoint
    if missing:  # rare: a checkpoint may spell a path differently from the commit
        canonical_keys = {_canonical_key(key_of(add)) for add in adds}
        missing = {key for key in missing if _canonical_key(key) not in canonical_keys}
    first = older[0].commit.version
    final = older[-1].commit.version
    name = segment.checkpoint[0].name
    if missing:
        raise LogContradiction(
            f"log of {segment.table}: its checkpoint {name} holds {len(added) - len(missing)} of "
            f"the {len(added)} files that the commits {first} to {final} added and did not remove "
            f"later. It lacks, for example, {min(path for path, _ in missing)}"
        )
    added_canonical = {_canonical_key(key) for key in added}
    removed_keys = last.keys() - added
    candidates = removed_keys & in_checkpoint
    removed = {key for key in candidates if _canonical_key(key) not in added_canonical}
    if removed:
        raise LogContradiction(
            f"log of {segment.table}: its checkpoint {name} holds {count_of(len(removed), 'file')} "
            f"that the commits {first} to {final} removed and did not add again, for example "
            f"{min(path for path, _ in removed)}"
        )


def _canonical_key(key: FileKey) -> FileKey:
    """The key with its path in a canonical form, because Delta normalizes paths in checkpoints.

    Source: Snapshot.scala, canonicalizePath.
    """
    path, vector = key
    return name_in_table(path) or bare_uri(unquote(path)), vector


def _count(figures: Mapping[str, Any], name: str) -> int | None:
    """A non-negative integer, or `None`; Delta writes -1 for an unknown `size`."""
    value = figures.get(name)
    return value if type(value) is int and value >= 0 else None


def read_file_history(store: Store, key: str, *, uri: str) -> FileHistory | None:
    """The history of the table in folder `key`; `None` if there is no table.

    `uri` is Spark's spelling of the folder. Raises as `read_facts`.
    """

    def read(listing: Sequence[StoredFile]) -> FileHistory | None:
        newest = find_segment(listing, key, newest_commits=len(listing))
        if newest is None:
            return None
        files = newest.commits
        start = None
        table_actions = Actions()
        compacted = set[str]()
        first = newest.version + 1 - len(files)  # from this version on, no commit is missing
        if first > 0:
            segment = _first_checkpoint(listing, key, first=first)
            table_actions = read_checkpoint(store, segment)
            older_commits = list(read_commits(store, segment.older))
            start = fold_layout(segment, table_actions, older_commits, uri=uri)
            files = files[start.version + 1 - first :]  # the commits after the checkpoint
            compacted.update(file.path for file in start.files if file.compacted)
        shape = None
        file_commits = list[FileCommit]()
        for read_commit in read_commits(store, files):
            commit, actions = read_commit
            table_actions.merge_newer(actions)
            if shape is None or actions.metadata or actions.protocol or actions.domains:
                shape = shape_of(table_actions, table=key, uri=uri, version=commit.version)
            compacted |= compacted_paths([read_commit])
            file_commit = FileCommit(
                **{each.name: getattr(commit, each.name) for each in fields(commit)},
                added=data_files(actions.adds, shape, compacted),
                shape=replace(shape, version=commit.version, committed_ms=commit.committed_ms),
            )
            file_commits.append(file_commit)
        return FileHistory(table=key, start=start, commits=tuple(file_commits))

    return _consistent(store, key, read)


def _first_checkpoint(listing: Sequence[StoredFile], table: str, *, first: int) -> Segment:
    """The segment of the oldest checkpoint that needs no commit older than `first`.

    Raises `LogChanged` if the checkpoint is incomplete.
    """
    folder = log_folder(table)
    names = [file.name.removeprefix(folder) for file in listing]
    versions = [log_version(name) for name in names if CHECKPOINT_NAME.fullmatch(name)]
    version = min(number for number in versions if number >= first - 1)
    segment = find_segment(listing, table, newest_commits=NEWEST_COMMITS, version=version)
    assert segment is not None
    return segment


def unreadable_files(store: Store, snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The live files that are missing in storage, and those with an archive storage class.

    Names are decoded, relative to the table and sorted. An archived file may have been restored,
    which the listing does not show.

    The table's folder is listed once, after the log was read. A file that a commit removes between
    the two is not missing, since it stays in storage until a vacuum after the retention.

    Raises:
        Refused: a file lies outside the table's folder, as in a shallow clone.
    """
    stored = {file.name: file.storage_class for file in store.list(snapshot.table)}
    names = sorted(live_names(snapshot))
    classes = {name: stored.get(f"{snapshot.table}/{name}") for name in names}
    missing = [name for name, kind in classes.items() if kind is None]
    archived = [name for name, kind in classes.items() if kind in MUST_BE_RESTORED]
    return missing, archived


def live_names(snapshot: Snapshot) -> set[str]:
    """The files that a version needs: decoded names in the table's folder.

    Raises:
        Refused: a file lies outside the table's folder, as in a shallow clone.
    """
    paths = {file.path for file in snapshot.files}
    vectors = {file.deletion_vector for file in files_with_vectors(snapshot.files)}
    # An inline deletion vector has no file.
    paths.update(filter(None, map(vector_path, filter(None, vectors))))
    names = set[str]()
    for path in paths:
        uri = unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"
        name = name_in_table(path) or name_below(uri, snapshot.uri)
        if name is None:
            raise Refused(
                f"files of {snapshot.table}: {path} lies outside the table's folder "
                f"{snapshot.uri}. Use a table whose files are all in its folder"
            )
        names.add(name)
    return names
