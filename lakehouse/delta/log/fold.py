"""Reads commits, and folds a checkpoint and commits into a snapshot.

The newest metaData, protocol and clustering give the shape of the table (`shape_of`).

The newest action for each file, application and domain wins. Path and deletion vector together
identify a file, because a DELETE with vectors removes a path and adds the same path again.
Source: PROTOCOL.md, "Action Reconciliation".

Parsed commits are cached per store, up to a limit. `TableFacts` hold only the newest commits, so
that a table with a long log can be read quickly. No decision may depend on how many they hold: code
that asks what happened since a version, or whether something ever happened, uses `newest_first` or
`history_since`.

**Safety properties** (tests in `test_kept_commits.py`)
- A cached commit is used only for a file with the same name, size and time, and the same etag if
  the storage has etags.
- Without etags, a file is cached only if it is older than the resolution of the storage's clock.
  Otherwise, if the table is recreated, a new file may have the same name, time and size.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.stored_objects import total_bytes
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.log.actions import (
    MALFORMED,
    Actions,
    flag,
    number,
    pairs,
    parse_actions,
    text,
    texts,
)
from lakehouse.delta.log.log_segment import COMMIT_NAME, Segment, log_folder
from lakehouse.delta.protocol import CATALOG_FEATURES, COUNTABLE
from lakehouse.delta.snapshot import (
    Column,
    DataFile,
    LogTail,
    PartitionValues,
    Snapshot,
    Tombstone,
    last_removals,
    log_version,
)
from lakehouse.store import Store, StoredFile

# Source: PROTOCOL.md, "Clustered Table"
CLUSTERING_DOMAIN = "delta.clustering"

# Writer versions, and the features that each of them added before features had names.
# Source: PROTOCOL.md, "Valid Feature Names in Table Features".
_IMPLIED_BY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_READER_WITH_FEATURES = 3
_WRITER_WITH_FEATURES = 7
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

# Path and deletion vector.
FileKey = tuple[str, str | None]
# The last action on each file in the commits after a checkpoint.
LaterActions = Mapping[FileKey, DataFile | Tombstone]


class ReadCommit(NamedTuple):
    """A commit, and the actions of its file."""

    commit: Commit
    actions: Actions


def fold_layout(
    segment: Segment, checkpoint: Actions, commits: Sequence[ReadCommit], *, uri: str
) -> Snapshot:
    """The table at the segment's version.

    `commits` are all commits of the segment, oldest first, including commits before the checkpoint.

    Raises:
        Refused: a file is partitioned differently from the table.
        Broken, Refused: as `shape_of`.
    """
    tail = commits[len(commits) - len(segment.tail) :]
    later = last_actions(tail)
    newest = Actions()
    for actions in (checkpoint, *(each.actions for each in tail)):
        newest.merge_newer(actions)
    shape = shape_of(newest, table=segment.table, uri=uri, version=segment.version)
    # The newest commit comes first, the checkpoint last, as deltalake lists files: its compaction
    # merges neighbours in this order.
    adds = list[DataFile]()
    for each in reversed(tail):
        # A later commit may have removed the file, or added it again.
        adds += [add for add in each.actions.adds if later[key_of(add)] is add]
    touched_paths = {path for path, _ in later}
    adds += [
        add for add in checkpoint.adds if add.path not in touched_paths or key_of(add) not in later
    ]
    files = data_files(adds, shape, compacted_paths(commits))
    removes = [*checkpoint.removes]
    removes += [each for each in later.values() if isinstance(each, Tombstone)]
    committed_ms = commits[-1].commit.committed_ms if commits else segment.checkpoint[0].modified_ms
    return replace(
        shape,
        committed_ms=committed_ms,
        files=files,
        tombstones=_tombstones(removes, files),
        removed_vectors=_removed_vectors(removes, files),
        log=LogTail(
            checkpoint_version=segment.checkpoint_version,
            commit_count=len(segment.tail),
            commit_bytes=total_bytes(segment.tail),
        ),
        transactions=newest.transactions,
    )


def fold_commit(actions: Actions, file: StoredFile) -> Commit:
    """A commit from the actions of its file.

    Its time is the in-commit timestamp, else the timestamp of commitInfo, else that of the file.
    Writers may put anything into commitInfo, so a value of an unexpected type counts as missing.
    """
    info = actions.info
    committed_ms = file.modified_ms
    for time in (info.get("timestamp"), info.get("inCommitTimestamp")):
        if type(time) is int:
            committed_ms = time or file.modified_ms
    texts = {name: value for name, value in info.items() if isinstance(value, str)}
    return Commit(
        version=log_version(file.name),
        committed_ms=committed_ms,
        operation=texts.get("operation", "UNKNOWN"),
        engine=texts.get("engineInfo") or texts.get("clientVersion", ""),
        changed_data=actions.changed_data,
        added_paths=tuple(add.path for add in actions.adds),
        removed_paths=tuple(remove.path for remove in actions.removes),
        removed_vectors=tuple(
            remove.deletion_vector
            for remove in actions.removes
            if remove.deletion_vector is not None
        ),
        change_paths=tuple(actions.changes),
        added_bytes=total_bytes(actions.adds),
        removed_bytes=sum(remove.size_bytes or 0 for remove in actions.removes),
        user_metadata=texts.get("userMetadata"),
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
    later: dict[FileKey, DataFile | Tombstone] = {}
    for commit in commits:
        for action in chain(commit.actions.removes, commit.actions.adds):
            key = key_of(action)
            later.pop(key, None)  # so that the file moves to the end of the order
            later[key] = action
    return later


def key_of(action: DataFile | Tombstone) -> FileKey:
    """The path and deletion vector of an action, which together identify a file."""
    return action.path, action.deletion_vector


def compacted_paths(commits: Iterable[ReadCommit]) -> set[str]:
    """Paths of files that replaced other files in commits without data change."""
    paths: set[str] = set()
    for commit, _ in commits:
        if commit.is_rewrite:
            paths.update(commit.added_paths)
    return paths


def data_files(
    adds: Sequence[DataFile], shape: Snapshot, compacted: Set[str]
) -> tuple[DataFile, ...]:
    """The added files, in a table of this shape.

    `compacted` are the paths of files that compactions wrote.
    """
    # By identity, since many files share one tuple of values. Only other values are translated.
    partitions = {id(add.partition): add.partition for add in adds}
    translated = {identity: partition_of(each, shape) for identity, each in partitions.items()}
    files = list[DataFile]()
    for add in adds:
        partition = translated[id(add.partition)]
        is_compacted = add.path in compacted
        if is_compacted or partition != add.partition:
            files.append(replace(add, partition=partition, compacted=is_compacted))
        else:
            files.append(add)
    return tuple(files)


def _tombstones(removes: Sequence[Tombstone], files: Sequence[DataFile]) -> tuple[Tombstone, ...]:
    """One tombstone per removed path that no live file has, with its last deletion time.

    The time is unknown if any of the path's deletion times is unknown. The log may remove a path
    several times: once for each deletion vector that the file ever had.
    """
    last = {stone.path: stone for stone in removes if stone.path}
    if len(last) < len(removes):
        paths = [each.path for each in removes]
        times = last_removals(paths, [each.deleted_ms for each in removes])
        last = {path: replace(stone, deleted_ms=times[path]) for path, stone in last.items()}
    for path in [file.path for file in files if file.path in last]:
        del last[path]
    return tuple(last.values())


def _removed_vectors(
    removes: Sequence[Tombstone], files: Sequence[DataFile]
) -> Mapping[str, int | None]:
    """The deletion vectors of removed files that no live file has, with their last deletion time.

    When a file gets a new vector, the log removes the file with its old vector.
    """
    live_vectors = {file.deletion_vector for file in files}
    gone = [each for each in removes if each.deletion_vector not in live_vectors]
    return last_removals(
        [each.deletion_vector for each in gone], [each.deleted_ms for each in gone]
    )


def shape_of(newest: Actions, *, table: str, uri: str, version: int) -> Snapshot:
    """A table's snapshot, still without files and commit time, from the newest actions.

    Raises:
        Broken: metadata or protocol is missing, or a required field is missing or invalid.
        Refused: a table feature or the reader version makes it impossible to count files from the
            log.
    """
    metadata = newest.metadata
    protocol = newest.protocol
    if metadata is None or protocol is None:
        missing = "protocol" if protocol is None else "metaData"
        raise Broken(
            f"log of {table}: it has no {missing} at version {version}, so its first commit or its "
            "checkpoint is damaged. Restore that file"
        )
    with _readable("metaData", table=table, version=version):
        fields: list[Mapping[str, Any]] = json.loads(text(metadata, "schemaString"))["fields"]
        columns = tuple(_column(field) for field in fields)
        partition_columns = _partition_columns(metadata, columns)
        properties = _without_nulls(dict(pairs(metadata, "configuration")))
        physical_names = dict[str, str]()
        if properties.get("delta.columnMapping.mode", "none") != "none":
            physical_names.update(map(_physical_name, fields))
        table_id = text(metadata, "id")
    with _readable("protocol", table=table, version=version):
        features = _features(protocol, table=table)
    with _readable("clustering", table=table, version=version):
        domain = newest.domains.get(CLUSTERING_DOMAIN)
        clustering_columns = _clustering(domain, physical_names)
    definition = {"protocol": _without_nulls(protocol), "metaData": _without_nulls(metadata)}
    return Snapshot(
        table=table,
        uri=uri,
        version=version,
        columns=columns,
        partition_columns=partition_columns,
        clustering_columns=clustering_columns,
        physical_names=physical_names,
        properties=properties,
        features=features,
        table_id=table_id,
        definition=definition,
    )


@contextmanager
def _readable(kind: str, *, table: str, version: int) -> Iterator[None]:
    """Turns an error in this part of a log into `Broken`."""
    try:
        yield
    except MALFORMED as error:
        raise Broken(
            f"log of {table}: its {kind} at version {version} cannot be read "
            f"({type(error).__name__}: {error}). Restore the commit or "
            f"checkpoint that contains the {kind}"
        ) from error


def _partition_columns(metadata: Mapping[str, Any], columns: Sequence[Column]) -> tuple[str, ...]:
    names = texts(metadata, "partitionColumns")
    unknown = [name for name in names if name not in {column.name for column in columns}]
    if unknown:
        raise ValueError(
            f"partitionColumns has {unknown[0]!r}, which is not a column of schemaString"
        )
    return names


def _features(protocol: Mapping[str, Any], *, table: str) -> frozenset[str]:
    """All table features, including the features that an old protocol version implies."""
    reader = number(protocol, "minReaderVersion")
    writer = number(protocol, "minWriterVersion")
    read = _feature_names(protocol, "readerFeatures", is_required=reader == _READER_WITH_FEATURES)
    written = _feature_names(
        protocol, "writerFeatures", is_required=writer == _WRITER_WITH_FEATURES
    )
    remedy = (
        "Use a table with reader version 1 to 3 and without reader features other than "
        f"{', '.join(sorted(COUNTABLE))}"
    )
    catalog = sorted((read | written).intersection(CATALOG_FEATURES))
    if catalog:
        raise Refused(
            f"log of {table}: table feature {catalog[0]} is not supported, since only a catalog or "
            f"coordinator may know the newest commits. {remedy}"
        )
    if reader > _READER_WITH_FEATURES or read - COUNTABLE:
        unknown = ", ".join(sorted(read - COUNTABLE))
        requirement = f"table feature {unknown}" if unknown else f"reader version {reader}"
        raise Refused(
            f"log of {table}: this program does not support {requirement}, so the table's files "
            f"cannot be counted reliably. {remedy}"
        )
    implied = set[str]()
    if writer < _WRITER_WITH_FEATURES:
        for version, names in _IMPLIED_BY_WRITER.items():
            if version <= writer:
                implied.update(names)
    return read | written | implied


def _feature_names(protocol: Mapping[str, Any], name: str, *, is_required: bool) -> frozenset[str]:
    if is_required or protocol.get(name) is not None:
        return frozenset(texts(protocol, name))
    return frozenset()


def _clustering(domain: str | None, physical: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of liquid clustering. A nested field has its full path, joined by dots.

    With column mapping, only the first name of a path is translated to the logical name.
    """
    paths = [] if domain is None else json.loads(domain)["clusteringColumns"]
    named = [texts({"clusteringColumns": path}, "clusteringColumns") for path in paths]
    logical = {physical_name: name for name, physical_name in physical.items()}
    return tuple(".".join([logical.get(first, first), *rest]) for first, *rest in named)


def partition_of(pairs: PartitionValues, shape: Snapshot) -> PartitionValues:
    """The partition of a `DataFile` whose action has these partition values.

    Under column mapping, actions name columns by their physical names. A missing value is null, as
    in Delta, which looks values up in a map.
    Source: PROTOCOL.md, "Column Mapping" and "Partition Value Serialization".
    """
    values = dict(pairs)
    physical_names = [shape.physical_names.get(name, name) for name in shape.partition_columns]
    if values.keys() - {*physical_names}:
        of_file = ", ".join(values) or "nothing"
        of_table = ", ".join(physical_names) or "nothing"
        raise Refused(
            f"log of {shape.table}: a file is partitioned by {of_file}, the table by "
            f"{of_table}. Restore the commit that adds the file, or rewrite the file under "
            "the table's partitioning"
        )
    return tuple(zip(shape.partition_columns, map(values.get, physical_names), strict=True))


def _column(field: Mapping[str, Any]) -> Column:
    comment = (field.get("metadata") or {}).get("comment")
    return Column(
        name=text(field, "name"),
        type=_spark_type(field["type"]),
        nullable=flag({"nullable": True, **field}, "nullable"),
        comment=comment if isinstance(comment, str) else "",
    )


def _physical_name(field: Mapping[str, Any]) -> tuple[str, str]:
    """The name of a column, and its name in data files.

    As in Delta, a column without a physical name has its logical one.
    Source: delta-io/delta v4.4.0, DeltaColumnMapping.scala, getPhysicalName.
    """
    name = text(field, "name")
    return name, (field.get("metadata") or {}).get(_PHYSICAL_NAME, name)


def _spark_type(type_: Any) -> str:
    """Spark's simple spelling of a type in the schema's JSON.

    Source: PROTOCOL.md, "Schema Serialization Format".
    """
    if isinstance(type_, str):
        return _SPARK_NAMES.get(type_, type_)
    match type_["type"]:
        case "struct":
            fields = [f"{field['name']}:{_spark_type(field['type'])}" for field in type_["fields"]]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{_spark_type(type_['elementType'])}>"
        case "map":
            return f"map<{_spark_type(type_['keyType'])},{_spark_type(type_['valueType'])}>"
        case other:
            return str(other)


def _without_nulls(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action without the null fields that it has in a Parquet checkpoint."""
    return {name: value for name, value in action.items() if value is not None}


# The cached commits by file, for each store. A cache is emptied before it would take more bytes.
_caches = WeakKeyDictionary[Store, dict[StoredFile, ReadCommit]]()
_KEPT_BYTES = 64 * 1024 * 1024
# Without etags, only files older than this are cached, because some file systems store times in
# whole seconds, and FAT in steps of two seconds.
_SETTLED_MS = 3_000
_BATCH_COMMITS = 100


def read_commits(store: Store, files: Sequence[StoredFile]) -> Iterator[ReadCommit]:
    """The commits in these files, in the same order.

    A commit's time is the time in its content or, if that is missing, the modification time of the
    file.
    """
    cache = _caches.setdefault(store, {})
    # As measured, a parsed commit takes the size of its file plus 2 KiB.
    if sum(file.size_bytes + 2_048 for file in {*files, *list(cache)}) > _KEPT_BYTES:
        cache.clear()
    cached = {file: cache.get(file) for file in files}
    contents = store.read_many([file.name for file in files if cached[file] is None])
    started_ms = now_ms()
    for file in files:
        commit = cached[file]
        if commit is None:
            content = next(contents)
            actions = Actions()
            parse_actions(content, file.name, actions)
            commit = ReadCommit(fold_commit(actions, file), actions)
            actions.info = {}  # the commit has it, and caching it twice wastes memory
            # Without an etag, the file must be old enough, and unchanged after it was read.
            is_settled = file.etag or (
                file.modified_ms < started_ms - _SETTLED_MS and store.stat(file.name) == file
            )
            if is_settled and len(content) == file.size_bytes:
                cache[file] = commit
        yield commit


def newest_first(store: Store, history: Commits, *, over_gaps: bool = False) -> Iterator[Commit]:
    """The table's commits, newest first: the commits of `history`, then older ones.

    The iteration ends at the first gap in the log, unless `over_gaps` is set. If `history` is
    empty, the newest commit is missing, which is such a gap. Older commits are read in batches, so
    a caller that stops early reads little.

    Raises:
        Broken: a commit is damaged.
        Transient: the log was cleaned up while it was read.
    """
    yield from reversed(history.commits)
    last = sys.maxsize if over_gaps else 0
    first = history.commits[0].version if history.commits else last
    if first == 0:
        return
    folder = log_folder(history.table)
    files = [
        file
        for file in reversed(store.list(folder))
        if COMMIT_NAME.fullmatch(file.name.removeprefix(folder)) and log_version(file.name) < first
    ]
    if not over_gaps:
        expected = zip(files, range(first - 1, -1, -1), strict=False)
        files = [file for file, version in expected if log_version(file.name) == version]
    for start in range(0, len(files), _BATCH_COMMITS):
        batch_files = files[start : start + _BATCH_COMMITS]
        try:
            batch = [each.commit for each in read_commits(store, batch_files)]
        except FileNotFoundError as error:
            raise Transient(
                f"log of {history.table}: it was cleaned up while it was read ({error}); try again"
            ) from error
        yield from batch


def history_since(store: Store, history: Commits, version: int) -> Commits:
    """The commits after `version`, as far back as the log has them without a gap.

    Raises as `newest_first`.
    """
    commits = [*takewhile(lambda commit: commit.version > version, newest_first(store, history))]
    return replace(history, commits=tuple(reversed(commits)))
