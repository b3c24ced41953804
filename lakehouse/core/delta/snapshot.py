"""The parts of a table at one version: live files, tombstones, the end of the log, properties."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import cast

from lakehouse.core.delta.commits import Commits

_SIZE = attrgetter("size_bytes")

PartitionValues = tuple[tuple[str, str | None], ...]
FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One live file, from its `add` action. Source: PROTOCOL.md, "Add File and Remove File".

    - `path`: relative to the table, URL-encoded.
    - `partition`: pairs of column and value as the log spells them, in the order of the table's
      partition columns.
    - `row_count`: physical rows; `None` if the log has no statistics.
    - `compacted`: a commit without data change wrote the file. False if that is unknown.
    """

    path: str
    size_bytes: int
    modified_ms: int
    partition: PartitionValues = ()
    row_count: int | None = None
    deletion_vector: str | None = None
    deleted_row_count: int = 0
    compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A removed file that may still be stored. Size and time are `None` if unknown."""

    path: str
    deleted_ms: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The commits after the newest checkpoint, or all commits if there is no checkpoint.

    `checkpoint_version` is `None` if there is no checkpoint. `unreadable` maps the files of newer
    checkpoints that cannot be read to the reasons. The table was read from older files instead.
    """

    checkpoint_version: int | None
    commit_count: int
    commit_bytes: int
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def note(self) -> str:
        """Which checkpoints cannot be read, and what to do; empty if all can be read."""
        if not self.unreadable:
            return ""
        reasons = "; ".join(self.unreadable.values())
        names = ", ".join(self.unreadable)
        return f"{reasons}: the table was read from older files of its log. Remove {names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the schema; `type` is Spark's simple string (`bigint`, `struct<a:int>`)."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A table at one version, reconstructed from its log.

    - `committed_ms`: the time of the newest commit.
    - `files`: those of the newest commit first, then of the one before, and so on.
    - `table_id`: changes if the table is deleted and created again.
    - `clustering_columns`: the columns of liquid clustering. If they are removed, `features` still
      has the feature.
    - `physical_names`: the names of columns in data files, under column mapping. Otherwise empty.
    - `physical_fields`: the same for fields inside structs, by their paths, which may pass
      `element`, `key` and `value` of arrays and maps.
    - `cold_files`: decoded names of files in a colder storage class, as far as an inventory shows
      them, each with the USD that reading and replacing it costs. The log does not have them.
    - `removed_vectors`: deletion vectors of older versions, by unique id, with the time of their
      removal (`None`: unknown).
    """

    table: str
    uri: str
    version: int
    committed_ms: int
    files: tuple[DataFile, ...]
    tombstones: tuple[Tombstone, ...] = ()
    removed_vectors: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    log: LogTail
    columns: tuple[Column, ...] = ()
    partition_columns: tuple[str, ...] = ()
    clustering_columns: tuple[str, ...] = ()
    physical_names: Mapping[str, str] = field(default_factory=dict[str, str])
    physical_fields: Mapping[FieldPath, FieldPath] = field(
        default_factory=dict[FieldPath, FieldPath]
    )
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    features: frozenset[str] = frozenset()
    transactions: Mapping[str, int] = field(default_factory=dict[str, int])
    table_id: str = ""
    cold_files: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def on_s3(self) -> bool:
        """Whether the table is on S3, which charges for requests."""
        return self.uri.startswith("s3")

    @property
    def file_count(self) -> int:
        """The number of live files."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the live files."""
        return sum(map(_SIZE, self.files))

    @property
    def row_count(self) -> int | None:
        """The number of rows that are not deleted; `None` if any file lacks statistics."""
        counts = [file.row_count for file in self.files]
        return (
            None
            if None in counts
            else sum(cast("list[int]", counts)) - sum(file.deleted_row_count for file in self.files)
        )

    @property
    def tombstone_bytes(self) -> int:
        """Bytes of the removed files, as far as the log records their sizes."""
        return sum(stone.size_bytes or 0 for stone in self.tombstones)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """The log file of a version, as storage listed it; `name` is relative to the lake."""

    version: int
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table's state, as its log describes it.

    `newest` is the commit file of this version, or its checkpoint if the log begins there.
    """

    snapshot: Snapshot
    history: Commits
    newest: LogFile


def live_bytes(file: DataFile) -> float:
    """The bytes that a file's live rows take; the whole file if its row count is unknown."""
    return (
        file.size_bytes * (1 - file.deleted_row_count / file.row_count)
        if file.row_count
        else file.size_bytes
    )


def last_removals(
    names: Sequence[str | None], times_ms: Iterable[int | None]
) -> dict[str, int | None]:
    """The time of the last removal of each path or vector. Empty names are dropped.

    A file may be removed several times. If one of these times is unknown, the result is `None`.
    """
    times = [*times_ms]
    once = dict(zip(names, times, strict=True))
    if len(once) == len(names) and all(names):  # the usual case, fast for many names
        return cast("dict[str, int | None]", once)
    last: dict[str, int | None] = {}
    for name, ms in zip(names, times, strict=True):
        if name:
            before = last.get(name, 0)
            last[name] = None if ms is None or before is None else max(before, ms)
    return last
