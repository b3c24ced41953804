"""Reads actions of a log as they are stored, for commits that have to repeat their fields."""

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.errors import Broken
from lakehouse.engine.delta_log.checkpoint import batches, compute
from lakehouse.engine.delta_log.log_segment import find_segment, log_folder
from lakehouse.engine.store import Store

Action = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class RawActions:
    """The newest `metaData` and `protocol` of a version, and `add` actions by path."""

    metadata: Action
    protocol: Action
    adds: dict[str, Action] = field(default_factory=dict[str, Action])


def read_raw_actions(store: Store, table: str, version: int, paths: Set[str]) -> RawActions:
    """The table's metadata and protocol at `version`, and the newest `add` of each of `paths`.

    Files that only the sidecars of a V2 checkpoint name are missing in the result.

    Raises:
        Broken: the log has no metadata or protocol.
    """
    segment = find_segment(store.list(log_folder(table)), table, version=version)
    names = [] if segment is None else [f.name for f in (*segment.checkpoint, *segment.tail)]
    metadata: Action | None = None
    protocol: Action | None = None
    adds = dict[str, Action]()
    for name, data in zip(names, store.read_many(names), strict=True):
        for kind, action in _actions_in(name, data, paths):
            if kind == "metaData":
                metadata = action
            elif kind == "protocol":
                protocol = action
            elif action["path"] in paths:
                adds[action["path"]] = action
    if metadata is None or protocol is None:
        raise Broken(f"log of {table}: version {version} has no metaData or no protocol")
    return RawActions(metadata=metadata, protocol=protocol, adds=adds)


def _actions_in(name: str, data: bytes, paths: Set[str]) -> Iterator[tuple[str, Action]]:
    kinds = ("metaData", "protocol", "add")
    if not name.endswith(".parquet"):
        for line in data.splitlines():
            for kind, action in (json.loads(line) if line.strip() else {}).items():
                if kind in kinds and action is not None:
                    yield kind, action
        return
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in ("metaData", "protocol"):
            for rows in batches(file, kind, ()):
                for action in rows.to_pylist(maps_as_pydicts="strict"):
                    yield kind, _without_nulls(action)
        wanted = pa.array(sorted(paths), pa.string())
        for rows in batches(file, "add", ()):
            is_wanted = compute().is_in(rows.field("path").cast(pa.string()), wanted)
            chosen = rows.filter(is_wanted)
            for action in chosen.to_pylist(maps_as_pydicts="strict"):
                action.pop("stats_parsed", None)
                action.pop("partitionValues_parsed", None)
                yield "add", _without_nulls(action)


def _without_nulls(action: Mapping[str, Any]) -> Action:
    return {name: value for name, value in action.items() if value is not None}
