"""Reads upkeep operations and stored bytes, and writes and reads `costs/chargeback`.

1. The table's lock is taken. The day of the newest inventory gets its storage, and each of the last
   days gets its operations, from the lake's operations.
2. One commit replaces the days whose rows differ.

**Safety properties** (tests in `watch/costs/test_run.py`)
- A run that is repeated, or killed and run again, leaves the same rows.
- What is recorded stays if the inventory or the operations no longer show it.
- A day without an inventory has no rows for storage; they are unknown, not 0.
"""

import io
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Refused
from lakehouse.declare.prices import PriceBook
from lakehouse.declare.table import Table
from lakehouse.lake.commits import refuse_deleted_rows
from lakehouse.lake.declared_tables import load_price_book
from lakehouse.lake.lake import Lake
from lakehouse.lake.lease import hold
from lakehouse.lake.state_tables import read_operations
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import FrameWrite, write_frame
from lakehouse.spark.temporary_confs import PARTITIONS_OVERWRITTEN, session_confs
from lakehouse.vacuum.inventory.run import known_inventories, reconcile_inventory
from lakehouse.watch.costs.plan import (
    Charge,
    day_of,
    midnight,
    operation_charges,
    row_of,
    storage_charges,
    updated,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CHARGEBACK = "costs/chargeback"
# Each run computes the operations of today and of this many days before it.
_DAYS_BACK = 7
_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
# In Spark, the product of a quantity and a price has the type of a cost, so it loses no digit.
_QUANTITY = pa.decimal128(22, 12)
_PRICE = pa.decimal128(15, 12)
_COST = pa.decimal128(38, 24)
# - x_part: for storage, the use of the objects (a `Part` in lower case); else the operation's kind.
# - x_bytes: the stored bytes; null for operations.
COLUMNS = pa.schema(
    {
        "BillingAccountId": _TEXT,
        "BillingCurrency": _TEXT,
        "BillingPeriodStart": _TIME,
        "BillingPeriodEnd": _TIME,
        "ChargePeriodStart": _TIME,
        "ChargePeriodEnd": _TIME,
        "ChargeCategory": _TEXT,
        "ServiceCategory": _TEXT,
        "RegionId": _TEXT,
        "SubAccountId": _TEXT,
        "ResourceId": _TEXT,
        "ResourceName": _TEXT,
        "SkuId": _TEXT,
        "Tags": _TEXT,
        "ConsumedQuantity": _QUANTITY,
        "ConsumedUnit": _TEXT,
        "PricingQuantity": _QUANTITY,
        "PricingUnit": _TEXT,
        "ListUnitPrice": _PRICE,
        "ContractedUnitPrice": _PRICE,
        "ListCost": _COST,
        "ContractedCost": _COST,
        "EffectiveCost": _COST,
        "BilledCost": _COST,
        "x_day": pa.date32(),
        "x_table": _TEXT,
        "x_owner": _TEXT,
        "x_part": _TEXT,
        "x_bytes": pa.int64(),
    }
)
# The columns of a data file, which may lack the partition.
_STORED = pa.schema([each for each in COLUMNS if each.name != "x_day"])
# No column gets statistics: queries select days, which are partitions.
_PROPERTIES = {"delta.dataSkippingNumIndexedCols": "0"}


def write_chargeback(
    lake: Lake, tables: Mapping[str, Table], *, spark: "SparkSession", owner: str, now_ms: int
) -> list[Charge]:
    """Brings the table up to date; returns all charges of the days that changed.

    Raises:
        Refused: the table has other columns.
        Transient: another process holds the table, or the server does not answer.
    """
    with hold(lake, spark, CHARGEBACK, owner=owner):
        book = load_price_book(lake.settings)
        current = defaultdict[date, list[Charge]](list)
        recorded = defaultdict[date, list[Charge]](list)
        for charge in _current_charges(lake, tables, book, now_ms=now_ms):
            current[charge["x_day"]].append(charge)
        for charge in read_charges(lake, since=min(current, default=day_of(now_ms))):
            recorded[charge["x_day"]].append(charge)
        written = list[Charge]()
        for day in sorted(current):
            charges = updated(recorded[day], current[day])
            if charges != updated([], recorded[day]):
                written += charges
        if written:
            table = pa.Table.from_pylist(written, schema=COLUMNS)
            write = FrameWrite(mode="overwrite", partition_by=["x_day"], properties=_PROPERTIES)
            with translated(), session_confs(spark, {PARTITIONS_OVERWRITTEN: "dynamic"}):
                frame = spark.createDataFrame(table).coalesce(1)
                write_frame(frame, lake.table_uri(CHARGEBACK), write)
    return written


def read_charges(lake: Lake, *, since: date) -> list[Charge]:
    """The recorded charges since a day, read without Spark; empty if there is no table.

    Raises:
        Refused: an earlier version wrote the table, with other columns.
        Broken: another program has deleted rows.
    """
    facts = lake.facts(CHARGEBACK)
    if facts is None:
        return []
    if [each.name for each in facts.snapshot.columns] != COLUMNS.names:
        raise Refused(
            f"{CHARGEBACK}: an earlier version wrote this table, with other columns. Move"
            f" {lake.table_uri(CHARGEBACK)} to another place; the next inventory begins a new one"
        )
    charges = list[Charge]()
    for file in facts.snapshot.files:
        values = dict(file.partition)
        day = date.fromisoformat(values["x_day"] or "")
        if day < since:
            continue
        refuse_deleted_rows(CHARGEBACK, [file])
        data = lake.store.read(f"{CHARGEBACK}/{unquote(file.path)}")
        # Spark may write timestamps as INT96, which Arrow reads as nanoseconds by default.
        stored = pq.read_table(io.BytesIO(data), coerce_int96_timestamp_unit="us")
        rows = stored.select(_STORED.names).cast(_STORED)
        charges += [{**row, "x_day": day} for row in rows.to_pylist()]
    return charges


def _current_charges(
    lake: Lake, tables: Mapping[str, Table], book: PriceBook, *, now_ms: int
) -> list[Charge]:
    """The charges by the newest inventory, if there is one, and by the operations."""
    first = day_of(now_ms) - timedelta(days=_DAYS_BACK)
    operations = read_operations(lake, since_ms=int(midnight(first).timestamp() * 1_000))
    known = [each for each in operations if each.table in tables]
    charges = operation_charges(known, tables, book)
    for inventory in known_inventories(lake)[:1]:
        reconciled = reconcile_inventory(lake, tables.values(), inventory, now_ms=now_ms)
        day = day_of(inventory.created_ms)
        charges += storage_charges(reconciled, book, day=day)
    account = lake.settings.root
    return [row_of(each, tables, account=account, region=book.region) for each in charges]
