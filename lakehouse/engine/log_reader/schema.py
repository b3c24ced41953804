"""A table's metaData and protocol as the words of a `Layout`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from lakehouse.core.errors import Refused
from lakehouse.core.layout import CATALOG_FEATURES, Column, type_of_partition
from lakehouse.engine.log_reader.actions import type_of_pairs

# Reader features of Delta 4.4.0 that leave the counting of files as it is. Source: delta-io/delta v4.4.0, TableFeature.scala.
_COUNTABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "geospatial",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
# Source: PROTOCOL.md, "Clustered Table"
CLUSTERING_DOMAIN = "delta.clustering"
_CATALOG = frozenset(CATALOG_FEATURES)
# Source: PROTOCOL.md, "Valid Feature Names in Table Features": the versions that implied a feature before there were names.
_IMPLIED_BY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def features_of(protocol: Mapping[str, Any], *, table: str) -> frozenset[str]:
    """All table features, those that an old protocol version only implies included.

    Raises:
        Refused: a reader feature, or reader version, under which the log cannot be counted.
    """
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    read = frozenset(protocol.get("readerFeatures") or ())
    known = f"accepted: reader version 1 to 3 with features of {', '.join(sorted(_COUNTABLE))}"
    if catalog := sorted(read & _CATALOG):
        raise Refused(
            f"log of {table}: table feature {catalog[0]}: its newest commits are known to a catalog only, not to the log; {known}"
        )
    if reader > 3 or read - _COUNTABLE:
        found = ", ".join(sorted(read - _COUNTABLE)) or f"reader version {reader}"
        raise Refused(f"log of {table}: table feature {found} is unknown here, so its files cannot be counted for sure; {known}")
    implied = [name for version, names in _IMPLIED_BY_WRITER.items() if version <= writer < 7 for name in names]
    return read | frozenset(protocol.get("writerFeatures") or ()) | frozenset(implied)


def columns_of(metadata: Mapping[str, Any]) -> tuple[Column, ...]:
    """The table's columns by their logical names."""
    return tuple(
        Column(
            name=field["name"],
            type=_spark_type(field["type"]),
            nullable=field.get("nullable", True),
            comment=field.get("metadata", {}).get("comment", ""),
        )
        for field in json.loads(metadata["schemaString"])["fields"]
    )


def clustering_of(domain: str | None, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of liquid clustering by their logical names, of a field within one the whole path; `domain` is `CLUSTERING_DOMAIN`'s."""
    if domain is None:
        return ()
    mapped = metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none"
    logical = {physical: name for name, physical in _physical_names(metadata).items()} if mapped else {}
    paths: list[list[str]] = json.loads(domain)["clusteringColumns"]
    return tuple(".".join([logical.get(path[0], path[0]), *path[1:]]) for path in paths)


def partitioner(metadata: Mapping[str, Any], *, table: str) -> Callable[[type_of_pairs], type_of_partition]:
    """A function from a file's partition values, as its action has them, to those of a `DataFile`.

    Under column mapping, actions name columns physically. An empty value is null, as the protocol has it.
    Source: PROTOCOL.md, "Column Mapping" and "Partition Value Serialization".
    """
    names: list[str] = metadata["partitionColumns"]
    mapped = metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none"
    physical = _physical_names(metadata) if mapped else {}
    wanted = tuple((name, physical.get(name, name)) for name in names)
    known: dict[type_of_pairs, type_of_partition] = {}

    def partition_of(pairs: type_of_pairs) -> type_of_partition:
        if pairs not in known:
            values = dict(pairs)
            if values.keys() != {physical_name for _, physical_name in wanted}:
                found, own = ", ".join(values) or "nothing", ", ".join(physical_name for _, physical_name in wanted) or "nothing"
                raise Refused(
                    f"log of {table}: a file is partitioned by {found}, the table by {own}; accepted: files of the table's partitioning"
                )
            known[pairs] = tuple((name, values[physical_name] or None) for name, physical_name in wanted)
        return known[pairs]

    return partition_of


def _physical_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    fields = json.loads(metadata["schemaString"])["fields"]
    return {field["name"]: field["metadata"]["delta.columnMapping.physicalName"] for field in fields}


def _spark_type(type_: Any) -> str:
    """A type of the schema's JSON in Spark's simple spelling. Source: PROTOCOL.md, "Schema Serialization Format"."""
    if isinstance(type_, str):
        return _SPARK_NAMES.get(type_, type_)
    match type_["type"]:
        case "struct":
            fields = [f"{field['name']}:{_spark_type(field['type'])}" for field in type_["fields"]]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{_spark_type(type_['elementType'])}>"
        case "map":
            return f"map<{_spark_type(type_['keyType'])},{_spark_type(type_['valueType'])}>"
        case other:
            return str(other)
