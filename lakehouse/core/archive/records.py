"""The record of an operation on a table's archive, and its JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lakehouse.core.delta.snapshot import FieldPath, PartitionValues, Snapshot

# The application id of this program's `txn` actions in a table's log. The version of such an action
# is the number of the archive or restore operation that its commit applied.
APP_ID = "lakehouse-archive"
ArchiveKind = Literal["archive", "restore", "expire", "folded"]
# A record of one of these kinds always counts as applied. `expire` has no commit. A folded record
# replaces only applied operations, and has the number of the newest one. This number may be that of
# an `expire`, so that it is greater than the version of the log's `txn` action.
_ALWAYS_APPLIED = ("expire", "folded")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file of the archive.

    - `source`: the file that was copied. For a file of the table, its path in the log. For a file
      that Spark wrote because the rows had to be rewritten, its name in the lake.
    - `archived`: the name of the archived file in the lake.
    - `checksum`: the checksum of the content. Its prefix names the method.
    """

    source: str
    archived: str
    size_bytes: int
    row_count: int
    checksum: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPartition:
    """One partition of an operation.

    - `values`: pairs of column and value, as the log spells them.
    - `start_ms`, `end_ms`: the partition's time span; `end_ms` is exclusive.
    - `rewritten`: the paths, in the log, of the table's files whose rows Spark rewrote. It is empty
      if the files were copied.
    """

    values: PartitionValues
    start_ms: int
    end_ms: int
    files: tuple[ArchivedFile, ...]
    rewritten: tuple[str, ...] = ()

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the archived files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def sources(self) -> tuple[str, ...]:
        """For an `archive`: the log's paths of the files that it removes from the table."""
        return self.rewritten or tuple(file.source for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOperation:
    """One operation on a table's archive.

    `number` counts the operations of one table key from 1, without gaps. The kinds:

    - `archive`: moves partitions to the archive. `restore`: moves them back into the table. Both
      are applied if the version of the `APP_ID` transaction in the log is at least `number`.
    - `expire`: removes partitions from the archive. Applied as soon as its record is written.
    - `folded`: replaces all records up to its number, after their archived files were deleted. It
      lists, without files, the partitions that these operations archived and did not restore.

    `version` is the table's version for which the operation was planned. If the table uses column
    mapping, Spark rewrites all archived rows with logical column names. `names` maps the physical
    names of columns to these logical names, and `field_names` maps the physical paths of fields
    inside structs to theirs. Without column mapping, both are empty.
    """

    number: int
    kind: ArchiveKind
    table_id: str
    version: int
    created_ms: int
    cutoff_ms: int
    storage_class: str
    partitions: tuple[RecordedPartition, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    field_names: Mapping[FieldPath, str] = field(default_factory=dict[FieldPath, str])

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(each.row_count for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of the archived files."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def files(self) -> tuple[ArchivedFile, ...]:
        """The files of all partitions."""
        return tuple(file for each in self.partitions for file in each.files)

    @property
    def sources(self) -> frozenset[str]:
        """For an `archive`: the log's paths of the files that it removes from the table."""
        return frozenset(path for each in self.partitions for path in each.sources)

    def is_applied_to(self, snapshot: Snapshot) -> bool:
        """Whether the operation is part of this version of its table."""
        if self.table_id != snapshot.table_id:
            return False
        if self.kind in _ALWAYS_APPLIED:
            return True
        return self.number <= snapshot.transactions.get(APP_ID, 0)


def encode_operation(operation: ArchiveOperation) -> bytes:
    """The JSON document of a record."""
    content: dict[str, Any] = {
        "number": operation.number,
        "kind": operation.kind,
        "table_id": operation.table_id,
        "version": operation.version,
        "created_ms": operation.created_ms,
        "cutoff_ms": operation.cutoff_ms,
        "storage_class": operation.storage_class,
        "partitions": [_encoded(each) for each in operation.partitions],
    }
    if operation.names:
        content["names"] = dict(operation.names)
    if operation.field_names:
        content["field_names"] = [*operation.field_names.items()]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def decode_operation(data: bytes) -> ArchiveOperation:
    """The record in a JSON document.

    Raises:
        ValueError, KeyError, TypeError: the document is damaged.
    """
    content: dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
    if content["kind"] not in get_args(ArchiveKind):
        raise ValueError(f"unknown kind {content['kind']!r}")
    names = content.get("names", {})
    field_names = content.get("field_names", ())
    return ArchiveOperation(
        number=int(content["number"]),
        kind=content["kind"],
        table_id=str(content["table_id"]),
        version=int(content["version"]),
        created_ms=int(content["created_ms"]),
        cutoff_ms=int(content["cutoff_ms"]),
        storage_class=str(content["storage_class"]),
        partitions=tuple(_decoded(each) for each in content["partitions"]),
        names={str(physical): str(logical) for physical, logical in names.items()},
        field_names={tuple(map(str, path)): str(logical) for path, logical in field_names},
    )


def _encoded(partition: RecordedPartition) -> dict[str, Any]:
    content: dict[str, Any] = {
        "values": dict(partition.values),
        "start_ms": partition.start_ms,
        "end_ms": partition.end_ms,
        # Totals for people who read the JSON. `_decoded` derives them from the files.
        "rows": partition.row_count,
        "bytes": partition.size_bytes,
        "files": [
            {
                "source": file.source,
                "archived": file.archived,
                "bytes": file.size_bytes,
                "rows": file.row_count,
                "checksum": file.checksum,
            }
            for file in partition.files
        ],
    }
    if partition.rewritten:
        content["rewritten"] = [*partition.rewritten]
    return content


def _decoded(content: Mapping[str, Any]) -> RecordedPartition:
    return RecordedPartition(
        values=tuple(content["values"].items()),
        start_ms=int(content["start_ms"]),
        end_ms=int(content["end_ms"]),
        files=tuple(
            ArchivedFile(
                source=str(file["source"]),
                archived=str(file["archived"]),
                size_bytes=int(file["bytes"]),
                row_count=int(file["rows"]),
                checksum=str(file["checksum"]),
            )
            for file in content["files"]
        ),
        rewritten=tuple(map(str, content.get("rewritten", ()))),
    )
