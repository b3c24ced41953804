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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.types import is_integer, is_large_string, is_map, is_null, is_string

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.paths import is_vector
from lakehouse.delta.log.log_segment import LogContradiction, Segment, find_segment, log_folder
from lakehouse.delta.snapshot import DataFile, PartitionValues, Tombstone, made_of_columns
from lakehouse.store import Store

# The errors that parsing a damaged or foreign file may raise. Deeply nested JSON raises
# RecursionError.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

# Matches statistics that begin with numRecords, as Spark writes them, so that the rest need not be
# parsed. The figures of a column named numRecords come later in the text, so they do not match.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d+)[,}]')


@dataclass(slots=True)
class Actions:
    """All actions in one file of the log, by kind, or in all files of a checkpoint.

    The partitions of `adds` have physical column names, in any order (`fold.data_files`).
    `changed_data`: an action changed rows.
    `changes` are the paths of change data files, and `info` is the commitInfo. `sidecars` are pairs
    of path and size (`None` if unknown). In `domains`, a domain whose metadata was removed has the
    value `None`. Metadata, protocol and commitInfo stay unparsed: only the newest metadata
    and protocol must be valid, and commitInfo may hold anything.
    """

    adds: list[DataFile] = field(default_factory=list)
    removes: list[Tombstone] = field(default_factory=list)
    changed_data: bool = False
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

    def take(self, kind: str, action: Mapping[str, Any]) -> None:
        """Adds one action. Ignores kinds that this reader does not need (checkpointMetadata, …).

        Raises:
            ValueError: a field that the protocol requires is missing, null or of another type.
        """
        match kind:
            case "add":
                self.adds.append(_added(action))
                self.changed_data |= flag(action, "dataChange")
            case "remove":
                stone = Tombstone(
                    path=text(action, "path"),
                    deleted_ms=number_or_none(action, "deletionTimestamp"),
                    size_bytes=number_or_none(action, "size"),
                    deletion_vector=vector_id(_vector(action)),
                )
                self.removes.append(stone)
                self.changed_data |= flag(action, "dataChange")
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


def parse_actions(data: bytes, name: str, actions: Actions) -> None:
    """Adds the actions of the file `name`, which has one action per line.

    Raises:
        Broken: the file is empty, or a line is not an action. The message names the line.
    """
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


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """A deletion vector's unique id; `None` for `None`.

    It is the protocol's uniqueId, except that it ends in `@` if there is no offset. Without this
    `@`, a path that itself ends in `@` and a number would look like a path with an offset.
    Source: PROTOCOL.md, "Deletion Vectors", derived field uniqueId.
    """
    if vector is None:
        return None
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


def _added(action: Mapping[str, Any]) -> DataFile:
    vector = _vector(action)
    return DataFile(
        path=text(action, "path"),
        size_bytes=number(action, "size"),
        modified_ms=number(action, "modificationTime"),
        partition=pairs(action, "partitionValues"),
        row_count=row_count_of(action.get("stats")),
        deletion_vector=vector_id(vector),
        deleted_row_count=0 if vector is None else number(vector, "cardinality"),
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
    if type(value) is not int or not 0 <= value < 2**63:
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


def pairs(action: Mapping[str, Any], name: str) -> PartitionValues:
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
    "stats",
    "stats_parsed.numRecords",
    *(f"deletionVector.{leaf}" for leaf in _VECTOR),
)
_REMOVE = ("path", "deletionTimestamp", "size", *(f"deletionVector.{leaf}" for leaf in _VECTOR[:3]))
# Errors that reading a damaged file may raise.
UNREADABLE = (pa.ArrowException, OSError, Broken, *MALFORMED)
_BATCH_ROWS = 65_536  # smaller batches take longer, larger batches more memory
_TABLE_KINDS = ("metaData", "protocol", "txn", "domainMetadata", "sidecar")  # few actions each


def read_checkpoint(store: Store, segment: Segment) -> Actions:
    """The actions in a segment's checkpoint; none if the segment has no checkpoint.

    Raises:
        LogContradiction: a file is damaged, or a sidecar is missing or of another size.
        FileNotFoundError: a file of the checkpoint itself is missing.
        Refused: a sidecar's path contains a folder.
    """
    checkpoint = Actions()
    for file in segment.checkpoint:
        data = store.read(file.name)
        _read_into(checkpoint, data, file.name, f"checkpoint {file.name}", suspect=file.name)
    folder = f"{segment.table}/_delta_log/_sidecars"
    for sidecar, size_bytes in checkpoint.sidecars:
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
        _read_into(checkpoint, data, path, subject, suspect=name)
    return checkpoint


def _read_into(checkpoint: Actions, data: bytes, name: str, subject: str, *, suspect: str) -> None:
    """Adds the actions of one file, which an error calls `subject`, to the checkpoint."""
    try:
        if name.endswith(".json"):
            parse_actions(data, name, checkpoint)
        else:
            _read_parquet(checkpoint, data)
    except UNREADABLE as error:
        reason = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        raise LogContradiction(f"{subject} cannot be read ({reason})", suspect=suspect) from error


def _read_parquet(checkpoint: Actions, data: bytes) -> None:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in _TABLE_KINDS:
            for rows in batches(file, kind, ()):
                for action in rows.to_pylist(maps_as_pydicts="lossy"):
                    checkpoint.take(kind, action)
        for rows in batches(file, "add", _ADD):
            checkpoint.adds += _added_files(rows)
        for rows in batches(file, "remove", _REMOVE):
            checkpoint.removes += _removed_files(rows)


def batches(file: pq.ParquetFile, kind: str, leaves: Iterable[str]) -> Iterator[pa.StructArray]:
    """Yields the actions of one kind, with the fields in `leaves` (empty: all fields)."""
    if kind in file.schema_arrow.names:
        columns = [f"{kind}.{leaf}" for leaf in leaves] or [kind]
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            rows = batch.column(kind)
            yield rows.filter(rows.is_valid()) if rows.null_count else rows


def _added_files(rows: pa.StructArray) -> Iterable[DataFile]:
    """The `add` actions in these rows."""
    vectors = _vectors(rows)
    return made_of_columns(
        DataFile,
        len(rows),
        path=_required(rows, "path", "a string", _is_text).to_pylist(),
        size_bytes=_required(rows, "size", "an integer", is_integer).to_pylist(),
        modified_ms=_required(rows, "modificationTime", "an integer", is_integer).to_pylist(),
        partition=_partitions(rows),
        row_count=_row_counts(rows),
        # Most files have none, and a call for each of a million files takes a tenth of a second.
        deletion_vector=[each and vector_id(each) for each in vectors],
        deleted_row_count=[number(each, "cardinality") if each else 0 for each in vectors],
        compacted=repeat(False),
    )


def _removed_files(rows: pa.StructArray) -> Iterable[Tombstone]:
    """The `remove` actions in these rows."""
    return made_of_columns(
        Tombstone,
        len(rows),
        path=_required(rows, "path", "a string", _is_text).to_pylist(),
        deleted_ms=_numbers_or_none(rows, "deletionTimestamp"),
        size_bytes=_numbers_or_none(rows, "size"),
        deletion_vector=[each and vector_id(each) for each in _vectors(rows)],
    )


def _row_counts(rows: pa.StructArray) -> Iterable[int | None]:
    """The row count of each `add` action. JSON statistics are parsed only if a count is missing."""
    parsed_statistics = rows.field("stats_parsed") if _has(rows, "stats_parsed") else rows
    counts = _numbers_or_none(parsed_statistics, "numRecords")
    if None not in counts or not _has(rows, "stats"):
        return counts
    texts = rows.field("stats").to_pylist()
    return [
        row_count_of(text) if count is None else count
        for text, count in zip(texts, counts, strict=True)
    ]


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


def _numbers_or_none(rows: pa.StructArray, name: str) -> list[int | None]:
    """The values of an optional column of integers. A negative number means unknown."""
    if not _has(rows, name):
        return [None] * len(rows)
    column = rows.field(name)
    if not is_integer(column.type) and not is_null(column.type):
        raise ValueError(f"{name} is {column.type}, and must be an integer")
    return [None if each is None or each < 0 else each for each in column.to_pylist()]


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or is_large_string(kind)


def _is_map_of_texts(kind: pa.DataType) -> bool:
    return is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _vectors(rows: pa.StructArray) -> list[Mapping[str, Any] | None]:
    """The deletion vector of each row, if any."""
    if not _has(rows, "deletionVector") or rows.field("deletionVector").null_count == len(rows):
        return [None] * len(rows)
    return [
        # Some writers store a struct of nulls for a missing vector.
        vector if vector and any(value is not None for value in vector.values()) else None
        for vector in rows.field("deletionVector").to_pylist()
    ]


def _partitions(rows: pa.StructArray) -> Iterable[PartitionValues]:
    """The partition values of each row. Rows of one partition share one tuple."""
    column = _required(rows, "partitionValues", "a map of strings", _is_map_of_texts)
    names = column.keys.unique().to_pylist()
    if not names:
        return repeat(())
    # With one value in every row, these values take a third of the time.
    if len(names) == 1 and column.offsets.to_pylist() == list(range(len(rows) + 1)):
        encoded = column.items.dictionary_encode()
        values = [*encoded.dictionary.to_pylist(), None]
        partitions = [((names[0], value),) for value in values]
        # Arrow's `fill_null` would import pandas.
        codes = [-1 if code is None else code for code in encoded.indices.to_pylist()]
        return map(partitions.__getitem__, codes)
    # `column.to_pylist()` would take three times as long.
    entries = [*zip(column.keys.to_pylist(), column.items.to_pylist(), strict=True)]
    partitions = (tuple(entries[start:end]) for start, end in pairwise(column.offsets.to_pylist()))
    known = dict[PartitionValues, PartitionValues]()
    return [known.setdefault(each, each) for each in partitions]


def logged_adds(
    store: Store, table: str, versions: Iterable[int], leaves: Sequence[str] = ()
) -> Iterator[Mapping[str, Any]]:
    """Yields the `add` actions in the log files of these versions, oldest first.

    Each log file is read once, and the actions are never all in memory. Actions in Parquet files
    have the fields in `leaves` (empty: all fields). Files that a later commit removes are included.
    The last action of a path is the one at the newest of the versions that has the path.
    """
    folder = log_folder(table)
    listing = store.list(folder)
    names = dict[str, None]()  # ordered by first use
    for version in sorted({*versions}):
        segment = find_segment(listing, table, version=version)
        if segment is not None:
            names |= dict.fromkeys(file.name for file in (*segment.checkpoint, *segment.tail))
    for name, data in zip(names, store.read_many([*names]), strict=True):
        for kind, action in _actions_in(name, data, leaves):
            if kind == "add":
                yield action
                continue
            sidecar = f"{folder}_sidecars/{unquote(action['path'])}"
            for _, add in _actions_in(sidecar, store.read(sidecar), leaves):
                yield add


def _actions_in(
    name: str, data: bytes, leaves: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The `sidecar` and `add` actions in the log file `name`."""
    kinds = {"sidecar": (), "add": leaves}
    if name.endswith(".parquet"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            for kind, leaves_of_kind in kinds.items():
                for rows in batches(file, kind, leaves_of_kind):
                    for action in rows.to_pylist(maps_as_pydicts="lossy"):
                        yield kind, action
        return
    for line in data.splitlines():
        for kind, action in json.loads(line).items() if line.strip() else ():
            if kind in kinds and action:
                yield kind, action


def adds_at(
    store: Store, table: str, version: int, paths: AbstractSet[str]
) -> list[dict[str, Any]]:
    """The `add` actions of these live files of a version, as the log has them, without nulls.

    Raises:
        Broken: the log does not have the action of a file.
    """
    adds = dict[str, dict[str, Any]]()
    for action in logged_adds(store, table, [version]):
        if action["path"] in paths:
            adds[action["path"]] = {
                name: value
                for name, value in action.items()
                if value is not None and not name.endswith("_parsed")
            }
    if adds.keys() != paths:
        raise Broken(f"version {version} of {table} lacks the actions of some files")
    return list(adds.values())
