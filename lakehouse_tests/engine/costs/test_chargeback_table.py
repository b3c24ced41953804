"""The tables of costs: a rerun adds nothing, a closed day is corrected and never rewritten, and sums are those of other code."""

import json
from collections import defaultdict
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.bill_allocation import select_rows
from lakehouse.core.costs.chargeback_columns import COLUMNS, COSTS
from lakehouse.core.costs.operations_columns import OPERATION_COLUMNS
from lakehouse.core.units import DAY_MS, MINUTE_MS
from lakehouse.engine.costs.chargeback_table import (
    CHARGEBACK,
    Estimates,
    read_charges,
    write_allocated,
    write_chargeback,
)
from lakehouse.engine.costs.operations_table import (
    OPERATIONS,
    CostsSession,
    read_rows,
    write_operations,
)
from lakehouse.engine.costs.read_ledger import read_ledger
from lakehouse.engine.journal.journal import record_vacuum
from lakehouse.engine.lake import Lake
from lakehouse_tests import money_oracle
from lakehouse_tests.engine.costs.story import (
    PLAN,
    day_of,
    same,
    scan_at,
    stamp_of,
    sums,
    sums_of,
    vacuumed,
)
from lakehouse_tests.log_builder import START_MS, LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    owner="team-a",
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
    record_vacuum(lake.store, A.key, vacuumed(NOW, seconds=2.5))
    return table


def expected(lake: Lake, day: date, stamp: str) -> dict[str, Fraction]:
    """What other code makes of the day."""
    money = money_oracle.storage(lake, [*TABLES], day, stamp)
    for key in TABLES:
        money[key] += money_oracle.operations(lake, key, day)
    return {key: usd for key, usd in money.items() if usd}


def test_charges_equal_an_independent_sum_and_a_late_report_corrects_a_closed_day(
    lake: Lake, spark: "SparkSession"
) -> None:
    table = build(lake)
    costs = CostsSession(lake=lake, tables=TABLES, spark=spark, owner="a test")
    first, second = day_of(NOW), day_of(NOW + DAY_MS)
    scan_at(lake, NOW)

    def write(now_ms: int) -> tuple[list[date], int, Decimal]:
        outcome = write_chargeback(costs, now_ms=now_ms)
        assert outcome.unread == {}
        return list(outcome.days), outcome.row_count, outcome.corrected_usd

    # The first day is over, so it is closed at once. The second has no report and is like the first.
    assert write(NOW + DAY_MS)[0] == [first, second]
    assert same(sums(lake, first), expected(lake, first, stamp_of(NOW)))
    wanted = money_oracle.storage(lake, [*TABLES], second, stamp_of(NOW))
    assert same(sums(lake, second), wanted)
    assert write(NOW + DAY_MS) == ([], 0, Decimal(0))

    # The second day is closed, too, and then its report arrives: half of its bytes were new.
    assert write(NOW + 2 * DAY_MS)[0] == [second, day_of(NOW + 2 * DAY_MS)]
    before = read_charges(lake, since=second)[second]
    table.append([("d", 40_000_000)]).store_data()
    scan_at(lake, NOW + DAY_MS)
    days, _, corrected_usd = write(NOW + 2 * DAY_MS)
    assert days == [second, day_of(NOW + 2 * DAY_MS)]
    rows = read_charges(lake, since=second)[second]
    kept = [row for row in rows if row["ChargeClass"] is None]
    assert sorted(map(str, kept)) == sorted(map(str, before))
    known, late = [*TABLES, CHARGEBACK], stamp_of(NOW + DAY_MS)
    assert same(sums(lake, second), money_oracle.storage(lake, known, second, late))
    added = [row["BilledCost"] for row in rows if row["ChargeClass"] == "Correction"]
    assert sum(added) == corrected_usd > 0
    assert write(NOW + 2 * DAY_MS) == ([], 0, Decimal(0))
    facts = lake.facts(CHARGEBACK)
    assert facts is not None
    names = facts.snapshot.columns
    assert [each.name for each in names] == [*COLUMNS]

    # The bill of the second day is split by the bytes that were stored then.
    bill = [
        {
            **dict.fromkeys(COSTS, amount),
            "BillingCurrency": "USD",
            "ChargePeriodStart": f"{second}T{hour:02}:00:00Z",
            "ChargePeriodEnd": f"{second}T{hour + 1:02}:00:00Z",
            "ResourceId": "arn:aws:s3:::lake",
            "x_UsageType": usage,
        }
        for hour in range(3)
        for usage, amount in (
            ("TimedStorage-ByteHrs", "10.01"),
            ("Requests-Tier1", "0.0000123456789"),
        )
    ]
    chosen = select_rows(bill, resource="lake", name="bill.csv")
    count = write_allocated(costs, chosen, name="bill.csv")
    rows = read_rows(lake, CHARGEBACK, COLUMNS, since=second)
    allocated = [row for row in rows if row["x_mode"] == "allocated"]
    assert len(allocated) == count
    for column in COSTS:
        billed = sum(Fraction(row[column]) for row in bill)
        assert sum(Fraction(row[column]) for row in allocated) == billed
    assert same(sums(lake, second), money_oracle.storage(lake, known, second, late))
    sizes, shares = money_oracle.sizes(lake, known, late), defaultdict[str, Fraction](Fraction)
    for row in allocated:
        shares[row["x_table"]] += Fraction(row["BilledCost"])
    total = sum(Fraction(row["BilledCost"]) for row in bill)
    assert shares.keys() == sizes.keys()
    for key, size in sizes.items():
        assert abs(shares[key] - total * size / sum(sizes.values())) < Fraction(1, 10**15)

    # The same file replaces its rows; another bucket's and another file's stay next to them.
    write_allocated(
        costs, [{**row, "ResourceId": "arn:aws:s3:::cold"} for row in chosen], name="bill.csv"
    )
    write_allocated(costs, chosen[:2], name="bill-2.csv")
    write_allocated(costs, chosen, name="bill.csv")
    billed = defaultdict[tuple[str, str], Fraction](Fraction)
    for row in read_rows(lake, CHARGEBACK, COLUMNS, since=second):
        if row["x_mode"] == "allocated":
            billed[row["x_report"], row["ResourceId"][-4:]] += Fraction(row["BilledCost"])
    assert billed == {
        ("bill.csv", "lake"): total,
        ("bill.csv", "cold"): total,
        ("bill-2.csv", "lake"): total / 3,
    }


def test_a_day_stays_open_while_a_table_is_unread_and_a_machine_that_was_off_leaves_no_gap(
    lake: Lake, spark: "SparkSession"
) -> None:
    build(lake)
    costs = CostsSession(lake=lake, tables=TABLES, spark=spark, owner="a test")
    first = day_of(NOW)
    scan_at(lake, NOW)
    write_chargeback(costs, now_ms=NOW)
    commit = Path(lake.settings.root, A.key, f"_delta_log/{2:020}.json")
    text = commit.read_bytes()
    commit.write_bytes(b"no commit")

    def written(day: date) -> tuple[dict[str, Decimal], set[bool]]:
        rows = read_charges(lake, since=day)[day]
        return sums(lake, day), {row["x_is_closed"] for row in rows}

    # What was written of the unread table stays. The next run that can read it closes the day.
    assert [*write_chargeback(costs, now_ms=NOW + DAY_MS).unread] == [A.key]
    found = written(first)
    commit.write_bytes(text)
    assert found[1] == {False}
    assert same(found[0], expected(lake, first, stamp_of(NOW)))
    assert write_chargeback(costs, now_ms=NOW + DAY_MS).unread == {}
    assert written(first) == (found[0], {True})

    # No run comes for twelve days. Each of them is charged as the day before.
    later_ms = NOW + 13 * DAY_MS
    ledger = read_ledger(lake, TABLES, since=first, now_ms=later_ms).charges
    write_chargeback(costs, now_ms=later_ms)
    for number in range(1, 14):
        day = day_of(NOW + number * DAY_MS)
        wanted = money_oracle.storage(lake, [*TABLES], day, stamp_of(NOW))
        assert same(sums(lake, day), wanted)
        assert same(sums_of(each for each in ledger if each.day == day), wanted)


def test_an_open_day_keeps_its_charges_if_reports_and_logs_no_longer_tell_them(lake: Lake) -> None:
    build(lake)
    scan_at(lake, NOW)
    known = Estimates(lake, TABLES, now_ms=NOW).of_day(day_of(NOW), [], [])
    assert {each.kind for each in known} == {"storage", "compute", "requests"}
    later = Estimates(lake, TABLES, now_ms=NOW + 9 * DAY_MS)
    assert later.of_day(day_of(NOW), known, []) == known


def test_operations_have_the_columns_of_databricks_and_outlive_the_log(
    lake: Lake, spark: "SparkSession"
) -> None:
    table = build(lake)
    costs = CostsSession(lake=lake, tables=TABLES, spark=spark, owner="a test")
    assert write_operations(costs, now_ms=NOW).row_count == 2
    assert write_operations(costs, now_ms=NOW).row_count == 0
    rows = read_rows(lake, OPERATIONS, OPERATION_COLUMNS, since=day_of(NOW))
    compaction, vacuum = sorted(rows, key=lambda row: row["operation_type"])
    assert [*compaction] == [*OPERATION_COLUMNS]
    seen: dict[str, Any] = {
        "catalog_name": "lakehouse",
        "schema_name": "bronze",
        "table_name": "a",
        "operation_type": "COMPACTION",
        "operation_status": "SUCCESSFUL",
        "operation_metrics": {
            "number_of_compacted_files": "2",
            "amount_of_data_compacted_bytes": "3000",
            "number_of_output_files": "1",
            "amount_of_output_data_bytes": "2900",
        },
        "usage_unit": "VCPU_HOURS",
        "x_reason": "SMALL_FILES",
    }
    assert {name: compaction[name] for name in seen} == seen
    assert compaction["usage_quantity"] == round(Decimal("8.5") / 3600, 18)
    assert compaction["x_predicted_quantity"] == round(Decimal(6) / 3600, 18)
    assert vacuum["operation_metrics"]["number_of_deleted_files"] == "3"
    table.checkpoint().forget_before(table.version)
    assert write_operations(costs, now_ms=NOW + DAY_MS).row_count == 0
    assert len(read_rows(lake, OPERATIONS, OPERATION_COLUMNS, since=day_of(NOW))) == 2
