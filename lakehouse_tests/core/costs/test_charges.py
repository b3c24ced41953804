"""Charges of a day: by table, part and class, and corrections that bring a closed day to a later report."""

import tomllib
from dataclasses import replace
from datetime import date
from decimal import Decimal
from importlib.resources import files

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.charges import (
    corrections,
    of_report,
    operation_charges,
    sum_by,
)
from lakehouse.core.costs.exact_amounts import gb_months
from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.costs.price_book import parse_price_book
from lakehouse.core.costs.storage_charges import (
    StoredDay,
    inventory_charge,
    storage_charges,
    upload_charges,
)
from lakehouse.core.inventory.objects import Part
from lakehouse.core.inventory.reconcile import Reconciliation, TableShares, UsageShare

GB = 1024**3
BOOK = parse_price_book(
    tomllib.loads(
        files("lakehouse.engine.costs").joinpath("prices.toml").read_text(encoding="utf-8")
    )
)
TABLE = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    owner="team-a",
)
TABLES = {TABLE.key: TABLE}


def share(part: Part | None, size_bytes: int, storage_class: str | None = None) -> UsageShare:
    return UsageShare(
        part=part,
        storage_class=storage_class,
        file_count=1,
        size_bytes=size_bytes,
        folder="bronze/a",
        small_count=0,
    )


def day(*shares: UsageShare, report: str = "first", outside: int = 0) -> StoredDay:
    table = TableShares(table="bronze/a", version=1, retention_ms=0, shares=shares)
    unclaimed = (share(None, outside),) if outside else ()
    return StoredDay(
        day=date(2026, 11, 3),
        report=report,
        reconciliation=Reconciliation(tables=(table,), unclaimed=unclaimed),
    )


def test_a_day_of_storage_is_a_share_of_its_month() -> None:
    assert gb_months(30 * GB, date(2026, 11, 3)) == Decimal(1)
    assert gb_months(28 * GB, date(2027, 2, 3)) == Decimal(1)


def test_bytes_are_charged_by_table_part_and_class() -> None:
    stored = day(
        share(Part.LIVE, 60 * GB),
        share(Part.LIVE, 30 * GB, "STANDARD_IA"),
        share(Part.TOMBSTONED_PAST, 30 * GB),
        share(Part.FOLDERS, 0),
        outside=300 * GB,
    )
    charges = storage_charges(stored, TABLES, BOOK)
    assert [(each.table, each.part, each.storage_class, each.usd) for each in charges] == [
        ("", "outside", "STANDARD", Decimal("0.23")),
        ("bronze/a", "live", "STANDARD", Decimal("0.046")),
        ("bronze/a", "live", "STANDARD_IA", Decimal("0.0125")),
        ("bronze/a", "tombstoned_past", "STANDARD", Decimal("0.023")),
    ]
    assert {each.owner for each in charges} == {"", "team-a"}


def test_an_inventory_costs_its_list_requests_or_the_objects_of_its_report() -> None:
    stored = replace(day(replace(share(Part.LIVE, GB), file_count=2_001)), report="scan/1")
    scanned, reported = (
        inventory_charge(replace(stored, is_scan=each), BOOK) for each in (True, False)
    )
    assert (scanned.quantity, scanned.sku, scanned.usd) == (3, "requests/put", Decimal("0.000015"))
    assert (reported.quantity, reported.sku) == (2_001, "inventory/objects")
    assert reported.usd == Decimal("0.0000050025")
    assert of_report([scanned, reported]) == [scanned, reported]


def test_parts_of_unfinished_uploads_are_dead_bytes_in_standard() -> None:
    inside, outside = upload_charges({"bronze/a": 30 * GB, "": GB}, date(2026, 11, 3), TABLES, BOOK)
    assert (inside.owner, inside.usd, outside.owner) == ("team-a", Decimal("0.023"), "")
    assert inside.is_dead and inside.is_stored and of_report([inside]) == []


def test_what_s3_bills_per_object_is_a_charge_of_its_own() -> None:
    """At least 128 KiB in STANDARD_IA; 32 KiB more in GLACIER, and 8 KiB more in STANDARD."""
    small = replace(share(Part.ARCHIVED, 10 * GB, "STANDARD_IA"), padding_bytes=20 * GB)
    cold = replace(share(Part.TOMBSTONED_KEPT, 10 * GB, "GLACIER"), file_count=2**20)
    charges = storage_charges(day(small, cold), TABLES, BOOK)
    sizes = {each.sku: (each.storage_class, each.size_bytes) for each in charges}
    assert sizes == {
        "storage/STANDARD_IA": ("STANDARD_IA", 10 * GB),
        "storage/STANDARD_IA/minimum": ("STANDARD_IA", 20 * GB),
        "storage/GLACIER": ("GLACIER", 10 * GB),
        "storage/GLACIER/minimum": ("GLACIER", 32 * GB),
        "storage/GLACIER/index": ("STANDARD", 8 * GB),
    }
    assert [each.sku for each in charges if each.is_stored] == [
        "storage/STANDARD_IA",
        "storage/GLACIER",
    ]


def test_a_class_without_a_price_costs_what_standard_costs() -> None:
    [charge] = storage_charges(day(share(Part.LIVE, 30 * GB, "EXPRESS_ONEZONE")), TABLES, BOOK)
    assert (charge.sku, charge.usd) == ("storage/EXPRESS_ONEZONE", Decimal("0.023"))


def test_corrections_bring_a_closed_day_to_a_later_report_once() -> None:
    written = storage_charges(
        day(share(Part.LIVE, 60 * GB), share(Part.LOG_COMMITS, GB)), TABLES, BOOK
    )
    later = storage_charges(
        day(share(Part.LIVE, 30 * GB), share(Part.ORPHANED_OLD, 30 * GB), report="late"),
        TABLES,
        BOOK,
    )
    added = corrections(written, later)
    assert all(each.is_correction and each.report == "late" for each in added)
    assert sum(each.usd for each in [*written, *added]) == sum(each.usd for each in later)
    assert {each.part: each.usd > 0 for each in added} == {
        "live": False,
        "log_commits": False,
        "orphaned_old": True,
    }
    assert corrections([*written, *added], later) == []


def test_operations_are_charged_by_day_kind_and_price_and_what_is_unknown_is_not() -> None:
    def vacuum(ended_ms: int, vcpu_seconds: float | None) -> UpkeepOperation:
        return UpkeepOperation(
            table="bronze/a",
            kind="vacuum",
            operation_id=f"started-{ended_ms}",
            ended_ms=ended_ms,
            is_ok=True,
            why="",
            vcpu_seconds=vcpu_seconds,
            requests={"GetObject": 1_000, "ListObjectsV2": 500, "DeleteObjects": 7},
        )

    noon = 1_793_707_200_000  # 2026-11-03 12:00 UTC
    charges = operation_charges([vacuum(noon, 1_800), vacuum(noon + 1, None)], TABLES, BOOK)
    assert [(each.sku, each.quantity, each.usd) for each in charges] == [
        ("compute/vcpu-hour", Decimal("0.5"), Decimal("0.055")),
        ("requests/get", Decimal(2_000), Decimal("0.0008")),
        ("requests/put", Decimal(1_000), Decimal("0.005")),
        ("requests/delete", Decimal(14), Decimal(0)),
    ]
    assert {(each.day, each.owner) for each in charges} == {(date(2026, 11, 3), "team-a")}
    assert [(each.name, each.usd) for each in sum_by(charges, "layer")] == [
        ("bronze", Decimal("0.0608"))
    ]
