"""The money of a quarter, day by day: appends, compactions, vacuums, days without an inventory; the table of costs equals what
other code makes of the files, to far less than a cent.

`SEED=7 DAYS=30 python -m pytest lakehouse_tests/long/test_money.py` plays another quarter, or a shorter one.
"""

import json
import os
from dataclasses import replace
from datetime import date
from fractions import Fraction
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.text import DAY_MS, HOUR_MS
from lakehouse.lake.lake import Lake
from lakehouse.watch.costs.run import CHARGEBACK, write_chargeback
from lakehouse_tests import money_oracle
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.watch.costs.story import (
    PLAN,
    A,
    day_of,
    record_compaction,
    record_vacuum_of,
    same,
    scan_at,
    stamp_of,
    sums,
)

pytestmark = pytest.mark.spark

DAYS, SEED = int(os.environ.get("DAYS", "92")), int(os.environ.get("SEED", "0"))
FIRST_MS = START_MS // DAY_MS * DAY_MS + DAY_MS
TABLES = {key: replace(A, key=key) for key in ("bronze/a", "bronze/b", "silver/c")}
KNOWN = [*TABLES, "_lakehouse/operations", CHARGEBACK, "inventory/local"]


class Quarter:
    """A lake whose upkeep and inventories are played by chance; what other code makes of each day is kept."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.builders = {key: LogBuilder(lake.store, key).create() for key in TABLES}
        self.files: dict[str, list[tuple[str, int]]] = {key: [] for key in TABLES}
        self.newest: tuple[date, dict[str, Fraction]]
        self.stored: dict[date, dict[str, Fraction]] = {}

    def play(self, number: int) -> int:
        """One day; returns the time at which its costs are written."""
        noon_ms = FIRST_MS + number * DAY_MS + 12 * HOUR_MS
        for key, builder in self.builders.items():
            size = self.random.randrange(1_000, 9_000_000)
            name = f"f{number}"
            builder.append([(name, size)]).store_data()
            self.files[key].append((name, size))
            if len(self.files[key]) > 3 and self.random.random() < 0.4:
                self._compact(key, number, noon_ms)
            if self.random.random() < 0.3:
                seconds = self.random.randrange(1, 9_000) / 1_000
                record_vacuum_of(self.lake, TABLES[key], noon_ms, seconds=seconds)
        if number == 0 or self.random.random() < 0.8:
            ms = noon_ms + HOUR_MS
            scan_at(self.lake, ms)
            day = day_of(ms)
            money = money_oracle.storage(self.lake, KNOWN, day, stamp_of(ms))
            self.newest = day, money
        return noon_ms + 2 * HOUR_MS

    def expected(self, day: date) -> dict[str, Fraction]:
        """What the day costs by other code."""
        usd = {**self.stored.get(day, {})}
        for key in TABLES:
            usd[key] = usd.get(key, Fraction(0)) + money_oracle.operations(self.lake, key, day)
        return {key: cost for key, cost in usd.items() if cost}

    def _compact(self, key: str, number: int, noon_ms: int) -> None:
        builder, inputs = self.builders[key], self.files[key]
        name, size = f"m{number}", sum(size for _, size in inputs)
        began_ms = noon_ms - self.random.randrange(100, 60_000)
        note = json.dumps({"compaction": name, "started_ms": began_ms, "plan": PLAN})
        removes = [builder._remove(path, data_change=False) for path, _ in inputs]
        add = {"add": builder._add((name, size), data_change=False)}
        builder.commit("OPTIMIZE", *removes, add, user_metadata=note, committed_ms=noon_ms)
        builder.store_data()
        record_compaction(self.lake, TABLES[key])
        self.files[key] = [(name, size)]


def test_a_quarter_s_costs_equal_what_other_code_makes_of_the_files(
    lake: Lake, spark: SparkSession
) -> None:
    quarter = Quarter(lake, SEED)
    for number in range(DAYS):
        now_ms = quarter.play(number)
        # Some days have no run; the next one writes their operations, and the newest inventory.
        if number == DAYS - 1 or (number % 7 and quarter.random.random() < 0.8):
            write_chargeback(lake, TABLES, spark=spark, owner="a test", now_ms=now_ms)
            day, money = quarter.newest
            quarter.stored[day] = money
    for number in range(DAYS):
        day = day_of(FIRST_MS + number * DAY_MS)
        assert same(sums(lake, day), quarter.expected(day)), day
