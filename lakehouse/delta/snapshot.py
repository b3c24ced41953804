"""The parts of a table at one version: live files, tombstones, the end of the log, properties.

Files are one object per file, or columns of many files.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from operator import attrgetter, eq, itemgetter
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from lakehouse.base.stored_objects import StoredFile
from lakehouse.delta.commits import Commit, Commits

_BUILT_AT_ONCE = 4096
_NO_VECTOR = (None, 0)

Item = TypeVar("Item")
PartitionValues = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file of a table, as its `add` action describes it.

    Source: PROTOCOL.md, "Add File and Remove File".

    - `path`: relative to the table, URL-encoded.
    - `partition`: pairs of column and value as the log spells them, in the order of the table's
      partition columns.
    - `row_count`: physical rows; `None` if the log has no statistics.
    - `compacted`: whether a commit without data change wrote the file. False if that is unknown.
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


class Columns(Protocol[Item]):
    """Values of one kind, kept as one column per field."""

    def build(self, places: Sequence[int]) -> list[Item]:
        """Builds the values at these indices of the columns."""
        ...


class Rows(Sequence[Item], Generic[Item]):
    """A sequence of values that are stored in columns and built as objects on access.

    Ten million files take 3.5 GB as objects, and 1.3 GB as columns. `places` are the indices of the
    values in the columns. A slice shares the columns. The first iteration keeps the objects in
    memory, so that later iterations are faster.
    """

    __slots__ = ("_objects", "columns", "places")

    def __init__(self, columns: Columns[Item], places: Sequence[int]) -> None:
        self.columns = columns
        self.places = places
        self._objects: Sequence[Item] = ()

    @property
    def has_objects(self) -> bool:
        """Whether the objects are in memory."""
        return bool(self._objects)

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> "Rows[Item]": ...
    def __getitem__(self, place: int | slice) -> "Item | Rows[Item]":
        if isinstance(place, slice):
            return Rows(self.columns, self.places[place])
        return self.columns.build([self.places[place]])[0]

    def __iter__(self) -> Iterator[Item]:
        if not self._objects:
            starts = range(0, len(self.places), _BUILT_AT_ONCE)
            batches = (self.places[start : start + _BUILT_AT_ONCE] for start in starts)
            self._objects = tuple(chain.from_iterable(map(self.columns.build, batches)))
        return iter(self._objects)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(self) == len(others) and all(map(eq, self, others))


@dataclass(slots=True)
class Texts:
    """Concatenated texts in UTF-8. Text `n` is `data[bounds[n] : bounds[n + 1]]`."""

    data: bytearray = field(default_factory=bytearray)
    bounds: "array[int]" = field(default_factory=lambda: array("q", [0]))

    def append(self, text: str) -> None:
        """Adds a text."""
        self.data += text.encode(errors="surrogatepass")
        self.bounds.append(len(self.data))

    def __getitem__(self, place: int) -> str:
        text = self.data[self.bounds[place] : self.bounds[place + 1]]
        return text.decode(errors="surrogatepass")

    def at(self, places: Sequence[int]) -> list[str]:
        """The texts at these places."""
        bounds = self.bounds
        if _is_span(places):
            ends = bounds[places[0] : places[-1] + 2]
            begin = ends[0]
            text = str(self.data[begin : ends[-1]], "utf-8", "surrogatepass")
            # In ASCII text, the positions of bytes are also the positions of characters.
            if text.isascii():
                return [text[low - begin : high - begin] for low, high in pairwise(ends)]
        data = self.data
        return [
            data[bounds[place] : bounds[place + 1]].decode("utf-8", "surrogatepass")
            for place in places
        ]


def _is_span(places: Sequence[int]) -> bool:
    """Whether a range or an array has all places from first to last; false for other types."""
    if not places or places[-1] - places[0] + 1 != len(places):
        return False
    span = range(places[0], places[-1] + 1)
    return places == (array("q", span) if isinstance(places, array) else span)


def _picked(column: Sequence[Any], places: Sequence[int]) -> Iterable[Any]:
    """The values of a column at these places."""
    if isinstance(places, range) and places and places.step == 1:
        return column[places[0] : places[-1] + 1]
    return map(column.__getitem__, places)


def int_column() -> "array[int]":
    """An empty column of 64-bit integers. A negative size, time or row count means unknown."""
    return array("q")


@dataclass(slots=True, kw_only=True)
class FileColumns:
    """The columns of `DataFile`. `partitions[partition[n]]` is the partition of the n-th file.

    `vectors` maps the index of a file to the id of its deletion vector and the deleted row count.
    `compacted` holds the indices of the files whose `DataFile.compacted` is true.
    """

    path: Texts = field(default_factory=Texts)
    size_bytes: "array[int]" = field(default_factory=int_column)
    modified_ms: "array[int]" = field(default_factory=int_column)
    row_count: "array[int]" = field(default_factory=int_column)
    partition: "array[int]" = field(default_factory=lambda: array("I"))
    partitions: Sequence[PartitionValues] = ()
    vectors: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    compacted: set[int] = field(default_factory=set[int])

    def build(self, places: Sequence[int]) -> list[DataFile]:
        """See `Columns.build`."""
        # For a range, `_picked` slices a column, which is faster than single accesses.
        if _is_span(places):
            places = range(places[0], places[-1] + 1)
        vectors = [*map(self.vectors.get, places, repeat(_NO_VECTOR))]
        return made_of_columns(
            DataFile,
            len(places),
            path=self.path.at(places),
            size_bytes=_picked(self.size_bytes, places),
            modified_ms=_picked(self.modified_ms, places),
            partition=map(self.partitions.__getitem__, _picked(self.partition, places)),
            row_count=_known(self.row_count, places),
            deletion_vector=map(itemgetter(0), vectors),
            deleted_row_count=map(itemgetter(1), vectors),
            compacted=map(self.compacted.__contains__, places),
        )


@dataclass(slots=True, kw_only=True)
class TombstoneColumns:
    """The columns of `Tombstone`. `vectors` maps indices to the ids of deletion vectors."""

    path: Texts = field(default_factory=Texts)
    deleted_ms: "array[int]" = field(default_factory=int_column)
    size_bytes: "array[int]" = field(default_factory=int_column)
    vectors: dict[int, str] = field(default_factory=dict[int, str])

    def build(self, places: Sequence[int]) -> list[Tombstone]:
        """See `Columns.build`."""
        return made_of_columns(
            Tombstone,
            len(places),
            path=self.path.at(places),
            deleted_ms=_known(self.deleted_ms, places),
            size_bytes=_known(self.size_bytes, places),
        )


def _known(column: "array[int]", places: Sequence[int]) -> Sequence[int | None]:
    """The values of a column at these places; `None` for a negative number."""
    numbers = [*_picked(column, places)]
    if min(numbers, default=0) >= 0:
        return numbers
    return [None if number < 0 else number for number in numbers]


def made_of_columns(kind: type[Item], count: int, **columns: Iterable[object]) -> list[Item]:
    """`count` values of a dataclass, with each field taken from its column.

    The class must have slots and no `__post_init__`, and every field must be given. The result
    equals `[kind(a=a, b=b) for a, b in zip(...)]`, but takes a third of the time, because the
    constructor of a frozen dataclass calls a function for each field.
    """
    assert columns.keys() == set(kind.__slots__)  # type: ignore[attr-defined]
    assert not hasattr(kind, "__post_init__")
    values = list(map(object.__new__, repeat(kind, count)))
    for name, column in columns.items():
        put: Callable[[Item, object], None] = getattr(kind, name).__set__
        deque(map(put, values, column), maxlen=0)  # calls `put` for each value; faster than a loop
    return values


FieldPath = tuple[str, ...]

_SIZE, _SIZE_AND_PATH = attrgetter("size_bytes"), attrgetter("size_bytes", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The commits after the newest checkpoint, or all commits if there is none.

    `checkpoint_version` is `None` if there is no checkpoint.
    """

    checkpoint_version: int | None
    commit_count: int
    commit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the schema; `type` is Spark's simple string (`bigint`, `struct<a:int>`)."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Columns by their names."""
    return {column.name: column for column in columns}


def types_by_name(columns: Iterable[Column]) -> dict[str, str]:
    """The types of columns by their names."""
    return {column.name: column.type for column in columns}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A table at one version, reconstructed from its log.

    - `committed_ms`: the time of the newest commit.
    - `files`: the live files, newest commit first; the files of the checkpoint come last.
    - `table_id`: changes if the table is deleted and created again.
    - `clustering_columns`: the columns of liquid clustering. If clustering is removed, `features`
      still contains `clustering`.
    - `physical_names`: under column mapping, maps columns to their names in data files. Otherwise
      empty.
    - `physical_fields`: the same for fields inside structs, by path. In a path, `element`, `key`
      and `value` stand for the parts of arrays and maps.
    - `cold_files`: decoded names of files in a storage class that is slow or paid to read. They
      come from an inventory, since the log does not record classes.
    - `unreadable_files`: the paths of live files that deltalake cannot rewrite, each with the
      reason. They come from notes of failed compactions.
    - `removed_vectors`: the time of removal (`None`: unknown) of each deletion vector that only
      older versions have, by the vector's unique id.
    - `transactions`: maps each transaction id (appId) to its newest version.
    - `definition`: the newest `protocol` and `metaData` actions as the log has them, by kind.
    """

    table: str
    uri: str
    version: int
    committed_ms: int
    files: Sequence[DataFile]
    tombstones: Sequence[Tombstone] = ()
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
    definition: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], compare=False, repr=False
    )
    cold_files: frozenset[str] = frozenset()
    unreadable_files: Mapping[str, str] = field(default_factory=dict[str, str])

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
        return sum(file_sizes(self.files))

    @property
    def row_count(self) -> int | None:
        """The number of rows that are not deleted; `None` if any file lacks statistics."""
        return live_rows(self.files)

    @property
    def tombstone_bytes(self) -> int:
        """Bytes of the removed files, as far as the log records their sizes."""
        sizes = _column_of(self.tombstones, "size_bytes")
        return sum(size for size in sizes if size and size > 0)


def log_version(name: str) -> int:
    """The version of a log file with this name. `name` may include its folder."""
    return int(name.rpartition("/")[2][:20])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table's state, as its log describes it.

    `newest` is the snapshot's commit file, or the checkpoint if the log begins at that version.
    """

    snapshot: Snapshot
    history: Commits
    newest: StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommit(Commit):
    """A commit with its files. `shape` is the snapshot after the commit, without files.

    A path of both `added` and `removed_paths` is one file that changed, for example because it got
    a deletion vector.
    """

    added: tuple[DataFile, ...] = ()
    shape: Snapshot

    @property
    def is_compaction(self) -> bool:
        """Whether the commit replaced files but changed no row: OPTIMIZE, REORG or similar."""
        return not self.changed_data and bool(self.removed_paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory:
    """The commits after the snapshot `start`, oldest first, without gaps.

    `start` is `None` if the log still has its first commit. `commits` then begins with it.
    """

    table: str
    start: Snapshot | None
    commits: tuple[FileCommit, ...]

    @property
    def first_version(self) -> int:
        """The version of `start`, or else of the first commit; 0 if there is neither."""
        if self.start is not None:
            return self.start.version
        return self.commits[0].version if self.commits else 0


def _column_of(files: Sequence[Any], name: str) -> Iterable[Any]:
    """A field of each file or tombstone, without building objects.

    A number that is unknown is `None` or negative.
    """
    if isinstance(files, Rows) and not files.has_objects:
        return map(getattr(files.columns, name).__getitem__, files.places)
    return map(attrgetter(name), files)


def file_sizes(files: Sequence[DataFile]) -> Iterable[int]:
    """The bytes of each file, without building file objects."""
    return _column_of(files, "size_bytes")


def file_paths(files: Sequence[DataFile]) -> Iterable[str]:
    """The path of each file, without building file objects."""
    return _column_of(files, "path")


def _columns_of(files: Sequence[DataFile]) -> tuple[FileColumns, Sequence[int]] | None:
    """The columns of the files and their indices in the columns.

    `None` if the files have no columns, or are in memory as objects, which are faster.
    """
    if not isinstance(files, Rows) or files.has_objects:
        return None
    return cast("FileColumns", files.columns), files.places


def partitions_of(files: Sequence[DataFile]) -> Set[PartitionValues]:
    """The partitions of the files."""
    in_columns = _columns_of(files)
    if in_columns is None:
        return {file.partition for file in files}
    columns, places = in_columns
    indices = set(map(columns.partition.__getitem__, places))
    return {columns.partitions[index] for index in indices}


def by_partition(files: Sequence[DataFile]) -> Mapping[PartitionValues, Sequence[DataFile]]:
    """The files of each partition. Partitions and files keep the order of `files`."""
    groups = defaultdict[PartitionValues, list[DataFile]](list)
    for file in files:
        groups[file.partition].append(file)
    return {partition: tuple(group) for partition, group in groups.items()}


def by_size(groups: Sequence[Sequence[DataFile]]) -> Sequence[DataFile]:
    """The files of all groups, ascending by size and then by path."""
    files = [*chain.from_iterable(groups)]
    # If all sizes differ, sorting by size alone is three times as fast.
    is_unique = len(set(map(_SIZE, files))) == len(files)
    return tuple(sorted(files, key=_SIZE if is_unique else _SIZE_AND_PATH))


def row_total(files: Sequence[DataFile]) -> int | None:
    """The physical rows of all files; `None` if a file has no row count."""
    counts = [*_column_of(files, "row_count")]
    return None if None in counts or min(counts, default=0) < 0 else sum(counts)


def files_with_vectors(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """The files that have a deletion vector."""
    in_columns = _columns_of(files)
    if in_columns is None:
        return [file for file in files if file.deletion_vector is not None]
    columns, places = in_columns
    with_vector = [*filter(columns.vectors.__contains__, places)] if columns.vectors else []
    return Rows(columns, with_vector)


def live_rows(files: Sequence[DataFile]) -> int | None:
    """The rows of all files that are not deleted; `None` if a file has no row count."""
    total = row_total(files)
    if total is None:
        return None
    return total - sum(file.deleted_row_count for file in files_with_vectors(files))


def live_bytes(file: DataFile) -> float:
    """The estimated bytes of a file's live rows; the whole file if its row count is unknown."""
    if not file.row_count:
        return file.size_bytes
    return file.size_bytes * (1 - file.deleted_row_count / file.row_count)


def last_removals(
    names: Sequence[str | None], times_ms: Iterable[int | None]
) -> dict[str, int | None]:
    """The time of the last removal of each path or vector. Empty names are dropped.

    A name may occur several times. If one of its times is unknown, its result is `None`.
    """
    times = [*times_ms]
    time_by_name = dict(zip(names, times, strict=True))
    if len(time_by_name) == len(names) and all(names):  # the usual case, fast for many names
        return cast("dict[str, int | None]", time_by_name)
    last: dict[str, int | None] = {}
    for name, ms in zip(names, times, strict=True):
        if not name:
            continue
        earlier_ms = last.get(name, 0)
        last[name] = None if ms is None or earlier_ms is None else max(earlier_ms, ms)
    return last
