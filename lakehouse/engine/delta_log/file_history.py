"""A table's history, commit by commit, from the oldest version that the log still describes.

The history begins with version 0 if the log still has all commits, otherwise with the oldest
complete checkpoint after which no commit is missing. Nothing is written.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from lakehouse.core.delta.file_columns import DataFile
from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.errors import Broken, Transient
from lakehouse.engine.delta_log.actions import Actions, AddedColumns
from lakehouse.engine.delta_log.checkpoint import read_checkpoint
from lakehouse.engine.delta_log.commits import read_commits
from lakehouse.engine.delta_log.fold import ReadCommit, compacted_paths, data_files, fold_layout
from lakehouse.engine.delta_log.log_segment import (
    LogChanged,
    Segment,
    UnreadableCheckpoint,
    find_segment,
    log_folder,
)
from lakehouse.engine.delta_log.metadata_and_protocol import CLUSTERING_DOMAIN, Shape, shape_of
from lakehouse.engine.store import Store, StoredFile

# If the history starts with a checkpoint, at most this many commits up to its version show which of
# its files compactions wrote. Equal to the default of `newest_commits` in `read_facts`, so that
# both mark the same files as compacted.
_OLDER_COMMITS = 500


def read_file_history(store: Store, key: str, *, uri: str) -> FileHistory | None:
    """The history of the table in folder `key`; `None` if there is no table.

    `uri` is Spark's spelling of the folder.

    Raises:
        Broken: a commit or the first checkpoint of the history is damaged, or commits are missing
            and no complete checkpoint replaces them.
        Refused: a table feature makes it impossible to count files from the log.
        Transient: the log was cleaned up while it was read.
    """
    listing = store.list(log_folder(key))
    try:
        newest = find_segment(listing, key, newest_commits=len(listing))
        if newest is None:
            return None
        files = newest.commits
        start = None
        table_actions = Actions()
        compacted = set[str]()
        first = newest.version + 1 - len(files)  # from this version on, no commit is missing
        if first > 0:
            segment = _first_segment(listing, key, first=first)
            checkpoint = read_checkpoint(store, segment)
            older_commits = list(read_commits(store, segment.older))
            start = fold_layout(segment, checkpoint, older_commits, uri=uri)
            files = files[start.version + 1 - first :]  # the commits after the checkpoint
            table_actions = checkpoint.table_actions
            compacted.update(file.path for file in start.files if file.compacted)
        commits = read_commits(store, files)
        file_commits = _file_commits(commits, table_actions, compacted, table=key, uri=uri)
        return FileHistory(table=key, start=start, commits=tuple(file_commits))
    except UnreadableCheckpoint as error:
        raise Broken(f"{error}. Restore or remove the file") from error
    except LogChanged as error:
        raise Broken(
            f"{error}, so its history cannot be read. Restore the missing files"
        ) from error
    except FileNotFoundError as error:
        raise Transient(
            f"log of {key}: it changed while it was read ({error}); try again"
        ) from error


def _first_segment(listing: Sequence[StoredFile], table: str, *, first: int) -> Segment:
    """The segment of the oldest complete checkpoint that needs no commit older than `first`.

    Raises `LogChanged` if there is none.
    """
    versions = set[int]()
    for file in listing:
        name = file.name.removeprefix(log_folder(table))
        if name[:20].isdigit() and name[20:].startswith(".checkpoint"):
            versions.add(int(name[:20]))
    for version in sorted(versions):
        if version < first - 1:
            continue
        try:
            segment = find_segment(listing, table, newest_commits=_OLDER_COMMITS, version=version)
        except LogChanged:
            continue
        if segment is not None and segment.checkpoint_version == version:
            return segment
    raise LogChanged(
        f"log of {table}: the commits before version {first} are gone, and no complete checkpoint "
        "replaces them"
    )


def _file_commits(
    commits: Iterable[ReadCommit],
    table_actions: Actions,
    compacted: set[str],
    *,
    table: str,
    uri: str,
) -> Iterator[FileCommit]:
    """Yields each commit, with the files that it added and removed.

    `table_actions` and `compacted` describe the table before the first commit. `table_actions` are
    the newest actions that are not about data files. `compacted` are the paths of the files that
    compactions wrote. Both are updated in place.
    """
    shape = None
    for read_commit in commits:
        commit, actions = read_commit
        table_actions.merge_newer(actions)
        has_new_clustering = CLUSTERING_DOMAIN in actions.domains
        if shape is None or actions.metadata or actions.protocol or has_new_clustering:
            shape = shape_of(table_actions, table=table, uri=uri, version=commit.version)
        compacted |= compacted_paths([read_commit])
        yield FileCommit(
            version=commit.version,
            committed_ms=commit.committed_ms,
            operation=commit.operation,
            changed_data=commit.changed_data,
            added=_added_files(actions, shape, compacted),
            removed_paths=commit.removed_paths,
            shape=replace(shape.snapshot, version=commit.version, committed_ms=commit.committed_ms),
        )


def _added_files(actions: Actions, shape: Shape, compacted: Set[str]) -> tuple[DataFile, ...]:
    columns = AddedColumns()
    for add in actions.adds:
        columns.append(add)
    # A DELETE with vectors adds a compacted file again, under the same path.
    compacted_here = {add.path for add in actions.adds if add.path in compacted}
    return tuple(data_files(columns, range(len(columns)), shape.partition_of, compacted_here))
