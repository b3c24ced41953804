"""Parses the actions of a commit, or of a V2 checkpoint in JSON.

Any program may have written these actions. A required field that is missing, null or of another
type raises `ValueError` with the field's name and value. `parse_actions` and the readers of
checkpoints turn this error into `Broken` with the file's name.
Source: PROTOCOL.md, "Actions".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakehouse.base.errors import Broken
from lakehouse.base.paths import is_vector
from lakehouse.delta.file_columns import FileColumns, TombstoneColumns

# The errors that parsing a damaged or foreign file may raise. Deeply nested JSON raises
# RecursionError.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

TextPairs = tuple[tuple[str, str | None], ...]
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
                is_removed = flag(action, "removed")
                configuration = None if is_removed else any_text(action, "configuration")
                self.domains[text(action, "domain")] = configuration
            case "sidecar":
                self.sidecars.append((text(action, "path"), number_or_none(action, "sizeInBytes")))


def parse_actions(data: bytes, name: str) -> Actions:
    """The actions of the file `name`.

    Raises:
        Broken: the file is empty, or a line is not an action. The message names the line.
    """
    actions = Actions()
    lines = data.splitlines()
    if not any(line.strip() for line in lines):
        raise Broken(
            f"log file {name} is empty, but it must have at least one action. Restore the file"
        )
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
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


def text(action: Mapping[str, Any], name: str) -> str:
    """A string, which must not be empty."""
    value = action.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {_shown(action, name)}, and must be a nonempty string")
    return value


def any_text(action: Mapping[str, Any], name: str) -> str:
    """A string, which may be empty."""
    return "" if action.get(name) == "" else text(action, name)


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
