"""A bill is split by stored bytes, and the parts of each row sum up to it exactly."""

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.core.costs.bill_allocation import allocated_rows, select_rows, split
from lakehouse.core.costs.chargeback_columns import COLUMNS, COSTS
from lakehouse.core.costs.charges import Charge
from lakehouse.core.errors import Refused

AMOUNTS = st.decimals(
    min_value=Decimal("-1e15"), max_value=Decimal("1e15"), places=18, allow_nan=False
)
WEIGHTS = st.lists(st.integers(0, 10**18), min_size=1, max_size=30).filter(any)


@given(amount=AMOUNTS, weights=WEIGHTS)
def test_the_parts_of_an_amount_sum_up_to_it_and_none_is_off_by_a_unit(
    amount: Decimal, weights: list[int]
) -> None:
    parts = [Fraction(part) for part in split(amount, weights)]
    assert sum(parts) == Fraction(amount)
    unit = Fraction(1, 10**18)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(amount) * weight / sum(weights)) < unit


def test_the_largest_remainders_get_the_cents_that_are_left() -> None:
    cents = split(Decimal("1.00"), [1, 1, 1], digits=2)
    assert cents == [Decimal("0.34"), Decimal("0.33"), Decimal("0.33")]
    assert split(Decimal("-0.05"), [3, 7], digits=2) == [Decimal("-0.02"), Decimal("-0.03")]


def stored(table: str, size_bytes: int, storage_class: str = "STANDARD") -> Charge:
    return Charge(
        day=date(2026, 11, 3),
        table=table,
        owner="team-a",
        kind="storage",
        part="live",
        sku="",
        quantity=Decimal(0),
        unit="GB-Months",
        unit_price=Decimal(0),
        storage_class=storage_class,
        size_bytes=size_bytes,
    )


def billed(**values: Any) -> dict[str, Any]:
    return {
        "BillingCurrency": "USD",
        "ChargePeriodStart": "2026-11-03T00:00:00Z",
        "ChargePeriodEnd": "2026-11-04T00:00:00Z",
        "ResourceId": "arn:aws:s3:::lake",
        "x_UsageType": "TimedStorage-ByteHrs",
        "ProviderName": "AWS",
        **dict.fromkeys(COSTS, "10.00"),
        **values,
    }


def test_storage_is_split_by_the_bytes_of_its_class_and_requests_by_all_bytes() -> None:
    bytes_ = [stored("bronze/a", 300), stored("silver/b", 100), stored("", 200, "STANDARD_IA")]
    rows = allocated_rows([billed()], bytes_, bill="bill.csv")
    costs = {row["x_table"]: row["EffectiveCost"] for row in rows}
    assert costs == {"bronze/a": Decimal("7.5"), "silver/b": Decimal("2.5")}
    first = next(row for row in rows if row["x_table"] == "bronze/a")
    assert [*first] == [*COLUMNS]
    assert first["AllocatedMethodId"] == "lakehouse/stored-bytes-of-class"
    assert json.loads(first["AllocatedMethodDetails"]) == {
        "Elements": [{"AllocatedRatio": 0.75, "UsageUnit": "Byte-Days", "UsageQuantity": 300}]
    }
    assert (first["AllocatedResourceId"], first["ProviderName"]) == ("bronze/a", "AWS")
    cold = allocated_rows([billed(x_UsageType="TimedStorage-SIA-ByteHrs")], bytes_, bill="bill.csv")
    assert [row["x_table"] for row in cold] == [""]
    requests = allocated_rows([billed(x_UsageType="Requests-Tier1")], bytes_, bill="bill.csv")
    costs = {row["x_table"]: row["EffectiveCost"] for row in requests}
    assert costs["bronze/a"] == Decimal(5)
    assert sum(costs.values()) == Decimal(10)
    assert requests[0]["AllocatedMethodId"] == "lakehouse/stored-bytes"


def test_a_unit_price_of_a_double_is_rounded_to_the_digits_of_the_table() -> None:
    [row] = allocated_rows(
        [billed(ListUnitPrice=2.1234567890123456e-05)], [stored("bronze/a", 1)], bill="bill.parquet"
    )
    assert row["ListUnitPrice"] == Decimal("0.000021234567890123")


def test_an_hour_is_split_by_the_day_before_it_if_its_own_day_has_no_inventory() -> None:
    hour = billed(ChargePeriodStart="2026-11-05T07:00:00Z", ChargePeriodEnd="2026-11-05T08:00:00Z")
    assert len(allocated_rows([hour], [stored("bronze/a", 1)], bill="bill.csv")) == 1
    early = billed(ChargePeriodStart="2026-11-01T07:00:00Z", ChargePeriodEnd="2026-11-01T08:00:00Z")
    with pytest.raises(Refused, match="has no stored bytes for 2026-11-01"):
        allocated_rows([early], [stored("bronze/a", 1)], bill="bill.csv")


def test_only_rows_of_the_bucket_are_taken_and_a_bill_without_any_is_refused() -> None:
    other = billed(ResourceId="arn:aws:s3:::lakeside")
    assert select_rows([billed(), other], resource="lake", name="bill.csv") == [billed()]
    with pytest.raises(Refused, match="no row has a ResourceId that names 'sea'"):
        select_rows([billed()], resource="sea", name="bill.csv")
    with pytest.raises(Refused, match="the column ListCost is missing or empty"):
        select_rows([billed(ListCost="")], resource="lake", name="bill.csv")


def test_amounts_in_two_currencies_are_refused_as_they_have_no_sum() -> None:
    with pytest.raises(Refused, match=r"mix the currencies EUR and USD. Use one file for each"):
        select_rows([billed(), billed(BillingCurrency="EUR")], resource="lake", name="bill.csv")
