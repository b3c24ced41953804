"""The table of costs has FOCUS 1.3's columns, types and units, and a row of ours fills what it demands."""

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from lakehouse.core.costs.chargeback_columns import (
    COLUMNS,
    CUSTOM_COLUMNS,
    FOCUS_COLUMNS,
    LakeAccount,
    charge_of,
    estimated_row,
)
from lakehouse.core.costs.charges import Charge

with Path(__file__).with_name("focus-1.3-columns.csv").open(encoding="utf-8") as file:
    SPECIFIED = list(csv.DictReader(file))

CHARGE = Charge(
    day=date(2026, 2, 3),
    table="bronze/weather",
    owner="data-platform",
    kind="storage",
    part="live",
    sku="storage/STANDARD",
    quantity=Decimal(2),
    unit="GB-Months",
    unit_price=Decimal("0.023"),
    storage_class="STANDARD",
    size_bytes=60_129_542_144,
    report="lakehouse-scan/2026-02-03T05-00Z",
)
ACCOUNT = LakeAccount(address="s3://lake", region="us-east-1", prices_as_of="2026-11")


def test_the_columns_are_those_of_focus_1_3_and_then_custom_ones_with_their_prefix() -> None:
    assert dict(FOCUS_COLUMNS) == {row["column"]: row["type"] for row in SPECIFIED}
    assert [*COLUMNS] == [*FOCUS_COLUMNS, *CUSTOM_COLUMNS]
    assert all(name.startswith("x_") for name in CUSTOM_COLUMNS)


def test_a_row_has_a_value_wherever_focus_1_3_allows_no_null() -> None:
    row = estimated_row(CHARGE, ACCOUNT, is_closed=True)
    assert [*row] == [*COLUMNS]
    demanded = [each["column"] for each in SPECIFIED if each["nulls"] == "False"]
    assert [name for name in demanded if row[name] is None] == []


def test_a_charge_is_read_back_from_its_row() -> None:
    assert charge_of(estimated_row(CHARGE, ACCOUNT, is_closed=True)) == CHARGE


def test_a_row_of_storage() -> None:
    row = estimated_row(CHARGE, ACCOUNT, is_closed=False)
    assert row["BilledCost"] == row["ListCost"] == Decimal("0.046")
    assert row["ConsumedUnit"] == "GB-Months"
    assert row["ListUnitPrice"] == Decimal("0.023")
    assert row["BillingPeriodStart"] == datetime(2026, 2, 1, tzinfo=UTC)
    assert row["BillingPeriodEnd"] == datetime(2026, 3, 1, tzinfo=UTC)
    assert row["ChargePeriodStart"] == datetime(2026, 2, 3, tzinfo=UTC)
    assert row["ChargePeriodEnd"] == datetime(2026, 2, 4, tzinfo=UTC)
    assert row["ChargeDescription"] == "storage of bronze/weather: live, STANDARD"
    assert row["ChargeClass"] is None
    assert row["ResourceId"] == "s3://lake/bronze/weather"
    assert (row["SubAccountId"], row["SubAccountType"]) == ("bronze", "Layer")
    assert json.loads(row["Tags"]) == {"layer": "bronze", "owner": "data-platform"}
    assert row["SkuPriceId"] == "us-east-1/2026-11/storage/STANDARD"
