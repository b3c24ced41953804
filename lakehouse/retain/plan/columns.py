"""The columns of an archive, and which of them hold the values of which column of the table.

A column is identified by its physical name, which a rename does not change. A column that was
dropped stays in the archive under its name, and a new column of that name gets another one, so that
foreign values never come back. The archive records the physical names in its property
`lakehouse.columns`, and those of fields inside structs in `lakehouse.fields`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused

_COLUMNS, _FIELDS = "lakehouse.columns", "lakehouse.fields"
# Files of the archive go by the archive's own expiry alone.
_KEPT = "interval 36500 days"
_READER_FEATURES = ("timestampNtz", "variantType", "variantType-preview")
Json = dict[str, Any]


def names_in_archive(snapshot: Snapshot, properties: Mapping[str, str]) -> dict[str, str]:
    """Column of the table -> its name in an archive with these properties; others are not there.

    Raises:
        Refused: a field inside a struct was renamed, or dropped and added again.
    """
    physical = {
        each.name: snapshot.physical_names.get(each.name, each.name) for each in snapshot.columns
    }
    recorded: Mapping[str, str] = json.loads(properties.get(_COLUMNS, "{}"))
    by_physical = {source: name for name, source in recorded.items()}
    fields: Mapping[str, str] = json.loads(properties.get(_FIELDS, "{}"))
    for path, source in _fields_of(snapshot).items():
        if fields.get(path, source) != source:
            raise Refused(
                f"archive of {snapshot.table}: the field {path} has other values than in the"
                " archive, since a field inside a struct was renamed, or dropped and added again."
                f" Use lakehouse restore {snapshot.table} --to layer/name for the archived rows"
            )
    return {name: by_physical[source] for name, source in physical.items() if source in by_physical}


def archive_metadata(
    snapshot: Snapshot, metadata: Mapping[str, Any], protocol: Mapping[str, Any], known: Json | None
) -> tuple[Json, Json]:
    """The `metaData` and `protocol` of the archive of a table with these actions.

    `known` is the archive's present metaData, or `None` for a new archive.

    Raises:
        Refused: a column changed its type, or the table is partitioned by other columns.
    """
    table_fields = cast("list[Json]", json.loads(metadata["schemaString"])["fields"])
    archived: list[Json] = [] if known is None else json.loads(known["schemaString"])["fields"]
    properties: Json = {} if known is None else dict(known["configuration"])
    names = names_in_archive(snapshot, properties)
    columns: dict[str, str] = json.loads(properties.get(_COLUMNS, "{}"))
    position = {each["name"]: index for index, each in enumerate(archived)}
    for each in table_fields:
        source = snapshot.physical_names.get(each["name"], each["name"])
        kind = _plain(each["type"])
        if each["name"] not in names:
            taken = {name.lower() for name in columns}
            name = each["name"] if each["name"].lower() not in taken else source
            names[each["name"]] = name
            columns[name] = source
            archived.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
            continue
        present = archived[position[names[each["name"]]]]
        if not _holds(present["type"], kind):
            raise Refused(
                f"archive of {snapshot.table}: column {each['name']} is {json.dumps(kind)} now, and"
                f" {json.dumps(present['type'])} in the archive. Use lakehouse restore"
                f" {snapshot.table} --into-source, so that the archive begins again"
            )
        present["type"] = kind
    partition_by = [names[name] for name in snapshot.partition_columns]
    if known is not None and known["partitionColumns"] != partition_by:
        raise Refused(
            f"archive of {snapshot.table}: the table is partitioned by {', '.join(partition_by)},"
            f" and its archive by {', '.join(known['partitionColumns'])}. Use lakehouse restore"
            f" {snapshot.table} --into-source"
        )
    properties |= {
        _COLUMNS: json.dumps(columns, sort_keys=True),
        _FIELDS: json.dumps(_fields_of(snapshot), sort_keys=True),
        "delta.logRetentionDuration": _KEPT,
        "delta.deletedFileRetentionDuration": _KEPT,
    }
    schema = {"type": "struct", "fields": archived}
    created = metadata if known is None else known
    return {
        "id": f"{metadata['id']}-archive" if known is None else known["id"],
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": partition_by,
        "configuration": properties,
        "createdTime": created.get("createdTime", 0),
    }, _protocol(protocol)


def _protocol(protocol: Mapping[str, Any]) -> Json:
    """The least protocol for the types of the table's columns."""
    features = protocol.get("writerFeatures") or []
    needed = [name for name in _READER_FEATURES if name in features]
    if not needed:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": needed,
        "writerFeatures": needed,
    }


def _fields_of(snapshot: Snapshot) -> dict[str, str]:
    """Fields inside structs by dotted path, with their physical paths; empty without mapping."""
    return {
        ".".join(path): ".".join(physical)
        for path, physical in snapshot.physical_fields.items()
        if len(path) > 1
    }


def _plain(kind: Any) -> Any:
    """A type without the metadata and requirements of its fields."""
    if not isinstance(kind, dict):
        return kind
    typed = cast("Json", kind)
    match typed.get("type"):
        case "struct":
            fields = [
                {
                    "name": each["name"],
                    "type": _plain(each["type"]),
                    "nullable": True,
                    "metadata": {},
                }
                for each in cast("Sequence[Json]", typed["fields"])
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            element = _plain(typed["elementType"])
            return {"type": "array", "elementType": element, "containsNull": True}
        case "map":
            return {
                "type": "map",
                "keyType": _plain(typed["keyType"]),
                "valueType": _plain(typed["valueType"]),
                "valueContainsNull": True,
            }
        case _:
            return typed


def _holds(old: Any, new: Any) -> bool:
    """Whether values of the type `old` can be read as `new`: equal, or with more fields."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old == new
    one, other = cast("Json", old), cast("Json", new)
    if one.get("type") != other.get("type"):
        return False
    if one["type"] == "struct":
        present = {each["name"]: each["type"] for each in other["fields"]}
        return all(
            each["name"] in present and _holds(each["type"], present[each["name"]])
            for each in one["fields"]
        )
    parts = ("elementType",) if one["type"] == "array" else ("keyType", "valueType")
    return all(_holds(one[part], other[part]) for part in parts)
