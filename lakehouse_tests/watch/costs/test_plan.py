"""Charges: prices times quantities, exact sums, and rows whose cost is their quantity times their price."""

from csv import DictReader
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse import Append, Landing, Prices, Table
from lakehouse.base.errors import Refused
from lakehouse.base.operation import UpkeepOperation
from lakehouse.base.stored_objects import Part
from lakehouse.base.text import usd_text
from lakehouse.declare.prices import parse_price_book
from lakehouse.vacuum.inventory.plan import Reconciliation, TableShares, UsageShare
from lakehouse.watch.costs.plan import (
    Charge,
    costs_document,
    operation_charges,
    row_of,
    storage_charges,
    updated,
)
from lakehouse.watch.costs.run import COLUMNS
from lakehouse_tests.declare.test_prices import PACKAGED

DAY = date(2026, 11, 27)
NOON_MS = int(datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp() * 1_000)
ORDERS = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id STRING"),
    write=Append(),
    owner="sales",
)
TABLES = {ORDERS.key: ORDERS}
GB = 1024**3
BOOK = parse_price_book(PACKAGED)


def share(part: Part | None, size_bytes: int, storage_class: str | None = None) -> UsageShare:
    return UsageShare(
        part=part,
        storage_class=storage_class,
        file_count=1,
        size_bytes=size_bytes,
        folder="",
        small_count=0,
    )


def stored(*shares: UsageShare, unclaimed: tuple[UsageShare, ...] = ()) -> list[Charge]:
    table = TableShares(table=ORDERS.key, version=1, retention_ms=1, shares=shares)
    found = Reconciliation(tables=(table,), unclaimed=unclaimed)
    return completed(storage_charges(found, BOOK, day=DAY))


def charged(*operations: UpkeepOperation) -> list[Charge]:
    return completed(operation_charges(operations, TABLES, BOOK))


def completed(charges: list[Charge]) -> list[Charge]:
    return [row_of(each, TABLES, account="s3://b/lake", region="us-east-1") for each in charges]


def worked(**facts: Any) -> UpkeepOperation:
    known = {"table": ORDERS.key, "kind": "vacuum", "operation_id": "x", "ended_ms": NOON_MS}
    return UpkeepOperation(**(known | facts))  # type: ignore[arg-type]


def test_bytes_are_charged_by_part_and_class_for_a_day_of_their_month() -> None:
    charges = stored(
        share(Part.LIVE, 30 * GB),
        share(Part.ORPHANED_OLD, 30 * GB, "STANDARD_IA"),
        share(Part.LOG, 0),
        unclaimed=(share(None, 60 * GB, "A_CLASS_OF_TOMORROW"),),
    )
    names = ("x_table", "x_part", "SkuId", "BilledCost")
    assert [tuple(each[name] for name in names) for each in charges] == [
        ("", "outside", "storage/A_CLASS_OF_TOMORROW", 2 * Decimal("0.023")),
        (ORDERS.key, "live", "storage/STANDARD", Decimal("0.023")),
        (ORDERS.key, "orphaned_old", "storage/STANDARD_IA", Decimal("0.0125")),
    ]
    assert {each["x_owner"] for each in charges if each["x_table"]} == {"sales"}


def test_operations_are_summed_by_day_kind_and_item_and_the_unknown_is_not_charged() -> None:
    requests = {"GetObject": 1_000, "ListObjectsV2": 2_000, "DeleteObjects": 5}
    vacuums = [worked(vcpu_seconds=3_600.0, requests=requests), worked(vcpu_seconds=1_800.0)]
    charges = charged(*vacuums, worked(kind="compaction"))
    assert {
        (each["x_part"], each["SkuId"]): (each["ConsumedQuantity"], each["BilledCost"])
        for each in charges
    } == {
        ("vacuum", "compute/vcpu-hour"): (Decimal("1.5"), Decimal("0.165")),
        ("vacuum", "requests/get"): (1_000, Decimal("0.0004")),
        ("vacuum", "requests/put"): (2_000, Decimal("0.01")),
        ("vacuum", "requests/delete"): (5, 0),
    }


@given(st.integers(1, 10**18), st.floats(0, 1e9))
def test_the_cost_of_a_row_is_exactly_its_quantity_times_its_price(
    size_bytes: int, vcpu_seconds: float
) -> None:
    charges = stored(share(Part.LIVE, size_bytes))
    for found in [*charges, *charged(worked(vcpu_seconds=vcpu_seconds))]:
        product = Context(prec=60).multiply(found["ConsumedQuantity"], found["ListUnitPrice"])
        for name in ("ListCost", "ContractedCost", "EffectiveCost", "BilledCost"):
            assert found[name] == product
            assert -found[name].as_tuple().exponent <= 24
        table = pa.Table.from_pylist([found], schema=COLUMNS)
        assert table.to_pylist() == [found]


def test_a_row_has_names_of_focus_and_custom_ones() -> None:
    with Path(__file__).with_name("focus-1.3-columns.csv").open() as file:
        focus = {each["column"] for each in DictReader(file)}
    assert {name for name in COLUMNS.names if not name.startswith("x_")} <= focus
    [found] = stored(share(Part.LIVE, GB))
    assert sorted(found) == sorted(COLUMNS.names)
    assert found["BillingPeriodStart"] == datetime(2026, 11, 1, tzinfo=UTC)
    assert found["BillingPeriodEnd"] == datetime(2026, 12, 1, tzinfo=UTC)
    expected = ("s3://b/lake/bronze/orders", '{"layer": "bronze", "owner": "sales"}')
    assert (found["ResourceId"], found["Tags"]) == expected


def test_what_is_recorded_but_no_longer_known_stays() -> None:
    live, orphans = stored(share(Part.LIVE, GB), share(Part.ORPHANED_OLD, GB))
    [vacuum] = charged(worked(vcpu_seconds=1.0))
    recorded = [live, orphans, vacuum]
    assert sorted(updated(recorded, []), key=recorded.index) == recorded
    [more] = stored(share(Part.LIVE, 2 * GB))
    assert updated(recorded, [more]) == [more, vacuum]
    [longer] = charged(worked(vcpu_seconds=2.0))
    assert updated(recorded, [longer]) == updated([live, orphans], [longer])


def test_sums_are_by_group_and_bytes_those_of_the_newest_day() -> None:
    charges = stored(share(Part.LIVE, 30 * GB), unclaimed=(share(None, GB),))
    charges += charged(worked(vcpu_seconds=3_600.0))
    names = ("name", "size_bytes", "storage_usd", "compute_usd", "requests_usd", "usd")
    expected = [
        ("bronze/orders", 30 * GB, 0.023, 0.11, 0.0, 0.133),
        ("(outside all tables)", GB, 0.000766667, 0.0, 0.0, 0.000766667),
    ]
    groups = costs_document(charges, by="table", since="2026-11-01")["groups"]
    assert groups == [dict(zip(names, each, strict=True)) for each in expected]
    documents = {by: costs_document(charges, by=by, since="") for by in ("owner", "class")}
    found = {by: [each["name"] for each in whole["groups"]] for by, whole in documents.items()}
    assert found == {
        "owner": ["sales", "(no owner)"],
        "class": ["(operations)", "STANDARD"],
    }
    document = costs_document(charges, by="layer", since="2026-11-01")
    assert (document["until"], document["stored_days"]) == ("2026-11-27", 1)
    assert costs_document([], by="layer", since="2026-11-01")["until"] is None


def test_amounts_have_three_digits_and_no_exponent() -> None:
    amounts = ("0", "1234.5", "0.0123456", "0.00001234", "0.0000000001")
    expected = ["0", "1,234", "0.0123", "0.0000123", "under 0.000001"]
    assert [usd_text(Decimal(each)) for each in amounts] == expected


def test_a_price_that_the_table_cannot_hold_is_refused() -> None:
    table = Table(
        key=ORDERS.key, source=ORDERS.source, write=Append(), prices=Prices(usd_per_vcpu_hour=1e6)
    )
    with pytest.raises(Refused, match="below 1,000 USD"):
        operation_charges([worked(vcpu_seconds=1.0)], {table.key: table}, BOOK)
