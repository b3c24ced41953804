"""The money of a quarter, day by day: appends, compactions, vacuums, days without an inventory and late reports; the ledger and a
split bill equal what other code makes of the files, to far less than a cent.

`SEED=7 DAYS=30 python -m pytest lakehouse_tests/long/test_money.py` plays another quarter, or a shorter one.
"""

import json
import os
from calendar import monthrange
from collections import defaultdict
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.chargeback_columns import COLUMNS, COSTS
from lakehouse.core.units import DAY_MS, HOUR_MS
from lakehouse.engine.costs.chargeback_table import CHARGEBACK, write_allocated, write_chargeback
from lakehouse.engine.costs.operations_table import CostsSession, read_rows
from lakehouse.engine.journal.journal import record_vacuum
from lakehouse.engine.lake import Lake
from lakehouse_tests import money_oracle
from lakehouse_tests.engine.costs.story import PLAN, day_of, same, scan_at, stamp_of, sums, vacuumed
from lakehouse_tests.log_builder import START_MS, LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAYS, SEED = int(os.environ.get("DAYS", "92")), int(os.environ.get("SEED", "0"))
FIRST_MS = START_MS // DAY_MS * DAY_MS + DAY_MS
A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    owner="team-a",
)
TABLES = {key: replace(A, key=key) for key in ("bronze/a", "bronze/b", "silver/c")}
KNOWN = [*TABLES, CHARGEBACK]


class Quarter:
    """A lake whose upkeep and inventories are played by chance; what other code makes of each day is kept."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.builders = {key: LogBuilder(lake.store, key).create() for key in TABLES}
        self.files: dict[str, list[tuple[str, int]]] = {key: [] for key in TABLES}
        self.sizes: dict[date, dict[str, int]] = {}
        self.late: list[int] = []
        self.reported: set[date] = set()

    def play(self, number: int) -> int:
        """One day; returns the time of its ledger's run."""
        noon_ms = FIRST_MS + number * DAY_MS + 12 * HOUR_MS
        for key, builder in self.builders.items():
            size = self.random.randrange(1_000, 9_000_000)
            name = f"f{number}"
            builder.append([(name, size)]).store_data()
            self.files[key].append((name, size))
            if len(self.files[key]) > 3 and self.random.random() < 0.4:
                self._compact(key, number, noon_ms)
            if self.random.random() < 0.3:
                record = vacuumed(noon_ms, seconds=self.random.randrange(1, 9_000) / 1_000)
                record_vacuum(self.lake.store, key, record)
        today = day_of(noon_ms)
        if number == 0 or self.random.random() < 0.8:
            self.scan(noon_ms + HOUR_MS)
        else:
            self.late.append(noon_ms + HOUR_MS)
            self.sizes[today] = self.sizes[day_of(noon_ms - DAY_MS)]
        if self.late and self.random.random() < 0.5:
            self._scan_late(self.late.pop(0), noon_ms)
        return noon_ms + 2 * HOUR_MS

    def scan(self, ms: int) -> None:
        """A report that stands for the day of `ms`, whenever it is made."""
        scan_at(self.lake, ms)
        self.sizes[day_of(ms)] = money_oracle.sizes(self.lake, KNOWN, stamp_of(ms))
        self.reported.add(day_of(ms))

    def expected(self, day: date) -> dict[str, Fraction]:
        """What the day costs by other code."""
        price = money_oracle.BOOK["storage"]["STANDARD"]["usd_per_gb_month"]
        months = 2**30 * monthrange(day.year, day.month)[1]
        usd = defaultdict[str, Fraction](Fraction)
        for key, size in self.sizes[day].items():
            usd[key] += Fraction(size, months) * price
        for key in TABLES:
            usd[key] += money_oracle.operations(self.lake, key, day)
        return {key: cost for key, cost in usd.items() if cost}

    def _scan_late(self, ms: int, noon_ms: int) -> None:
        """The report of a closed day. Yesterday is closed by the next run, so it and today still follow the day before."""
        days_late = (noon_ms - ms) // DAY_MS + 1
        if not 2 <= days_late <= 6:
            return
        self.scan(ms)
        for number in (1, 0) if days_late == 2 else ():
            day = day_of(noon_ms - number * DAY_MS)
            if day in self.reported:
                return
            self.sizes[day] = self.sizes[day_of(noon_ms - (number + 1) * DAY_MS)]

    def _compact(self, key: str, number: int, noon_ms: int) -> None:
        builder, inputs = self.builders[key], self.files[key]
        name, size = f"m{number}", sum(size for _, size in inputs)
        began_ms = noon_ms - self.random.randrange(100, 60_000)
        note = json.dumps({"compaction": name, "started_ms": began_ms, "plan": PLAN})
        removes = [builder._remove(path, data_change=False) for path, _ in inputs]
        add = {"add": builder._add((name, size), data_change=False)}
        builder.commit("OPTIMIZE", *removes, add, user_metadata=note, committed_ms=noon_ms)
        builder.store_data()
        self.files[key] = [(name, size)]


def test_a_quarter_s_ledger_and_its_bills_equal_what_other_code_makes_of_the_files(
    lake: Lake, spark: "SparkSession"
) -> None:
    quarter = Quarter(lake, SEED)
    costs = CostsSession(lake=lake, tables=TABLES, spark=spark, owner="a test")
    now_ms = 0
    for number in range(DAYS):
        now_ms = quarter.play(number)
        write_chargeback(costs, now_ms=now_ms)
    write_chargeback(costs, now_ms=now_ms + DAY_MS)
    days = sorted(quarter.sizes)
    for day in days:
        assert same(sums(lake, day), quarter.expected(day)), day
    bill = [row for day in days for row in _billed(day, quarter.random)]
    write_allocated(costs, bill, name="bill.csv")
    rows = read_rows(lake, CHARGEBACK, COLUMNS, since=days[0])
    allocated = [row for row in rows if row["x_mode"] == "allocated"]
    found, wanted = defaultdict[str, Fraction](Fraction), defaultdict[str, Fraction](Fraction)
    for row in allocated:
        found[row["x_table"]] += Fraction(row["EffectiveCost"])
    for row in bill:
        sizes = quarter.sizes[date.fromisoformat(row["ChargePeriodStart"][:10])]
        for key, size in sizes.items():
            wanted[key] += Fraction(row["EffectiveCost"]) * size / sum(sizes.values())
    assert found.keys() == wanted.keys()
    assert all(abs(found[key] - wanted[key]) < Fraction(1, 10**12) for key in wanted)
    for column in COSTS:
        billed = sum(Fraction(row[column]) for row in bill)
        assert sum(Fraction(row[column]) for row in allocated) == billed


def _billed(day: date, random: Random) -> list[dict[str, Any]]:
    """A day of a bill: storage and requests, at odd amounts."""
    return [
        {
            **{column: str(Decimal(random.randrange(10**12)).scaleb(-11)) for column in COSTS},
            "BillingCurrency": "USD",
            "ChargePeriodStart": f"{day}T00:00:00Z",
            "ChargePeriodEnd": f"{day}T23:59:59Z",
            "ResourceId": "arn:aws:s3:::lake",
            "x_UsageType": usage,
        }
        for usage in ("TimedStorage-ByteHrs", "Requests-Tier1")
    ]
