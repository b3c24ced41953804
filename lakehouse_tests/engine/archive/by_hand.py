"""Archives days of a table without the code that does so: what readers of an archive find then."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction

from lakehouse.core.archive.partition_times import partition_spans
from lakehouse.core.archive.records import (
    APP_ID,
    ArchivedFile,
    ArchiveKind,
    ArchiveOperation,
    RecordedPartition,
)
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.engine.archive.records import archive_operations, record_operation
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import facts_of


def archive(lake: Lake, key: str, *days: str, created_ms: int = 0) -> ArchiveOperation:
    """Moves these days to the archive: the record, the copies, and the delete of their files."""
    operation = copied(lake, key, *days, created_ms=created_ms)
    apply(lake, key, operation, days)
    return operation


def copied(lake: Lake, key: str, *days: str, created_ms: int = 0) -> ArchiveOperation:
    """The same, killed before the delete."""
    snapshot = facts_of(lake, key).snapshot
    moved = [file for file in snapshot.files if file.partition[0][1] in days]
    operation = operation_of(lake, snapshot, moved, "archive", created_ms)
    record_operation(lake.store, key, operation)
    for file in operation.files:
        stored = lake.store.stat(f"{key}/{file.source}")
        assert stored is not None
        lake.store.copy(stored, file.archived)
    return operation


def apply(
    lake: Lake,
    key: str,
    operation: ArchiveOperation,
    days: Iterable[str],
    *,
    at_record: bool = True,
) -> None:
    """The commit that removes the days, and applies the operation; at the time of its record, or now."""
    column = operation.partitions[0].values[0][0]
    listed = ", ".join(f"'{day}'" for day in days)
    table = DeltaTable(lake.settings.table_uri(key))
    table.delete(
        f"{column} IN ({listed})",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": '{"rows_moved":"archive"}'},
            app_transactions=[Transaction(APP_ID, operation.number)],
        ),
    )
    if at_record:
        name = f"{key}/_delta_log/{table.version():020}.json"
        content = lake.store.read(name).decode()
        told = re.sub(r'"timestamp":\d+', f'"timestamp":{operation.created_ms or 1}', content)
        lake.store.put(name, told.encode())


def operation_of(
    lake: Lake,
    snapshot: Snapshot,
    files: Sequence[DataFile],
    kind: ArchiveKind,
    created_ms: int = 0,
) -> ArchiveOperation:
    """The record of the next operation, on these files of a table."""
    key = snapshot.table
    partitions = dict.fromkeys(file.partition for file in files)
    spans: Any = partition_spans(key, snapshot.columns, partitions)
    recorded = tuple(
        RecordedPartition(
            values=each,
            start_ms=spans[each].start_ms,
            end_ms=spans[each].end_ms,
            files=tuple(
                ArchivedFile(
                    source=file.path,
                    archived=f"archive/{key}/{file.path}",
                    size_bytes=file.size_bytes,
                    row_count=file.row_count or 0,
                )
                for file in files
                if file.partition == each
            ),
        )
        for each in partitions
    )
    return ArchiveOperation(
        number=len(archive_operations(lake.store, key)) + 1,
        kind=kind,
        table_id=snapshot.table_id,
        version=snapshot.version,
        created_ms=created_ms,
        cutoff_ms=0,
        storage_class="STANDARD",
        partitions=recorded,
    )
