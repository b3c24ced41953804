"""The table of costs: a rerun adds nothing, what was recorded stays, and sums are those of other code."""

import json
from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused
from lakehouse.base.text import DAY_MS, MINUTE_MS
from lakehouse.lake.lake import Lake
from lakehouse.watch.costs.run import CHARGEBACK, COLUMNS, read_charges, write_chargeback
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

B = replace(A, key="bronze/b", owner="")
TABLES = {A.key: A, B.key: B}
NOW = START_MS + 20 * MINUTE_MS


def build(lake: Lake) -> LogBuilder:
    """Two tables, of which one was compacted and vacuumed on the first day."""
    LogBuilder(lake.store, B.key).create().append([("x", 5_000_000)]).store_data()
    table = LogBuilder(lake.store, A.key).create().append([("a", 1_000), ("b", 2_000)]).store_data()
    note = {"compaction": "mark", "started_ms": START_MS + 2 * MINUTE_MS - 4_250, "plan": PLAN}
    table.optimize(["a", "b"], into=("c", 2_900), user_metadata=json.dumps(note)).store_data()
    record_compaction(lake, A)
    record_vacuum_of(lake, A, NOW, seconds=2.5)
    return table


def expected(lake: Lake, day: date, stamp: str) -> dict[str, Fraction]:
    """What other code makes of the day."""
    money = money_oracle.storage(lake, [*TABLES, "_lakehouse/operations"], day, stamp)
    for key in TABLES:
        money[key] += money_oracle.operations(lake, key, day)
    return {key: usd for key, usd in money.items() if usd}


@pytest.mark.long
@pytest.mark.spark
def test_charges_equal_an_independent_sum_and_stay_once_they_are_recorded(
    lake: Lake, spark: SparkSession
) -> None:
    table = build(lake)
    first = day_of(NOW)
    scan_at(lake, NOW)

    def write(now_ms: int) -> set[date]:
        charges = write_chargeback(lake, TABLES, spark=spark, owner="a test", now_ms=now_ms)
        return {each["x_day"] for each in charges}

    assert write(NOW) == {first}
    recorded = sums(lake, first)
    assert same(recorded, expected(lake, first, stamp_of(NOW)))
    # Spark multiplies without losing a digit.
    wrong = "ConsumedQuantity * ListUnitPrice <> BilledCost"
    frame = spark.read.format("delta").load(lake.table_uri(CHARGEBACK))
    assert (frame.count(), frame.filter(wrong).count()) == (len(read_charges(lake, since=first)), 0)

    # An hour later changes nothing.
    assert write(NOW + MINUTE_MS) <= {first}
    assert same(sums(lake, first), expected(lake, first, stamp_of(NOW)))

    # A day without an inventory has no rows. The next inventory has its own day.
    assert write(NOW + DAY_MS) == set()
    table.append([("d", 40_000_000)]).store_data()
    scan_at(lake, NOW + 2 * DAY_MS)
    third = day_of(NOW + 2 * DAY_MS)
    assert write(NOW + 2 * DAY_MS) == {third}
    known = [*TABLES, "_lakehouse/operations", CHARGEBACK, "inventory/local"]
    assert same(
        sums(lake, third), money_oracle.storage(lake, known, third, stamp_of(NOW + 2 * DAY_MS))
    )
    assert same(sums(lake, first), expected(lake, first, stamp_of(NOW)))


def test_without_an_inventory_storage_is_unknown_and_other_columns_are_refused(lake: Lake) -> None:
    assert read_charges(lake, since=day_of(NOW)) == []
    LogBuilder(lake.store, CHARGEBACK).create()
    with pytest.raises(Refused, match="an earlier version wrote this table"):
        read_charges(lake, since=day_of(NOW))
    assert "x_mode" not in COLUMNS.names
