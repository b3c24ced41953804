"""The whole log of a table, commit by commit, from the oldest version that can still be told.

That is the first commit where it is still there, otherwise the oldest checkpoint after which no commit is missing. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from lakehouse.core.delta.commit_files import FileCommit, FileHistory
from lakehouse.core.delta.snapshot import LogTail, Snapshot
from lakehouse.core.errors import Broken, Transient
from lakehouse.engine.delta_log.actions import Actions
from lakehouse.engine.delta_log.checkpoint import read_checkpoint
from lakehouse.engine.delta_log.columns import added_columns
from lakehouse.engine.delta_log.commits import read_commits
from lakehouse.engine.delta_log.fold import ReadCommit, data_files, fold_layout
from lakehouse.engine.delta_log.log_segment import LogChanged, Segment, commits_before, find_segment, until
from lakehouse.engine.delta_log.schema import CLUSTERING_DOMAIN, partitioner, shape_of
from lakehouse.engine.store import Store, StoredFile

# As far back as `read_facts` looks for who wrote a file.
_OLDER_COMMITS = 500


def read_file_history(store: Store, key: str, *, uri: str) -> FileHistory | None:
    """The story of the table in folder `key`, `None` where there is no table; `uri` is how Spark spells that folder.

    Raises:
        Broken: a commit is damaged or missing, and no checkpoint makes up for it.
        Refused: a table feature under which the log cannot be counted.
        Transient: the log was cleaned up while it was read.
    """
    folder = f"{key}/_delta_log/"
    listing = store.list(folder)
    try:
        newest = find_segment(listing, key, folder=folder, newest_commits=0)
        if newest is None:
            return None
        commits = commits_before(listing, newest.version + 1, folder=folder)
        first, start, teller = newest.version + 1 - len(commits), None, _CommitReader(key, uri)
        if first > 0:
            start = teller.start(store, _first_segment(listing, key, folder=folder, first=first), folder)
            commits = commits[start.version + 1 - first :]
        return FileHistory(table=key, start=start, commits=tuple(teller.commit(commit) for commit in read_commits(store, commits)))
    except LogChanged as error:
        raise Broken(f"{error}, so its story cannot be told: restore what is missing") from error
    except FileNotFoundError as error:
        raise Transient(f"log of {key}: it changed while it was read ({error}); try again") from error


def _first_segment(listing: Sequence[StoredFile], key: str, *, folder: str, first: int) -> Segment:
    """The oldest whole checkpoint that the commits from `first` on go on from."""
    names = [file.name.removeprefix(folder) for file in listing]
    versions = sorted({int(name[:20]) for name in names if name[:20].isdigit() and name[20:].startswith(".checkpoint")})
    for version in (number for number in versions if number >= first - 1):
        try:
            segment = find_segment(until(listing, version, folder=folder), key, folder=folder, newest_commits=_OLDER_COMMITS)
        except LogChanged:
            continue
        if segment is not None and segment.checkpoint_version == version:
            return segment
    raise LogChanged(f"log of {key}: the commits before version {first} are gone and no whole checkpoint stands for them")


class _CommitReader:
    """What a commit's actions mean, given the metaData, the protocol and the clustering before it."""

    def __init__(self, key: str, uri: str) -> None:
        self._key, self._uri = key, uri
        self._metadata: Mapping[str, Any] | None = None
        self._protocol: Mapping[str, Any] | None = None
        self._clustering: str | None = None
        self._compacted: set[str] = set()

    def start(self, store: Store, segment: Segment, folder: str) -> Snapshot:
        """The table at a checkpoint; what is told next follows it."""
        checkpoint = read_checkpoint([file.name for file in segment.checkpoint], store.read, folder=folder)
        snapshot = fold_layout(segment, checkpoint, list(read_commits(store, segment.older)), uri=self._uri)
        self._learn(checkpoint.small, segment.version)
        self._compacted = {file.path for file in snapshot.files if file.compacted}
        return snapshot

    def commit(self, read: ReadCommit) -> FileCommit:
        """One commit, told."""
        actions = read.actions
        if actions.metadata or actions.protocol or CLUSTERING_DOMAIN in actions.domains or read.version == 0:
            self._learn(actions, read.version)
        changed_data = any(action.data_change for action in chain(actions.adds, actions.removes))
        if any(not remove.data_change for remove in actions.removes):
            self._compacted.update(add.path for add in actions.adds if not add.data_change)
        return FileCommit(
            version=read.version,
            committed_ms=read.committed_ms,
            operation=actions.info.operation,
            changed_data=changed_data,
            added=tuple(data_files(added_columns(actions.adds), self._partition_of, self._compacted)),
            removed_paths=tuple(remove.path for remove in actions.removes),
            shape=replace(self._shape, version=read.version, committed_ms=read.committed_ms),
        )

    def _learn(self, actions: Actions, version: int) -> None:
        self._metadata, self._protocol = actions.metadata or self._metadata, actions.protocol or self._protocol
        self._clustering = actions.domains.get(CLUSTERING_DOMAIN, self._clustering)
        shape = shape_of(self._metadata, self._protocol, self._clustering, table=self._key, version=version)
        self._partition_of = partitioner(shape.metadata, table=self._key)
        self._shape = Snapshot(
            table=self._key,
            uri=self._uri,
            version=0,
            committed_ms=0,
            files=(),
            log=LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0),
            columns=shape.metadata.columns,
            partition_columns=shape.metadata.partition_columns,
            clustering_columns=shape.clustering_columns,
            properties=shape.metadata.properties,
            features=shape.features,
            table_id=shape.metadata.table_id,
        )
