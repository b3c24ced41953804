"""The rows of `costs/operations`, under the column names of Databricks' system table.

Source: Databricks, "Predictive optimization system table reference",
`system.storage.predictive_optimization_operations_history`. Custom columns begin with `x_`.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from lakehouse.core.costs.exact_amounts import EXACT, day_of, decimal_of, rounded
from lakehouse.core.costs.operations import UpkeepOperation

# Name -> type as Spark spells it.
OPERATION_COLUMNS: Mapping[str, str] = {
    "account_id": "STRING",
    "workspace_id": "STRING",
    "start_time": "TIMESTAMP",
    "end_time": "TIMESTAMP",
    "metastore_name": "STRING",
    "metastore_id": "STRING",
    "catalog_name": "STRING",
    "schema_name": "STRING",
    "table_id": "STRING",
    "table_name": "STRING",
    "operation_type": "STRING",
    "operation_id": "STRING",
    "operation_status": "STRING",
    "operation_metrics": "MAP<STRING, STRING>",
    "usage_unit": "STRING",
    "usage_quantity": "DECIMAL(38, 18)",
    "x_predicted_quantity": "DECIMAL(38, 18)",
    "x_usd": "DECIMAL(38, 18)",
    "x_reason": "STRING",
    "x_run_id": "STRING",
    "x_day": "DATE",
}
CATALOG = "lakehouse"
# Our figures -> Databricks' metrics. Other figures keep their names. The `files` of an archive run
# count as deleted, too, although they only left the table, not the storage.
_METRICS = {
    "files_removed": "number_of_compacted_files",
    "bytes_removed": "amount_of_data_compacted_bytes",
    "files_added": "number_of_output_files",
    "bytes_added": "amount_of_output_data_bytes",
    "files": "number_of_deleted_files",
    "bytes": "amount_of_data_deleted_bytes",
}
# Figures that have columns of their own, and so are not in `operation_metrics`.
_OWN_COLUMNS = ("seconds", "usd")


def operation_row(operation: UpkeepOperation, *, lake: str, vcpus: float) -> dict[str, Any]:
    """The row of one operation.

    `lake` is the lake's address. `vcpus` is the number of vCPUs that the driver uses: the predicted
    quantity is the predicted seconds times `vcpus`, in vCPU-hours.
    """
    layer, _, name = operation.table.partition("/")
    predicted = {figure.name: figure.predicted for figure in operation.figures}
    seconds = predicted.get("seconds")
    metrics = dict[str, str]()
    for figure in operation.figures:
        if figure.actual is not None and figure.name not in _OWN_COLUMNS:
            metrics[_METRICS.get(figure.name, figure.name)] = _metric_text(figure.actual)
    started_ms = operation.started_ms
    return {
        "account_id": lake,
        "workspace_id": lake,
        "start_time": None if started_ms is None else _time(started_ms),
        "end_time": _time(operation.ended_ms),
        "metastore_name": None,
        "metastore_id": None,
        "catalog_name": CATALOG,
        "schema_name": layer,
        "table_id": operation.table,
        "table_name": name,
        "operation_type": operation.kind.upper(),
        "operation_id": operation.operation_id,
        "operation_status": "SUCCESSFUL" if operation.is_ok else "FAILED: INTERNAL_ERROR",
        "operation_metrics": metrics,
        "usage_unit": "VCPU_HOURS",
        "usage_quantity": _hours(operation.vcpu_seconds),
        "x_predicted_quantity": _hours(None if seconds is None else seconds * vcpus),
        "x_usd": None if operation.usd is None else rounded(decimal_of(operation.usd)),
        "x_reason": operation.reason,
        "x_run_id": operation.run_id,
        "x_day": day_of(operation.ended_ms),
    }


def merge_rows(
    stored: Iterable[Mapping[str, Any]], fresh: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Merges stored and fresh rows, sorted by table, type and id.

    A fresh row replaces the stored row of the same operation. All other stored rows are kept, even
    if the logs and the journal no longer hold their operations.
    """
    rows = {_identity(row): dict(row) for row in (*stored, *fresh)}
    return [rows[key] for key in sorted(rows)]


def _metric_text(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["table_id"], row["operation_type"], row["operation_id"]


def _hours(vcpu_seconds: float | None) -> Decimal | None:
    if vcpu_seconds is None:
        return None
    return rounded(EXACT.divide(decimal_of(vcpu_seconds), Decimal(3600)))


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
