"""The charges of a day for stored bytes, unfinished uploads, and the inventory that lists them.

Source: AWS, S3 pricing: some storage classes bill a minimum size or an overhead per object. The
parts of an unfinished upload are billed as STANDARD.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from math import ceil

from lakehouse.core.costs.charges import MULTIPART, OUTSIDE, Charge
from lakehouse.core.costs.exact_amounts import decimal_of, gb_months
from lakehouse.core.costs.price_book import DEFAULT_CLASS, PriceBook
from lakehouse.core.declaration.table import Table
from lakehouse.core.inventory.objects import PAGE_KEYS
from lakehouse.core.inventory.reconcile import Reconciliation, UsageShare


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDay:
    """The inventory of a day. `is_scan` is true if this program listed the objects itself."""

    day: date
    report: str
    reconciliation: Reconciliation
    is_scan: bool = False


def storage_charges(
    stored: StoredDay, tables: Mapping[str, Table], book: PriceBook
) -> list[Charge]:
    """The charges for one day of storage, by table, part (`Charge.part`) and storage class.

    Bytes in a class that the book does not have are charged as STANDARD.
    """
    reconciled = stored.reconciliation
    shares = [(table.table, share) for table in reconciled.tables for share in table.shares]
    shares += [("", share) for share in reconciled.unclaimed]
    sizes = dict[tuple[str, str, str, str], int]()
    for table, share in shares:
        part = OUTSIDE if share.part is None else share.part.name.lower()
        for storage_class, sku, size_bytes in _billed_bytes(share, book):
            key = (table, part, storage_class, sku)
            sizes[key] = sizes.get(key, 0) + size_bytes
    charges = list[Charge]()
    for (table, part, storage_class, sku), size_bytes in sorted(sizes.items()):
        price = book.usd_per_gb_month(storage_class)
        if price is None:
            price = book.classes[DEFAULT_CLASS].usd_per_gb_month
        charge = Charge(
            day=stored.day,
            table=table,
            owner=tables[table].owner if table in tables else "",
            kind="storage",
            part=part,
            sku=sku,
            quantity=gb_months(size_bytes, stored.day),
            unit="GB-Months",
            unit_price=decimal_of(price),
            storage_class=storage_class,
            size_bytes=size_bytes,
            report=stored.report,
        )
        if charge.quantity:
            charges.append(charge)
    return charges


def _billed_bytes(share: UsageShare, book: PriceBook) -> Iterable[tuple[str, str, int]]:
    """The bytes of a share that S3 bills: storage class, priced item and number of bytes.

    Some classes have a minimum size per object. Others have an overhead per object, a part of which
    is billed as STANDARD.
    """
    storage_class = share.storage_class or DEFAULT_CLASS
    sku = f"storage/{storage_class}"
    yield storage_class, sku, share.size_bytes
    prices = book.classes.get(storage_class)
    if prices is not None:
        overhead_bytes = prices.overhead_bytes * share.file_count
        yield storage_class, f"{sku}/minimum", share.padding_bytes + overhead_bytes
        yield DEFAULT_CLASS, f"{sku}/index", prices.index_bytes * share.file_count


def inventory_charge(stored: StoredDay, book: PriceBook) -> Charge:
    """The charge for the inventory itself: LIST requests of a scan, or objects in a report."""
    count = stored.reconciliation.file_count
    by_report = Charge(
        day=stored.day,
        table="",
        owner="",
        kind="requests",
        part="inventory",
        sku="inventory/objects",
        quantity=Decimal(count),
        unit="Objects",
        unit_price=decimal_of(book.usd_per_million_listed) / 1_000_000,
        report=stored.report,
    )
    if not stored.is_scan:
        return by_report
    return replace(
        by_report,
        sku="requests/put",
        quantity=Decimal(ceil(count / PAGE_KEYS)),
        unit="Requests",
        unit_price=decimal_of(book.usd_per_1000_puts) / 1_000,
    )


def upload_charges(
    uploads: Mapping[str, int], day: date, tables: Mapping[str, Table], book: PriceBook
) -> list[Charge]:
    """The charges of a day for the parts of unfinished uploads.

    `uploads` maps tables to bytes; uploads that belong to no table have an empty key.
    """
    price = decimal_of(book.classes[DEFAULT_CLASS].usd_per_gb_month)
    return [
        Charge(
            day=day,
            table=table,
            owner=tables[table].owner if table in tables else "",
            kind="storage",
            part=MULTIPART,
            sku=f"storage/{DEFAULT_CLASS}",
            quantity=gb_months(size_bytes, day),
            unit="GB-Months",
            unit_price=price,
            storage_class=DEFAULT_CLASS,
            size_bytes=size_bytes,
        )
        for table, size_bytes in uploads.items()
    ]
