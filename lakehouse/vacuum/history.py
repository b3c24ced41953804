"""Past vacuums: rows of the lake's operations, each with a `VacuumRecord` as its detail."""

from contextlib import suppress
from dataclasses import asdict
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.predicted_and_actual import Figure
from lakehouse.base.text import DAY_MS
from lakehouse.declare.journal_records import UpkeepOperation, VacuumRecord
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations, record_operation

# Should include the last vacuum that searched storage (mode INVENTORY or FULL), because its time
# decides whether a new search is due. Otherwise, the next vacuum searches early, which is safe.
_DAYS = 90


def record_vacuum(lake: Lake, table: Table, record: VacuumRecord) -> None:
    """Adds a vacuum that has ended, successfully or not. Raises as `record_operation`."""
    operation = UpkeepOperation(
        table=table.key,
        kind="vacuum",
        operation_id=uuid4().hex,
        started_ms=record.started_ms,
        ended_ms=record.ended_ms,
        result="failed" if record.failed else "succeeded",
        reason="VACUUM_DUE" if record.predicted_files else "NOTHING_PAST",
        run=record.run,
        seconds=record.seconds,
        vcpu_seconds=record.seconds * table.prices.vcpus,
        requests=dict(record.requests),
        usd=record.usd,
        figures=(
            Figure("files", record.predicted_files, record.deleted_files),
            Figure("bytes", record.predicted_bytes, record.deleted_bytes),
            Figure("requests", record.predicted_requests, sum(record.requests.values())),
            Figure("seconds", round(record.predicted_seconds, 3), round(record.seconds, 3)),
            Figure("usd", record.predicted_usd, record.usd),
        ),
        detail=asdict(record),
    )
    record_operation(lake, operation)


def vacuum_records(lake: Lake, table_key: str) -> tuple[VacuumRecord, ...]:
    """The vacuums of a table in the last `_DAYS`, oldest first.

    Records of another version of this program are omitted. If no search for orphans is left, the
    next vacuum searches again.

    Raises:
        Broken: the lake's operations cannot be read.
    """
    since_ms = now_ms() - _DAYS * DAY_MS
    records = list[VacuumRecord]()
    for each in read_operations(lake, table_key, kind="vacuum", since_ms=since_ms):
        with suppress(TypeError):
            records.append(VacuumRecord(**each.detail))
    return tuple(records)
