"""The lines of a commit, or of a V2 checkpoint in JSON, as values."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakehouse.core.errors import Broken

type_of_pairs = tuple[tuple[str, str | None], ...]
# Spark writes numRecords first, which saves parsing the rest; a column of that name can only come later.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d+)[,}]')


class AddedFile(NamedTuple):
    """An `add` action; `vector` is its deletion vector's unique id, `pairs` its partition by physical column names."""

    path: str
    vector: str | None
    size_bytes: int
    modified_ms: int
    pairs: type_of_pairs
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


@dataclass(slots=True)
class Actions:
    """All actions of one file, by kind; `changes` are the paths of its change data, `info` is the commitInfo.

    A domain whose metadata was removed maps to `None`.
    """

    adds: list[AddedFile] = field(default_factory=list)
    removes: list[RemovedFile] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    info: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)
    sidecars: list[str] = field(default_factory=list)

    def take(self, kind: str, action: Mapping[str, Any]) -> None:
        """Keep one action; kinds that say nothing about the files (checkpointMetadata, …) are passed over."""
        match kind:
            case "add":
                self.adds.append(_added(action))
            case "remove":
                self.removes.append(_removed(action))
            case "cdc":
                self.changes.append(action["path"])
            case "commitInfo":
                self.info = action
            case "metaData":
                self.metadata = action
            case "protocol":
                self.protocol = action
            case "txn":
                self.transactions[action["appId"]] = action["version"]
            case "domainMetadata":
                self.domains[action["domain"]] = None if action.get("removed") else action["configuration"]
            case "sidecar":
                self.sidecars.append(action["path"])


def parse_actions(data: bytes, name: str) -> Actions:
    """The actions of the file `name`.

    Raises:
        Broken: the file is empty, or a line of it is no action; with the line's number.
    """
    actions = Actions()
    lines = data.splitlines()
    if not any(line.strip() for line in lines):
        raise Broken(f"log file {name} is empty; a commit has at least one action: restore the file")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            for kind, action in json.loads(line).items():
                if action is not None:
                    actions.take(kind, action)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Broken(
                f"log file {name}, line {number} is no Delta action ({type(error).__name__}: {error}): restore the file"
            ) from error
    return actions


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """A deletion vector's unique id. Source: PROTOCOL.md, "Deletion Vectors", derived field uniqueId."""
    if vector is None:
        return None
    identity = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    offset = vector.get("offset")
    return identity if offset is None else f"{identity}@{offset}"


def row_count_of(stats: str | None) -> int | None:
    """`numRecords` of a file's statistics; `None` where they are absent or do not have it."""
    if not stats:
        return None
    if match := _ROWS_FIRST.match(stats):
        return int(match[1])
    return json.loads(stats).get("numRecords")


def _added(action: Mapping[str, Any]) -> AddedFile:
    vector = action.get("deletionVector")
    return AddedFile(
        path=action["path"],
        vector=vector_id(vector),
        size_bytes=int(action["size"]),
        modified_ms=int(action["modificationTime"]),
        pairs=tuple(action["partitionValues"].items()),
        row_count=row_count_of(action.get("stats")),
        deleted_row_count=int(vector["cardinality"]) if vector else 0,
        data_change=bool(action["dataChange"]),
    )


def _removed(action: Mapping[str, Any]) -> RemovedFile:
    return RemovedFile(
        path=action["path"],
        vector=vector_id(action.get("deletionVector")),
        deleted_ms=action.get("deletionTimestamp"),
        size_bytes=action.get("size"),
        data_change=bool(action["dataChange"]),
    )
