"""The lake's history: `_lakehouse/operations`, a Delta table with a row for each ended operation.

Any Delta reader can query it. A process that is killed between a table's commit and its row leaves
no row; the table's own log still has the commit.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.predicted_and_actual import Figure
from lakehouse.base.text import DAY_MS
from lakehouse.declare.upkeep_records import UpkeepOperation, VacuumRecord
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_table import TIME, StateTable

OPERATIONS = "_lakehouse/operations"
_FIGURES = pa.map_(pa.string(), pa.float64())
_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("kind", pa.string()),
        ("operation_id", pa.string()),
        ("started_at", TIME),
        ("ended_at", TIME),
        ("result", pa.string()),
        ("reason", pa.string()),
        ("why", pa.string()),
        ("run", pa.string()),
        ("by_person", pa.bool_()),
        ("seconds", pa.float64()),
        ("vcpu_seconds", pa.float64()),
        ("usd", pa.float64()),
        ("requests", pa.map_(pa.string(), pa.int64())),
        ("predicted", _FIGURES),
        ("actual", _FIGURES),
        ("detail", pa.string()),
    ]
)
# Should include the last vacuum that searched storage (mode INVENTORY or FULL), because its time
# decides whether a new search is due. Otherwise, the next vacuum searches early, which is safe.
_VACUUM_DAYS = 90
_LOG = logging.getLogger(__name__)


def read_operations(
    lake: Lake, table_key: str | None = None, *, kind: str = "", since_ms: int = 0
) -> list[UpkeepOperation]:
    """The operations that ended at `since_ms` or later, in the order of their end.

    Only those of one table and of one kind, if given. Raises as `StateTable.read`.
    """
    found = [
        each
        for each in _TABLE.read(lake, table_key, written_since_ms=since_ms)
        if each.ended_ms >= since_ms and kind in ("", each.kind)
    ]
    return sorted(found, key=lambda each: each.ended_ms)


def vacuum_records(lake: Lake, table_key: str) -> tuple[VacuumRecord, ...]:
    """The vacuums of a table in the last `_VACUUM_DAYS`, oldest first.

    Records of another version of this program are omitted. If no search for orphans is left, the
    next vacuum searches again.

    Raises:
        Broken: the lake's operations cannot be read.
    """
    since_ms = now_ms() - _VACUUM_DAYS * DAY_MS
    records = list[VacuumRecord]()
    for each in read_operations(lake, table_key, kind="vacuum", since_ms=since_ms):
        with suppress(TypeError):
            records.append(VacuumRecord(**each.detail))
    return tuple(records)


def record_operation(lake: Lake, operation: UpkeepOperation) -> None:
    """Adds an operation. Raises as `StateTable.append`."""
    _TABLE.append(lake, [operation])


def record_if_possible(lake: Lake, operation: UpkeepOperation) -> None:
    """Adds an operation whose outcome must not be hidden by an error of the history."""
    try:
        record_operation(lake, operation)
    except LakehouseError as error:
        _LOG.warning(
            "the %s of %s is not in the lake's history: %s", operation.kind, operation.table, error
        )


def _as_row(operation: UpkeepOperation) -> dict[str, Any]:
    return {
        "table": operation.table,
        "kind": operation.kind,
        "operation_id": operation.operation_id,
        "started_at": operation.started_ms,
        "ended_at": operation.ended_ms,
        "result": operation.result,
        "reason": operation.reason,
        "why": operation.why,
        "run": operation.run,
        "by_person": operation.by_person,
        "seconds": operation.seconds,
        "vcpu_seconds": operation.vcpu_seconds,
        "usd": operation.usd,
        "requests": [*(operation.requests or {}).items()],
        "predicted": [(each.name, each.predicted) for each in operation.figures],
        "actual": [(each.name, each.actual) for each in operation.figures],
        "detail": json.dumps(operation.detail, separators=(",", ":")),
    }


def _from_row(row: Mapping[str, Any]) -> UpkeepOperation:
    values = dict(row)
    predicted, actual = dict(values.pop("predicted")), dict(values.pop("actual"))
    return UpkeepOperation(
        started_ms=values.pop("started_at"),
        ended_ms=values.pop("ended_at"),
        requests=dict(values.pop("requests")),
        figures=tuple(Figure(name, predicted[name], actual[name]) for name in predicted),
        detail=json.loads(values.pop("detail")),
        **values,
    )


_TABLE = StateTable(
    OPERATIONS,
    _SCHEMA,
    to_row=_as_row,
    from_row=_from_row,
)
