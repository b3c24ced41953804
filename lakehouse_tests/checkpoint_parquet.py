"""A checkpoint's rows as Delta 4.4.0 lays them out in Parquet."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = [
    ("path", pa.string()),
    ("partitionValues", _TEXTS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("tags", _TEXTS),
    ("deletionVector", _VECTOR),
    ("stats", pa.string()),
]
PARSED = ("stats_parsed", pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))]))
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)
OTHERS = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _TEXTS),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
}
_SIDECAR = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])


def checkpoint_parquet(rows: Sequence[Mapping[str, Any]], *, stats: str) -> bytes:
    """Rows of one action each as a Parquet file; `stats` (both, json, struct, none) says in which forms statistics are written."""
    fields = [field for field in ADD if field[0] != "stats" or stats in ("both", "json")]
    fields += [PARSED] if stats in ("both", "struct") else []
    schema = pa.schema([*OTHERS.items(), ("add", pa.struct(fields)), ("remove", REMOVE), ("sidecar", _SIDECAR)])
    table = pa.Table.from_pylist([_as_row(row) for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _as_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Dictionaries as the lists of pairs that pyarrow takes for maps, statistics also parsed."""
    shaped: dict[str, Any] = {}
    for kind, value in row.items():
        shaped[kind] = {name: _as_map(part) if name in ("partitionValues", "configuration") else part for name, part in value.items()}
        if "format" in value:
            shaped[kind]["format"] = {**value["format"], "options": _as_map(value["format"]["options"])}
        if kind == "add" and "stats" in value:
            shaped[kind]["stats_parsed"] = {"numRecords": json.loads(value["stats"]).get("numRecords")}
    return shaped


def _as_map(part: Any) -> Any:
    return list(part.items()) if isinstance(part, dict) else part
