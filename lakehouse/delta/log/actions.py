"""Parses the actions in the files of a log: commits, and checkpoints.

A checkpoint is classic in one or several files, or V2 with sidecars. It may name millions of files.
Therefore, from Parquet files, only the columns that a `Snapshot` needs are read, in batches.

Any program may have written these actions. A required field that is missing, null or of another
type raises `ValueError` with the field's name and value. `parse_actions` turns this error into
`Broken`, and `read_checkpoint` into `LogContradiction`, with the file's name.
Source: PROTOCOL.md, "Actions", "Checkpoints" and "V2 Spec".
"""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice, pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.types import is_integer, is_large_string, is_map, is_null, is_string

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.paths import is_vector
from lakehouse.delta.log.log_segment import LogContradiction, Segment, find_segment, log_folder
from lakehouse.delta.snapshot import FileColumns, Texts, TombstoneColumns
from lakehouse.store import Store

# The errors that parsing a damaged or foreign file may raise. Deeply nested JSON raises
# RecursionError.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

TextPairs = tuple[tuple[str, str | None], ...]
# Path and deletion vector.
FileKey = tuple[str, str | None]
# Matches statistics that begin with numRecords, as Spark writes them, so that the rest need not be
# parsed. The figures of a column named numRecords come later in the text, so they do not match.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d+)[,}]')


class AddedFile(NamedTuple):
    """An `add` action.

    `vector` is the unique id of the file's deletion vector, and `deleted_row_count` the number of
    rows that it deletes. `row_count` includes these rows; `None` means unknown. `pairs` are the
    file's partition values, by physical column name.
    """

    path: str
    vector: str | None
    size_bytes: int
    modified_ms: int
    pairs: TextPairs
    row_count: int | None
    deleted_row_count: int
    data_change: bool


class RemovedFile(NamedTuple):
    """A `remove` action."""

    path: str
    vector: str | None
    deleted_ms: int | None
    size_bytes: int | None
    data_change: bool


@dataclass(slots=True, kw_only=True)
class AddedColumns(FileColumns):
    """`add` actions in columns. `pairs[partition[n]]` has the partition values of the n-th action.

    The pairs contain physical column names. `partitions`, by logical names, is empty until
    `data_files` fills it.
    """

    pairs: list[TextPairs] = field(default_factory=list[TextPairs])
    _known_pairs: dict[TextPairs, int] = field(default_factory=dict[TextPairs, int])

    def __len__(self) -> int:
        return len(self.size_bytes)

    def index_of(self, pairs: TextPairs) -> int:
        """The index of these partition values in `pairs`. New values are appended to `pairs`."""
        index = self._known_pairs.setdefault(pairs, len(self.pairs))
        if index == len(self.pairs):
            self.pairs.append(pairs)
        return index

    def keys(self, places: Sequence[int]) -> Iterator[FileKey]:
        """The path and deletion vector of each action at these places."""
        vectors = (self.vectors.get(place, (None, 0))[0] for place in places)
        return zip(self.path.at(places), vectors, strict=True)

    def append(self, add: AddedFile) -> None:
        """Appends an `add` action. An unknown row count becomes -1."""
        if add.vector is not None:
            # Before the columns grow, their length is the index of the new action.
            self.vectors[len(self)] = add.vector, add.deleted_row_count
        self.path.append(add.path)
        self.size_bytes.append(add.size_bytes)
        self.modified_ms.append(add.modified_ms)
        self.row_count.append(-1 if add.row_count is None else add.row_count)
        self.partition.append(self.index_of(add.pairs))


def append_removed(columns: TombstoneColumns, remove: RemovedFile) -> None:
    """Appends a `remove` action to `columns`. An unknown time or size becomes -1."""
    if remove.vector is not None:
        columns.vectors[len(columns.size_bytes)] = remove.vector
    columns.path.append(remove.path)
    columns.deleted_ms.append(-1 if remove.deleted_ms is None else remove.deleted_ms)
    columns.size_bytes.append(-1 if remove.size_bytes is None else remove.size_bytes)


@dataclass(slots=True)
class Actions:
    """All actions in one file of the log, by kind.

    `changes` are the paths of change data files, and `info` is the commitInfo. `sidecars` are pairs
    of path and size (`None` if unknown). In `domains`, a domain whose metadata was removed has the
    value `None`. Metadata, protocol and commitInfo stay unparsed: only the newest metadata
    and protocol must be valid, and commitInfo may hold anything.
    """

    adds: list[AddedFile] = field(default_factory=list)
    removes: list[RemovedFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    transactions: dict[str, int] = field(default_factory=dict[str, int])
    domains: dict[str, str | None] = field(default_factory=dict[str, str | None])
    sidecars: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])

    def merge_newer(self, newer: "Actions") -> None:
        """Merges newer actions. Ignores commitInfo and the actions on data and change files."""
        self.metadata = newer.metadata or self.metadata
        self.protocol = newer.protocol or self.protocol
        self.transactions |= newer.transactions
        self.domains |= newer.domains
        self.sidecars += newer.sidecars

    def take(self, kind: str, action: Mapping[str, Any]) -> None:
        """Adds one action. Ignores kinds that this reader does not need (checkpointMetadata, …).

        Raises:
            ValueError: a field that the protocol requires is missing, null or of another type.
        """
        match kind:
            case "add":
                self.adds.append(_added(action))
            case "remove":
                self.removes.append(_removed(action))
            case "cdc":
                self.changes.append(text(action, "path"))
            case "commitInfo":
                self.info = part({kind: action}, kind)  # raises unless the action is a struct
            case "metaData":
                self.metadata = part({kind: action}, kind)
            case "protocol":
                self.protocol = part({kind: action}, kind)
            case "txn":
                self.transactions[text(action, "appId")] = number(action, "version")
            case "domainMetadata":
                self.domains[text(action, "domain")] = (
                    None
                    if flag(action, "removed")
                    else text(action, "configuration", may_be_empty=True)
                )
            case "sidecar":
                self.sidecars.append((text(action, "path"), number_or_none(action, "sizeInBytes")))


def parse_actions(data: bytes, name: str) -> Actions:
    """The actions of the file `name`.

    Raises:
        Broken: the file is empty, or a line is not an action. The message names the line.
    """
    actions = Actions()
    lines = [each for each in enumerate(data.splitlines(), start=1) if each[1].strip()]
    if not lines:
        raise Broken(
            f"log file {name} is empty, but it must have at least one action. Restore the file"
        )
    for line_number, line in lines:
        try:
            for kind, action in json.loads(line).items():
                if action is not None:
                    actions.take(kind, action)
        except MALFORMED as error:
            raise Broken(
                f"log file {name}, line {line_number} is not a Delta action "
                f"({type(error).__name__}: {error}). Restore the file"
            ) from error
    return actions


def vector_id(vector: Mapping[str, Any]) -> str:
    """A deletion vector's unique id.

    It is the protocol's uniqueId, except that it ends in `@` if there is no offset. Without this
    `@`, a path that itself ends in `@` and a number would look like a path with an offset.
    Source: PROTOCOL.md, "Deletion Vectors", derived field uniqueId.
    """
    identity = f"{text(vector, 'storageType')}{text(vector, 'pathOrInlineDv')}"
    offset = number_or_none(vector, "offset")
    if not is_vector(identity):
        raise ValueError(f"{identity!r} is not a deletion vector")
    if offset is None:
        return f"{identity}@"
    return f"{identity}@{offset}"


def row_count_of(stats: str | None) -> int | None:
    """`numRecords` of a file's statistics; `None` if the statistics or the field are missing."""
    if not stats:
        return None
    if match := _ROWS_FIRST.match(stats):
        return int(match[1])
    return number_or_none(json.loads(stats), "numRecords")


def _added(action: Mapping[str, Any]) -> AddedFile:
    vector = _vector(action)
    return AddedFile(
        path=text(action, "path"),
        vector=None if vector is None else vector_id(vector),
        size_bytes=number(action, "size"),
        modified_ms=number(action, "modificationTime"),
        pairs=pairs(action, "partitionValues"),
        row_count=row_count_of(action.get("stats")),
        deleted_row_count=0 if vector is None else number(vector, "cardinality"),
        data_change=flag(action, "dataChange"),
    )


def _removed(action: Mapping[str, Any]) -> RemovedFile:
    vector = _vector(action)
    return RemovedFile(
        path=text(action, "path"),
        vector=None if vector is None else vector_id(vector),
        deleted_ms=number_or_none(action, "deletionTimestamp"),
        size_bytes=number_or_none(action, "size"),
        data_change=flag(action, "dataChange"),
    )


def _vector(action: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return None if action.get("deletionVector") is None else part(action, "deletionVector")


def text(action: Mapping[str, Any], name: str, *, may_be_empty: bool = False) -> str:
    """A string."""
    value = action.get(name)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a nonempty string")
    return value


def number(action: Mapping[str, Any], name: str) -> int:
    """An integer. No integer field that this module reads may be negative."""
    value = action.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be an integer, 0 or more")
    return value


def number_or_none(action: Mapping[str, Any], name: str) -> int | None:
    """An optional integer; `None` if it is missing or null."""
    return None if action.get(name) is None else number(action, name)


def flag(action: Mapping[str, Any], name: str) -> bool:
    """A boolean."""
    value = action.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be true or false")
    return value


def texts(action: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of strings."""
    value = action.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        shown = _shown(action, name)
        raise ValueError(f"{name} is {shown}, and must be a list of nonempty strings")
    return tuple(value)


def pairs(action: Mapping[str, Any], name: str) -> TextPairs:
    """A map of strings, as pairs; values may be null."""
    value = action.get(name)
    is_map = isinstance(value, Mapping)
    if not is_map or not all(isinstance(each, str | None) for each in value.values()):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a map of strings")
    return tuple(value.items())


def part(action: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A struct within the action."""
    value = action.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a struct")
    return value


def _shown(action: Mapping[str, Any], name: str) -> str:
    """The beginning of a field's value, for an error message."""
    return repr(action[name])[:80] if name in action else "missing"


_VECTOR = ("storageType", "pathOrInlineDv", "offset", "cardinality")
_ADD = (
    "path",
    "size",
    "modificationTime",
    "partitionValues",
    "stats_parsed.numRecords",
    *(f"deletionVector.{leaf}" for leaf in _VECTOR),
)
_REMOVE = ("path", "deletionTimestamp", "size", *(f"deletionVector.{leaf}" for leaf in _VECTOR[:3]))
# Errors that reading a damaged file may raise.
UNREADABLE = (pa.ArrowException, OSError, Broken, *MALFORMED)
_BATCH_ROWS = 65_536  # smaller batches take longer, larger batches more memory
_TABLE_KINDS = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")  # few actions each


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint's content. `table_actions` are the actions that are not about data files.

    `fold_layout` appends newer actions to the columns.
    """

    adds: AddedColumns = field(default_factory=AddedColumns)
    removes: TombstoneColumns = field(default_factory=TombstoneColumns)
    table_actions: Actions = field(default_factory=Actions)


def read_checkpoint(store: Store, segment: Segment) -> Checkpoint:
    """The content of a segment's checkpoint; empty if the segment has none.

    Raises:
        LogContradiction: a file is damaged, or a sidecar is missing or of another size.
        FileNotFoundError: a file of the checkpoint itself is missing.
        Refused: a sidecar's path contains a folder.
    """
    checkpoint = Checkpoint()
    for file in segment.checkpoint:
        data = store.read(file.name)
        with _reading(file.name, f"checkpoint {file.name}"):
            _read_into(checkpoint, data, file.name)
    folder = f"{segment.table}/_delta_log/_sidecars"
    for sidecar, size_bytes in checkpoint.table_actions.sidecars:
        name = segment.checkpoint[0].name
        path = unquote(sidecar)
        if "/" in path:
            raise Refused(
                f"checkpoint {name}: the path of its sidecar {sidecar} contains a folder. Use "
                f"names of files in {folder}"
            )
        subject = f"checkpoint {name}: its sidecar {path}"
        try:
            data = store.read(f"{folder}/{path}")
        except FileNotFoundError as error:
            raise LogContradiction(f"{subject} is missing", suspect=name) from error
        if size_bytes not in (None, len(data)):
            sizes = f"has {len(data)} bytes, but the checkpoint records {size_bytes}"
            raise LogContradiction(f"{subject} {sizes}", suspect=name)
        with _reading(name, subject):
            _read_into(checkpoint, data, path)
    return checkpoint


@contextmanager
def _reading(name: str, subject: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        reason = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        raise LogContradiction(f"{subject} cannot be read ({reason})", suspect=name) from error


def _read_into(checkpoint: Checkpoint, data: bytes, name: str) -> None:
    """Adds the actions of one file to the checkpoint."""
    if name.endswith(".json"):
        actions = parse_actions(data, name)
        for add in actions.adds:
            checkpoint.adds.append(add)
        for remove in actions.removes:
            append_removed(checkpoint.removes, remove)
        checkpoint.table_actions.merge_newer(actions)
        return
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in _TABLE_KINDS:
            for rows in batches(file, kind, ()):
                for action in rows.to_pylist(maps_as_pydicts="lossy"):
                    checkpoint.table_actions.take(kind, action)
        first = len(checkpoint.adds)
        for rows in batches(file, "add", _ADD):
            _append_adds(checkpoint.adds, rows)
        _count_rows(file, checkpoint.adds, first)
        removes = checkpoint.removes
        for rows in batches(file, "remove", _REMOVE):
            first = len(removes.size_bytes)
            for index, vector in _vectors_of(rows):
                removes.vectors[first + index] = vector_id(vector)
            _append_paths(removes.path, rows)
            _append_numbers(removes.deleted_ms, _numbers_or_none(rows, "deletionTimestamp"))
            _append_numbers(removes.size_bytes, _numbers_or_none(rows, "size"))


def batches(file: pq.ParquetFile, kind: str, leaves: Iterable[str]) -> Iterator[pa.StructArray]:
    """Yields the actions of one kind, with the fields in `leaves` (empty: all fields)."""
    if kind in file.schema_arrow.names:
        columns = [f"{kind}.{leaf}" for leaf in leaves] or [kind]
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            rows = batch.column(kind)
            yield rows.filter(rows.is_valid()) if rows.null_count else rows


def _append_adds(adds: AddedColumns, rows: pa.StructArray) -> None:
    first = len(adds)
    for index, vector in _vectors_of(rows):
        adds.vectors[first + index] = vector_id(vector), number(vector, "cardinality")
    partition_numbers, partitions = _partitions(rows)
    indices = [adds.index_of(pairs) for pairs in partitions]
    adds.partition.extend(map(indices.__getitem__, partition_numbers))
    counts = pa.nulls(len(rows), pa.int64())
    if _has(rows, "stats_parsed") and rows.field("stats_parsed").type.num_fields:
        counts = _whole_numbers(rows.field("stats_parsed").flatten()[0], "numRecords")
    _append_paths(adds.path, rows)
    _append_numbers(adds.size_bytes, _required(rows, "size", "an integer", is_integer))
    modified_ms = _required(rows, "modificationTime", "an integer", is_integer)
    _append_numbers(adds.modified_ms, modified_ms)
    _append_numbers(adds.row_count, counts)


def _append_paths(texts: Texts, rows: pa.StructArray) -> None:
    """Copies Arrow's text and the end of each path, shifted to its place in `texts.data`."""
    paths = _required(rows, "path", "a string", _is_text)
    column = pa.concat_arrays([paths.cast(pa.large_string())])
    column.validate(full=True)  # otherwise, a damaged text raises only when it is read
    if not len(column):
        return
    _, bounds, data = column.buffers()
    offsets = memoryview(bounds).cast("q")
    first, last = offsets[column.offset], offsets[column.offset + len(column)]
    ends = pa.Array.from_buffers(pa.int64(), len(column), [None, bounds], offset=column.offset + 1)
    _append_numbers(texts.bounds, compute().add(ends, integers([len(texts.data) - first])[0]))
    texts.data += memoryview(data)[first:last]


def compute() -> Any:
    """Arrow's compute functions, untyped. They are imported late, since small logs need none."""
    return import_module("pyarrow.compute")


def integers(values: Iterable[int]) -> pa.Array:
    """An Arrow array of integers. The first `pyarrow.array` takes 0.25 s: it imports pandas."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _append_numbers(numbers: "array[int]", column: pa.Array) -> None:
    """Adds a column of integers. A null becomes -1, which means unknown."""
    filled = compute().coalesce(column.cast(pa.int64()), integers([-1])[0])
    numbers.frombytes(filled.buffers()[1][8 * filled.offset : 8 * (filled.offset + len(filled))])


def _count_rows(file: pq.ParquetFile, adds: AddedColumns, first: int) -> None:
    """Reads missing row counts from the JSON statistics, for the actions from `first` on."""
    if min(islice(adds.row_count, first, None), default=0) >= 0:
        return
    index = first
    for rows in batches(file, "add", ("path", "stats")):
        texts = rows.field("stats").to_pylist() if _has(rows, "stats") else [None] * len(rows)
        for text in texts:
            if adds.row_count[index] < 0:
                count = row_count_of(text)
                adds.row_count[index] = -1 if count is None else count
            index += 1


def _has(rows: pa.StructArray, name: str) -> bool:
    return rows.type.get_field_index(name) >= 0


def _required(
    rows: pa.StructArray, name: str, kind: str, is_kind: Callable[[pa.DataType], bool]
) -> Any:
    """The column `name`. Raises `ValueError` if a value is missing, or of another kind."""
    column = rows.field(name)
    if column.null_count or not is_kind(column.type):
        raise ValueError(
            f"{name} is {column.type}, with nulls: {column.null_count}. Every value must be {kind}"
        )
    return column


def _numbers_or_none(rows: pa.StructArray, name: str) -> pa.Array:
    if not _has(rows, name):
        return pa.nulls(len(rows), pa.int64())
    return _whole_numbers(rows.field(name), name)


def _whole_numbers(column: pa.Array, name: str) -> pa.Array:
    if is_integer(column.type) or is_null(column.type):
        return column
    raise ValueError(f"{name} is {column.type}, and must be an integer")


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_large_string(kind)


def _is_map_of_texts(kind: pa.DataType) -> bool:
    return is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _vectors_of(rows: pa.StructArray) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The deletion vectors, each with the index of its row."""
    if not _has(rows, "deletionVector") or rows.field("deletionVector").null_count == len(rows):
        return
    for index, vector in enumerate(rows.field("deletionVector").to_pylist()):
        # Some writers store a struct of nulls for a missing vector.
        if vector and any(value is not None for value in vector.values()):
            yield index, vector


def _partitions(rows: pa.StructArray) -> tuple[Sequence[int], list[TextPairs]]:
    """For each row, an index into the returned partitions. Some partitions may be unused."""
    column = _required(rows, "partitionValues", "a map of strings", _is_map_of_texts)
    name_codes = column.keys.dictionary_encode()
    value_codes = column.items.dictionary_encode()
    names = name_codes.dictionary.to_pylist()
    values = [*value_codes.dictionary.to_pylist(), None]
    null = len(values) - 1  # Arrow's `fill_null` would import pandas
    codes = [null if code is None else code for code in value_codes.indices.to_pylist()]
    offsets = column.offsets.to_pylist()
    if len(names) == 1 and offsets == list(range(len(codes) + 1)):  # one value in every row
        return codes, [((names[0], value),) for value in values]
    entries = list(zip(name_codes.indices.to_pylist(), codes, strict=True))
    indices: dict[tuple[tuple[int, int], ...], int] = {}
    row_indices = [indices.setdefault(row, len(indices)) for row in _rows_of(entries, offsets)]
    return row_indices, [tuple((names[n], values[v]) for n, v in row) for row in indices]


def _rows_of(
    entries: Sequence[tuple[int, int]], offsets: Sequence[int]
) -> Iterable[tuple[tuple[int, int], ...]]:
    """The entries of each map. Nearly always, all maps have the same number of entries."""
    width = len(entries) // max(len(offsets) - 1, 1)
    if width and offsets == list(range(0, len(entries) + 1, width)):
        return zip(*[iter(entries)] * width, strict=True)
    return (tuple(entries[start:end]) for start, end in pairwise(offsets))


def each_statistics(
    store: Store, table: str, versions: Iterable[int]
) -> Iterator[tuple[Sequence[int], str, str | None]]:
    """Path and statistics (JSON) of each `add` action in the log files of these versions.

    Each comes with the versions that need its log file. Every log file is read once, the oldest
    first, so the last statistics of a path are the valid ones. They are never all in memory. Files
    that a later commit removes are included; files that only a sidecar names are not.
    """
    listing = store.list(log_folder(table))
    versions_of = dict[str, list[int]]()
    for version in sorted({*versions}):
        segment = find_segment(listing, table, version=version)
        files = () if segment is None else (*segment.checkpoint, *segment.tail)
        for file in files:
            versions_of.setdefault(file.name, []).append(version)
    contents = store.read_many([*versions_of])
    for (name, versions_of_file), data in zip(versions_of.items(), contents, strict=True):
        for path, statistics in _statistics_in(name, data):
            yield versions_of_file, path, statistics


def _statistics_in(name: str, data: bytes) -> Iterator[tuple[str, str | None]]:
    """Path and statistics of each `add` action in the log file `name`."""
    if name.endswith(".parquet"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            for rows in batches(file, "add", ("path", "stats")):
                if rows.type.get_field_index("stats") >= 0:
                    statistics = rows.field("stats").to_pylist()
                    yield from zip(rows.field("path").to_pylist(), statistics, strict=True)
        return
    for line in data.splitlines():
        add = json.loads(line).get("add") if line.strip() else None
        if add:
            yield add["path"], add.get("stats")
