"""Reads a bill (a FOCUS export as Parquet or CSV), and splits its rows among the lake's tables."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lakehouse.core.costs.bill_allocation import select_rows
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.engine.costs.chargeback_table import write_allocated
from lakehouse.engine.costs.operations_table import CostsSession
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.open_session import connect


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedBill:
    """A bill after its allocation.

    `billed_rows` of its rows, with a total BilledCost of `billed`, were split into `row_count` rows
    of `costs/chargeback`.
    """

    bill: str
    billed_rows: int
    billed: Decimal
    currency: str
    row_count: int

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `lakehouse costs --bill`."""
        return {
            "bill": self.bill,
            "billed_rows": self.billed_rows,
            "billed": str(self.billed),
            "currency": self.currency,
            "row_count": self.row_count,
        }


def allocate_bill(
    lake: Lake, tables: Mapping[str, Table], bill: Path, *, resource: str
) -> AllocatedBill:
    """Splits the rows of a bill whose ResourceId names `resource`, and writes the result.

    Afterwards, this process's Spark session is stopped.

    Raises:
        Refused: the file is not a FOCUS export, none of its rows names the resource, or no stored
            bytes are known for its period.
        Transient: another process holds `costs/chargeback`, or the server does not answer.
    """
    rows = select_rows(_read(bill), resource=resource, name=bill.name)
    spark = connect(lake.settings)
    try:
        costs = CostsSession(lake=lake, tables=tables, spark=spark, owner=f"allocate {bill.name}")
        row_count = write_allocated(costs, rows, name=bill.name)
    finally:
        spark.stop()
    billed_costs = [Decimal(str(row["BilledCost"])) for row in rows]
    return AllocatedBill(
        bill=bill.name,
        billed_rows=len(rows),
        billed=sum(billed_costs, Decimal(0)),
        currency=str(rows[0]["BillingCurrency"]),
        row_count=row_count,
    )


def _read(bill: Path) -> list[dict[str, Any]]:
    try:
        if bill.suffix == ".parquet":
            return pq.read_table(bill).to_pylist()
        with bill.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise Refused(f"{bill} cannot be read ({error}). Use Parquet or CSV in UTF-8") from error
