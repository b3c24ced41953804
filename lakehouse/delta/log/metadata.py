"""Translates a table's metaData and protocol, and reads the statistics of its files."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken, Refused
from lakehouse.delta.log.actions import (
    MALFORMED,
    Actions,
    TextPairs,
    number,
    pairs,
    part,
    text,
    texts,
)
from lakehouse.delta.log.checkpoint import batches
from lakehouse.delta.log.log_segment import find_segment, log_folder
from lakehouse.delta.protocol import CATALOG_FEATURES, COUNTABLE
from lakehouse.delta.snapshot import Column, FieldPath, LogTail, PartitionValues, Snapshot
from lakehouse.store import Store

# Source: PROTOCOL.md, "Clustered Table"
CLUSTERING_DOMAIN = "delta.clustering"
_CATALOG = frozenset(CATALOG_FEATURES)
# Writer versions, and the features that each of them added before features had names.
# Source: PROTOCOL.md, "Valid Feature Names in Table Features".
_IMPLIED_BY_WRITER = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_READER_WITH_FEATURES = 3
_WRITER_WITH_FEATURES = 7
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
# The parts of arrays and maps: their names in a field path, and their keys in the schema's JSON.
_PARTS = {"element": "elementType", "key": "keyType", "value": "valueType"}
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


class Shape(NamedTuple):
    """A table's snapshot, still without files and commit time, and how its files are partitioned.

    `partition_of` maps the partition values of an action to the partition of a `DataFile`.
    """

    snapshot: Snapshot
    partition_of: Callable[[TextPairs], PartitionValues]


def shape_of(newest: Actions, *, table: str, uri: str, version: int) -> Shape:
    """The shape of a table at a version, from its newest metadata, protocol and clustering.

    Raises:
        Broken: metadata or protocol is missing, or a required field is missing or invalid.
        Refused: a table feature or the reader version makes it impossible to count files from the
            log.
    """
    metadata = newest.metadata
    protocol = newest.protocol
    if metadata is None or protocol is None:
        missing = "protocol" if protocol is None else "metaData"
        raise Broken(
            f"log of {table}: it has no {missing} at version {version}, so its first commit or its "
            "checkpoint is damaged. Restore that file"
        )
    with _readable("metaData", table=table, version=version):
        fields: list[Mapping[str, Any]] = json.loads(text(metadata, "schemaString"))["fields"]
        columns = tuple(_column(field) for field in fields)
        partition_columns = _partition_columns(metadata, columns)
        properties = {
            name: value for name, value in pairs(metadata, "configuration") if value is not None
        }
        is_mapped = properties.get("delta.columnMapping.mode", "none") != "none"
        physical_names = _physical_names(fields) if is_mapped else {}
        physical_fields = _physical_fields(fields, physical_names) if is_mapped else {}
        table_id = text(metadata, "id")
    with _readable("protocol", table=table, version=version):
        features = _features(protocol, table=table)
    with _readable("clustering", table=table, version=version):
        domain = newest.domains.get(CLUSTERING_DOMAIN)
        clustering_columns = _clustering(domain, physical_names)
    definition = {"protocol": _without_nulls(protocol), "metaData": _without_nulls(metadata)}
    snapshot = Snapshot(
        table=table,
        uri=uri,
        version=version,
        committed_ms=0,
        files=(),
        log=LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0),
        columns=columns,
        partition_columns=partition_columns,
        clustering_columns=clustering_columns,
        physical_names=physical_names,
        physical_fields=physical_fields,
        properties=properties,
        features=features,
        table_id=table_id,
        definition=definition,
    )
    return Shape(snapshot, _partitioner(snapshot, physical_names))


@contextmanager
def _readable(kind: str, *, table: str, version: int) -> Iterator[None]:
    """Turns an error in this part of a log into `Broken`."""
    try:
        yield
    except MALFORMED as error:
        raise Broken(
            f"log of {table}: its {kind} at version {version} cannot be read "
            f"({type(error).__name__}: {error}). Restore the commit or "
            f"checkpoint that contains the {kind}"
        ) from error


def _partition_columns(metadata: Mapping[str, Any], columns: Sequence[Column]) -> tuple[str, ...]:
    names = texts(metadata, "partitionColumns")
    unknown = [name for name in names if name not in {column.name for column in columns}]
    if unknown:
        raise ValueError(
            f"partitionColumns has {unknown[0]!r}, which is not a column of schemaString"
        )
    return names


def _physical_names(fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The physical name of each column, for a table with column mapping."""
    return {text(field, "name"): text(part(field, "metadata"), _PHYSICAL_NAME) for field in fields}


def _physical_fields(
    fields: Sequence[Mapping[str, Any]], physical_names: Mapping[str, str]
) -> dict[FieldPath, FieldPath]:
    """The physical path of each nested field, by its logical path."""
    paths: dict[FieldPath, FieldPath] = {}
    for field in fields:
        name = field["name"]
        paths.update(_fields_inside(field["type"], (name,), (physical_names[name],)))
    return paths


def _features(protocol: Mapping[str, Any], *, table: str) -> frozenset[str]:
    """All table features, including the features that an old protocol version implies."""
    reader = number(protocol, "minReaderVersion")
    writer = number(protocol, "minWriterVersion")
    read = _feature_names(protocol, "readerFeatures", is_required=reader == _READER_WITH_FEATURES)
    written = _feature_names(
        protocol, "writerFeatures", is_required=writer == _WRITER_WITH_FEATURES
    )
    remedy = (
        "Use a table with reader version 1 to 3 and without reader features other than "
        f"{', '.join(sorted(COUNTABLE))}"
    )
    catalog = sorted((read | written) & _CATALOG)
    if catalog:
        raise Refused(
            f"log of {table}: table feature {catalog[0]} is not supported, since only a catalog or "
            f"coordinator may know the newest commits. {remedy}"
        )
    if reader > _READER_WITH_FEATURES or read - COUNTABLE:
        unknown = ", ".join(sorted(read - COUNTABLE))
        requirement = f"table feature {unknown}" if unknown else f"reader version {reader}"
        raise Refused(
            f"log of {table}: this program does not support {requirement}, so the table's files "
            f"cannot be counted reliably. {remedy}"
        )
    implied = set[str]()
    if writer < _WRITER_WITH_FEATURES:
        for version, names in _IMPLIED_BY_WRITER.items():
            if version <= writer:
                implied.update(names)
    return read | written | implied


def _feature_names(protocol: Mapping[str, Any], name: str, *, is_required: bool) -> frozenset[str]:
    if is_required or protocol.get(name) is not None:
        return frozenset(texts(protocol, name))
    return frozenset()


def _clustering(domain: str | None, physical: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of liquid clustering. A nested field has its full path, joined by dots.

    With column mapping, only the first name of a path is translated to the logical name.
    """
    paths: list[list[str]] = [] if domain is None else json.loads(domain)["clusteringColumns"]
    if not isinstance(paths, list) or not all(isinstance(path, list) and path for path in paths):
        raise ValueError(f"clusteringColumns is {paths!r}, and must be a list of paths")
    logical = {physical_name: name for name, physical_name in physical.items()}
    return tuple(".".join([logical.get(path[0], path[0]), *path[1:]]) for path in paths)


def _partitioner(
    shape: Snapshot, physical: Mapping[str, str]
) -> Callable[[TextPairs], PartitionValues]:
    """A function that maps the partition values of an action to the partition of a `DataFile`.

    Under column mapping, actions name columns by their `physical` names. A missing value is null,
    as in Delta, which looks values up in a map.
    Source: PROTOCOL.md, "Column Mapping" and "Partition Value Serialization".
    """
    physical_names = {name: physical.get(name, name) for name in shape.partition_columns}
    partitions: dict[TextPairs, PartitionValues] = {}

    def partition_of(pairs: TextPairs) -> PartitionValues:
        if pairs not in partitions:
            values = dict(pairs)
            if values.keys() - {*physical_names.values()}:
                of_file = ", ".join(values) or "nothing"
                of_table = ", ".join(physical_names.values()) or "nothing"
                raise Refused(
                    f"log of {shape.table}: a file is partitioned by {of_file}, the table by "
                    f"{of_table}. Restore the commit that adds the file, or rewrite the file under "
                    "the table's partitioning"
                )
            partitions[pairs] = tuple(
                (name, values.get(physical_name)) for name, physical_name in physical_names.items()
            )
        return partitions[pairs]

    return partition_of


def _column(field: Mapping[str, Any]) -> Column:
    comment = (field.get("metadata") or {}).get("comment")
    nullable = field.get("nullable", True)
    if not isinstance(nullable, bool):
        raise ValueError(
            f"nullable of column {field.get('name')!r} is {nullable!r}, and must be true or false"
        )
    return Column(
        name=text(field, "name"),
        type=_spark_type(field["type"]),
        nullable=nullable,
        comment=comment if isinstance(comment, str) else "",
    )


def _fields_inside(
    type_: Any, logical: FieldPath, physical: FieldPath
) -> Iterator[tuple[FieldPath, FieldPath]]:
    """The logical and physical path of each field inside the type at the two given paths."""
    if isinstance(type_, str):
        return
    for field in type_.get("fields", ()):
        name = text(field, "name")
        physical_name = (field.get("metadata") or {}).get(_PHYSICAL_NAME, name)
        logical_path = (*logical, name)
        physical_path = (*physical, physical_name)
        yield logical_path, physical_path
        yield from _fields_inside(field["type"], logical_path, physical_path)
    for name, key in _PARTS.items():
        if key in type_:
            yield from _fields_inside(type_[key], (*logical, name), (*physical, name))


def _spark_type(type_: Any) -> str:
    """Spark's simple spelling of a type in the schema's JSON.

    Source: PROTOCOL.md, "Schema Serialization Format".
    """
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


def _without_nulls(action: Mapping[str, Any]) -> Mapping[str, Any]:
    """The action without the null fields that it has in a Parquet checkpoint."""
    return {name: value for name, value in action.items() if value is not None}


def each_statistics(
    store: Store, table: str, versions: Iterable[int]
) -> Iterator[tuple[Sequence[int], str, str | None]]:
    """Path and statistics (JSON) of each `add` action in the log files of these versions.

    Each comes with the versions that need its log file. Every log file is read once, the oldest
    first, so the last statistics of a path are the valid ones. They are never all in memory. Files
    that a later commit removes are included; files that only a sidecar names are not.
    """
    listing = store.list(log_folder(table))
    versions_of = dict[str, list[int]]()
    for version in sorted({*versions}):
        segment = find_segment(listing, table, version=version)
        files = () if segment is None else (*segment.checkpoint, *segment.tail)
        for file in files:
            versions_of.setdefault(file.name, []).append(version)
    contents = store.read_many([*versions_of])
    for (name, versions_of_file), data in zip(versions_of.items(), contents, strict=True):
        for path, statistics in _statistics_in(name, data):
            yield versions_of_file, path, statistics


def _statistics_in(name: str, data: bytes) -> Iterator[tuple[str, str | None]]:
    """Path and statistics of each `add` action in the log file `name`."""
    if name.endswith(".parquet"):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            for rows in batches(file, "add", ("path", "stats")):
                if rows.type.get_field_index("stats") >= 0:
                    statistics = rows.field("stats").to_pylist()
                    yield from zip(rows.field("path").to_pylist(), statistics, strict=True)
        return
    for line in data.splitlines():
        add = json.loads(line).get("add") if line.strip() else None
        if add:
            yield add["path"], add.get("stats")
