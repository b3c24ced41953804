"""Reads and writes the rows of the cost tables, and brings `costs/operations` up to date.

1. The table's lock is taken. The operations of the last days are read from logs and journal, and
   the table's rows of these days are read.
2. One commit replaces the days whose rows differ.

**Safety properties** (tests in `test_chargeback_table.py`)
- A run that is repeated, or killed and run again, leaves the same rows.
- Operations that are no longer in a log or journal stay in the table.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.costs.chargeback_columns import midnight
from lakehouse.core.costs.exact_amounts import DIGITS, day_of
from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.costs.operations_columns import OPERATION_COLUMNS, merge_rows, operation_row
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken
from lakehouse.engine.costs.read_operations import read_operations
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.delta_writes import FrameWrite, write_frame
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import PARTITIONS_OVERWRITTEN, session_confs
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATIONS = "costs/operations"
# Each run computes today and this many days before it again, because AWS's reports arrive up to 47
# hours late. Logs and journals go back at least a week.
DAYS_BACK = 7
_ARROW_TYPES = {
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "DATE": pa.date32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    f"DECIMAL(38, {DIGITS})": pa.decimal128(38, DIGITS),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
}

# No column gets statistics. Queries select days, which are partitions, so statistics of some 70
# columns would not help.
_PROPERTIES = {"delta.dataSkippingNumIndexedCols": "0"}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsSession:
    """A lake, its tables by key, and the Spark session that writes its costs for `owner`."""

    lake: Lake
    tables: Mapping[str, Table]
    spark: "SparkSession"
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsWritten:
    """What a run wrote: days, rows, and the corrections of closed days in USD.

    `unread` maps each table whose operations could not be read to the reason.
    """

    days: tuple[date, ...] = ()
    row_count: int = 0
    corrected_usd: Decimal = Decimal(0)
    unread: Mapping[str, str] = field(default_factory=dict[str, str])


def write_operations(costs: CostsSession, *, now_ms: int) -> CostsWritten:
    """Brings `costs/operations` up to date: the operations of the last days.

    Raises:
        Transient: another process holds the table, or the server does not answer.
    """
    lake = costs.lake
    first = day_of(now_ms) - timedelta(days=DAYS_BACK)
    with hold(lake, costs.spark, OPERATIONS, owner=costs.owner):
        operations, unread = operations_since(lake, costs.tables, first)
        fresh = list[Row]()
        for each in operations:
            vcpus = costs.tables[each.table].prices.vcpus
            fresh.append(operation_row(each, lake=lake.settings.root, vcpus=vcpus))
        stored = read_rows(lake, OPERATIONS, OPERATION_COLUMNS, since=first)
        # Sorted in the same way, so that the rows of a day can be compared.
        stored_by_day = rows_by_day(merge_rows(stored, ()))
        merged_by_day = rows_by_day(merge_rows(stored, fresh))
        changed_days = list[date]()
        replacements = list[Row]()
        for day, rows in merged_by_day.items():
            if rows != stored_by_day.get(day):
                changed_days.append(day)
                replacements += rows
        if replacements:
            replace_days(costs, OPERATIONS, OPERATION_COLUMNS, replacements)
    return CostsWritten(days=tuple(changed_days), row_count=len(replacements), unread=unread)


def operations_since(
    lake: Lake, tables: Mapping[str, Table], first: date
) -> tuple[list[UpkeepOperation], dict[str, str]]:
    """The operations since the start of a day, and the error of each table that cannot be read."""
    since_ms = int(midnight(first).timestamp() * 1_000)
    readings = read_operations(lake, list(tables.values()), since_ms=since_ms)
    operations = [each for reading in readings for each in reading.value or ()]
    return operations, {each.table.key: str(each.error) for each in readings if each.error}


def read_rows(lake: Lake, key: str, columns: Mapping[str, str], *, since: date) -> list[Row]:
    """The rows of a cost table since a day, read without Spark; empty if there is no table.

    Raises:
        Broken: another program has deleted rows.
    """
    facts = lake.facts(key)
    rows = list[Row]()
    files = facts.snapshot.files if facts else ()
    for file in files:
        values = dict(file.partition)
        day = date.fromisoformat(values["x_day"] or "")
        if day < since:
            continue
        if file.deletion_vector is not None:
            raise Broken(
                f"{key}: another program has deleted rows of {file.path}. Use RESTORE to return to"
                " the version before that deletion"
            )
        data = lake.store.read(f"{key}/{unquote(file.path)}")
        # Spark may write timestamps as INT96, which Arrow reads as nanoseconds by default.
        stored = pq.read_table(io.BytesIO(data), coerce_int96_timestamp_unit="us")
        schema = arrow_schema({name: columns[name] for name in columns if name not in values})
        file_rows = stored.select(schema.names).cast(schema).to_pylist(maps_as_pydicts="strict")
        rows += [{**values, "x_day": day, **row} for row in file_rows]
    return [{name: row[name] for name in columns} for row in rows]


def replace_days(
    costs: CostsSession, key: str, columns: Mapping[str, str], rows: Sequence[Row]
) -> None:
    """Replaces the partitions of these rows in one commit."""
    with session_confs(costs.spark, {PARTITIONS_OVERWRITTEN: "dynamic"}):
        write_rows(costs, key, columns, rows, mode="overwrite")


def write_rows(
    costs: CostsSession,
    key: str,
    columns: Mapping[str, str],
    rows: Sequence[Row],
    *,
    mode: str = "append",
) -> None:
    """Writes rows in one commit. The caller holds the table's lock."""
    table = pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))
    partitions = [name for name in ("x_mode", "x_day") if name in columns]
    with translated():
        frame = costs.spark.createDataFrame(table).coalesce(1)
        write = FrameWrite(mode=mode, partition_by=partitions, properties=_PROPERTIES)
        write_frame(frame, costs.lake.table_uri(key), write)


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of columns, which map names to Spark's types."""
    return pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])


def rows_by_day(rows: Iterable[Row]) -> dict[date, list[Row]]:
    """The rows by their day."""
    days = dict[date, list[Row]]()
    for row in rows:
        days.setdefault(row["x_day"], []).append(row)
    return days
