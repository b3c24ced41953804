"""A small lake whose upkeep is written into its files, and its ledger held against `money_oracle`."""

import os
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from lakehouse import Append, Landing
from lakehouse.compact.plan.history import account_for, operation_of
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import record_operation
from lakehouse.vacuum.inventory.run import scan
from lakehouse.watch.costs.plan import Charge
from lakehouse.watch.costs.run import CHARGEBACK, COLUMNS, read_charges
from lakehouse_tests.lake.test_vacuums import past_vacuum, record_vacuum
from lakehouse_tests.log_builder import START_MS
from lakehouse_tests.support.example_lake import facts_of

A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    owner="team-a",
)
PLAN: dict[str, Any] = {
    "reason": "SMALL_FILES",
    "sentence": "2 files merge into 1",
    "files_removed": 2,
    "files_added": 1,
    "bytes_removed": 3_000,
    "estimate": {"seconds": 3.0, "usd": 0.001},
}


def day_of(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()


def stamp_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%dT%H-%MZ}"


def scan_at(lake: Lake, ms: int) -> None:
    """A scan at a simulated time, before which all files were written."""
    root = Path(lake.settings.root)
    for path in root.rglob("*"):
        os.utime(path, (START_MS / 1_000, START_MS / 1_000))
    scan(lake, now_ms=ms)


def record_compaction(lake: Lake, table: Table) -> None:
    """Adds the newest compaction in the table's log to the lake's operations."""
    history = facts_of(lake, table.key).history
    entry = account_for(history, prices=table.prices).entries[-1]
    record_operation(lake, operation_of(table.key, entry, table.prices))


def record_vacuum_of(lake: Lake, table: Table, ended_ms: int, *, seconds: float) -> None:
    """Adds a vacuum that sent some requests."""
    record_vacuum(
        lake,
        table,
        past_vacuum(ended_ms),
        requests={"GetObject": 1_234, "ListObjectsV2": 56, "DeleteObjects": 2},
        seconds=seconds,
        vcpu_seconds=seconds * table.prices.vcpus,
    )


def record_charges(root: Path, charges: Iterable[Charge]) -> None:
    """Writes the table of costs without Spark."""
    table = pa.Table.from_pylist([*charges], schema=COLUMNS)
    write_deltalake(root / CHARGEBACK, table, partition_by=["x_day"])


def sums(lake: Lake, day: date) -> dict[str, Decimal]:
    """The ledger's sums of a day, by table."""
    return sums_of(each for each in read_charges(lake, since=day) if each["x_day"] == day)


def sums_of(charges: Iterable[Charge]) -> dict[str, Decimal]:
    """The sums by table; objects in no table are under an empty name."""
    totals = dict[str, Decimal]()
    for charge in charges:
        table = charge["x_table"]
        totals[table] = totals.get(table, Decimal(0)) + charge["BilledCost"]
    return totals


def same(found: dict[str, Decimal], wanted: dict[str, Fraction]) -> bool:
    """Whether sums are equal to far less than a cent; a quantity is rounded to 12 places."""
    assert found.keys() == wanted.keys()
    return all(abs(Fraction(found[key]) - usd) < Fraction(1, 10**10) for key, usd in wanted.items())
