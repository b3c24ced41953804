"""A checkpoint's rows as Delta 4.4.0 lays them out in Parquet."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT = pa.string()
_LONG = pa.int64()
_INT = pa.int32()
_TRUTH = pa.bool_()
_LIST = pa.list_(pa.string())
_TEXTS = pa.map_(_TEXT, _TEXT)
_VECTOR = pa.struct(
    {
        "storageType": _TEXT,
        "pathOrInlineDv": _TEXT,
        "offset": _INT,
        "sizeInBytes": _INT,
        "cardinality": _LONG,
    }
)
_FILE = [
    ("path", _TEXT),
    ("partitionValues", _TEXTS),
    ("size", _LONG),
    ("dataChange", _TRUTH),
    ("deletionVector", _VECTOR),
]
ADD = [*_FILE, ("modificationTime", _LONG), ("tags", _TEXTS), ("stats", _TEXT)]
PARSED = ("stats_parsed", pa.struct({"numRecords": _LONG, "minValues": pa.struct({"id": _LONG})}))
REMOVE = pa.struct([*_FILE, ("deletionTimestamp", _LONG), ("extendedFileMetadata", _TRUTH)])
_FORMAT = pa.struct({"provider": _TEXT, "options": _TEXTS})
_SCHEMA = {"schemaString": _TEXT, "partitionColumns": _LIST}
OTHERS = {
    "txn": pa.struct({"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG}),
    "metaData": pa.struct(
        {"id": _TEXT, "format": _FORMAT, **_SCHEMA, "configuration": _TEXTS, "createdTime": _LONG}
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": _INT,
            "minWriterVersion": _INT,
            "readerFeatures": _LIST,
            "writerFeatures": _LIST,
        }
    ),
    "domainMetadata": pa.struct({"domain": _TEXT, "configuration": _TEXT, "removed": _TRUTH}),
}
_SIDECAR = pa.struct({"path": _TEXT, "sizeInBytes": _LONG, "modificationTime": _LONG})


def checkpoint_parquet(rows: Sequence[Mapping[str, Any]], *, stats: str) -> bytes:
    """Rows of one action each as a Parquet file; `stats` (both, json, struct, none) says in which forms statistics are written."""
    fields = [field for field in ADD if field[0] != "stats" or stats in ("both", "json")]
    fields += [PARSED] if stats in ("both", "struct") else []
    schema = pa.schema(
        [*OTHERS.items(), ("add", pa.struct(fields)), ("remove", REMOVE), ("sidecar", _SIDECAR)]
    )
    table = pa.Table.from_pylist([_as_row(row) for row in rows], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _as_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Dictionaries as the lists of pairs that pyarrow takes for maps, statistics also parsed."""
    shaped: dict[str, Any] = {}
    for kind, value in row.items():
        shaped[kind] = {
            name: _as_map(part) if name in ("partitionValues", "configuration") else part
            for name, part in value.items()
        }
        if "format" in value:
            shaped[kind]["format"] = {
                **value["format"],
                "options": _as_map(value["format"]["options"]),
            }
        if kind == "add" and "stats" in value:
            shaped[kind]["stats_parsed"] = {
                "numRecords": json.loads(value["stats"]).get("numRecords")
            }
    return shaped


def _as_map(part: Any) -> Any:
    return list(part.items()) if isinstance(part, dict) else part
