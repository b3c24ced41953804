"""Parses the actions of a commit, or of a V2 checkpoint in JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

from lakehouse.core.delta.paths import is_vector
from lakehouse.core.errors import Broken
from lakehouse.engine.delta_log.fields import (
    MALFORMED,
    TextPairs,
    any_text,
    flag,
    number,
    number_or_none,
    pairs,
    part,
    text,
)

# Spark writes numRecords first, which saves parsing the rest. A column with the same name can only
# come later.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d+)[,}]')


class AddedFile(NamedTuple):
    """An `add` action.

    `vector` is the unique id of its deletion vector. `pairs` are its partition values, by physical
    column name.
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


class AddedColumns(NamedTuple):
    """`add` actions, stored as one column per field.

    `pairs[places[n]]` are the partition values of the n-th action, by physical column name. To
    create one object per action would take most of the time of reading a large log.
    """

    path: Sequence[str]
    vector: Sequence[str | None]
    size_bytes: Sequence[int]
    modified_ms: Sequence[int]
    row_count: Sequence[int | None]
    deleted_row_count: Sequence[int]
    places: Sequence[int]
    pairs: Sequence[TextPairs]

    def where(self, kept: Sequence[bool]) -> "AddedColumns":
        """The actions for which `kept` is true."""
        if all(kept):
            return self
        return self._replace(
            **{
                name: list(compress(getattr(self, name), kept))
                for name in self._fields
                if name != "pairs"
            }
        )


class RemovedColumns(NamedTuple):
    """`remove` actions, stored as one column per field.

    To create one tuple per action would take a tenth of the time of reading a large log.
    """

    path: Sequence[str]
    vector: Sequence[str | None]
    deleted_ms: Sequence[int | None]
    size_bytes: Sequence[int | None]


def removed_columns(removes: Sequence[RemovedFile]) -> RemovedColumns:
    """The same actions, by column."""
    return RemovedColumns(
        **{name: [getattr(remove, name) for remove in removes] for name in RemovedColumns._fields}
    )


def added_columns(adds: Sequence[AddedFile]) -> AddedColumns:
    """The same actions, by column."""
    columns = {
        name: [getattr(add, name) for add in adds]
        for name in AddedColumns._fields
        if name != "places"
    }
    return AddedColumns(**columns, places=range(len(adds)))


@dataclass(slots=True)
class Actions:
    """All actions in one file of the log, by kind.

    `changes` are the paths of files of change data, and `info` is the commitInfo. `sidecars` are
    pairs of path and size (`None` if unknown). A domain whose metadata was removed maps to `None`.
    Info, metadata and protocol are kept unparsed, because only the newest ones have to be valid.
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

    def learn(self, newer: "Actions") -> None:
        """Merges the newer actions that describe the table itself; ignores those on data files."""
        self.metadata, self.protocol = (
            newer.metadata or self.metadata,
            newer.protocol or self.protocol,
        )
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
                self.info = part({kind: action}, kind)
            case "metaData":
                self.metadata = part({kind: action}, kind)
            case "protocol":
                self.protocol = part({kind: action}, kind)
            case "txn":
                self.transactions[text(action, "appId")] = number(action, "version")
            case "domainMetadata":
                self.domains[text(action, "domain")] = (
                    None if flag(action, "removed") else any_text(action, "configuration")
                )
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
            f"log file {name} is empty; a commit has at least one action: restore the file"
        )
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            for kind, action in json.loads(line).items():
                if action is not None:
                    actions.take(kind, action)
        except MALFORMED as error:
            raise Broken(
                f"log file {name}, line {place} is not a Delta action ({type(error).__name__}: "
                f"{error}): restore the file"
            ) from error
    return actions


def vector_id(vector: Mapping[str, Any]) -> str:
    """A deletion vector's unique id.

    It contains `@` even if there is no offset, because a path may itself end in `@` and a number.
    Source: PROTOCOL.md, "Deletion Vectors", derived field uniqueId.
    """
    identity, offset = (
        f"{text(vector, 'storageType')}{text(vector, 'pathOrInlineDv')}",
        number_or_none(vector, "offset"),
    )
    if not is_vector(identity):
        raise ValueError(f"{identity!r} is not a deletion vector")
    return f"{identity}@{'' if offset is None else offset}"


def row_count_of(stats: str | None) -> int | None:
    """`numRecords` of a file's statistics; `None` if the statistics or the field are missing."""
    if not stats:
        return None
    if match := _ROWS_FIRST.match(stats):
        return int(match[1])
    return number_or_none(json.loads(stats), "numRecords")


def _added(action: Mapping[str, Any]) -> AddedFile:
    vector = None if action.get("deletionVector") is None else part(action, "deletionVector")
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
    return RemovedFile(
        path=text(action, "path"),
        vector=None
        if action.get("deletionVector") is None
        else vector_id(part(action, "deletionVector")),
        deleted_ms=number_or_none(action, "deletionTimestamp"),
        size_bytes=number_or_none(action, "size"),
        data_change=flag(action, "dataChange"),
    )
