"""Reads a log's `metaData` as it is stored, for commits that have to repeat its fields."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.errors import Broken
from lakehouse.engine.delta_log.checkpoint import batches
from lakehouse.engine.delta_log.log_segment import find_segment, log_folder
from lakehouse.engine.store import Store


def read_raw_metadata(store: Store, table: str, version: int) -> Mapping[str, Any]:
    """The newest `metaData` of a table at `version`.

    Raises:
        Broken: the log has no metadata.
    """
    segment = find_segment(store.list(log_folder(table)), table, version=version)
    names = [] if segment is None else [f.name for f in (*segment.checkpoint, *segment.tail)]
    metadata: Mapping[str, Any] | None = None
    for name, data in zip(names, store.read_many(names), strict=True):
        metadata = _metadata_in(name, data) or metadata
    if metadata is None:
        raise Broken(f"log of {table}: version {version} has no metaData")
    return metadata


def _metadata_in(name: str, data: bytes) -> Mapping[str, Any] | None:
    metadata: Mapping[str, Any] | None = None
    if not name.endswith(".parquet"):
        for line in data.splitlines():
            action = json.loads(line) if line.strip() else {}
            metadata = action.get("metaData") or metadata
        return metadata
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for rows in batches(file, "metaData", ()):
            for action in rows.to_pylist(maps_as_pydicts="strict"):
                metadata = {name: value for name, value in action.items() if value is not None}
    return metadata
