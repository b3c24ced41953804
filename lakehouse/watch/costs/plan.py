"""What upkeep operations and stored bytes cost: the rows of `costs/chargeback`, and their sums.

- Storage: the GB-months of one day (bytes / 2^30 / days of the month), times the price of the
  storage class. Minimum sizes and overheads per object are not charged.
- Operations: the measured vCPU-hours and the counted requests, times the table's prices. What was
  not measured or counted has no row.

The columns have the names of FOCUS; custom columns begin with `x_`. The cost of a row is exactly
its quantity times its unit price. Sums are exact decimals and are rounded only for display.
Source: FinOps Open Cost and Usage Specification 1.3, "Cost and Usage".
"""

from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from json import dumps
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.operation import UpkeepOperation
from lakehouse.base.text import Document
from lakehouse.declare.prices import DEFAULT_CLASS, PriceBook, Prices, requests_by_class
from lakehouse.declare.table import Table
from lakehouse.vacuum.inventory.plan import Reconciliation

OUTSIDE = "(outside all tables)"
# Decimal places of quantities and unit prices. A cost has twice as many, so it is exact.
_DIGITS = 12
_EXACT = Context(prec=60)
_GB = 1024**3

_MOST_USD = 1_000  # of a unit price, so that its column can hold it
# The units of the quantities, by the first part of a SKU.
_UNITS = {"storage": "GB-Months", "compute": "vCPU-Hours", "requests": "Requests"}
GROUPS = ("table", "layer", "owner", "class")


# A priced quantity of one day: a row of the table, by column. `SkuId` is the priced item, such as
# `storage/STANDARD`, `compute/vcpu-hour` or `requests/get`. `x_table` is empty for bytes that
# belong to no table.
Charge = dict[str, Any]


def storage_charges(reconciled: Reconciliation, book: PriceBook, *, day: date) -> list[Charge]:
    """The charges of one day for the bytes of an inventory, by table, part and storage class.

    Bytes in a class that the book does not have are charged as STANDARD. `row_of` adds the other
    columns.
    """
    shares = [(table.table, share) for table in reconciled.tables for share in table.shares]
    shares += [("", share) for share in reconciled.unclaimed]
    sizes = Counter[tuple[str, str, str]]()
    for table, share in shares:
        part = "outside" if share.part is None else share.part.name.lower()
        sizes[table, part, share.storage_class or DEFAULT_CLASS] += share.size_bytes
    gb_days = Decimal(_GB * monthrange(day.year, day.month)[1])
    prices = book.usd_per_gb_month
    return [
        {
            "x_day": day,
            "x_table": table,
            "x_part": part,
            "SkuId": f"storage/{storage_class}",
            "ConsumedQuantity": _rounded(_EXACT.divide(Decimal(size_bytes), gb_days)),
            "ListUnitPrice": _unit_price(prices.get(storage_class, prices[DEFAULT_CLASS])),
            "x_bytes": size_bytes,
        }
        for (table, part, storage_class), size_bytes in sorted(sizes.items())
        if size_bytes
    ]


def operation_charges(
    operations: Iterable[UpkeepOperation], tables: Mapping[str, Table], book: PriceBook
) -> list[Charge]:
    """The charges for operations, summed by the day of their end, table, kind and priced item.

    `tables` must contain the tables of all operations. `row_of` adds the other columns.
    """
    quantities = defaultdict[tuple[date, str, str, str, Decimal], Decimal](Decimal)
    for operation in operations:
        day = day_of(operation.ended_ms)
        prices = tables[operation.table].prices
        for sku, quantity, unit_price in _priced_items(operation, prices, book):
            quantities[day, operation.table, operation.kind, sku, unit_price] += quantity
    return [
        {
            "x_day": day,
            "x_table": table,
            "x_part": kind,
            "SkuId": sku,
            "ConsumedQuantity": quantity,
            "ListUnitPrice": unit_price,
            "x_bytes": None,
        }
        for (day, table, kind, sku, unit_price), quantity in quantities.items()
        if quantity
    ]


def _priced_items(
    operation: UpkeepOperation, prices: Prices, book: PriceBook
) -> Iterator[tuple[str, Decimal, Decimal]]:
    """The SKU, the quantity and the unit price of what an operation used."""
    if operation.vcpu_seconds is not None:
        hours = _EXACT.divide(Decimal(repr(operation.vcpu_seconds)), Decimal(3600))
        yield "compute/vcpu-hour", _rounded(hours), _unit_price(prices.usd_per_vcpu_hour)
    usd_per_1000 = {
        "get": prices.usd_per_1000_gets,
        "put": prices.usd_per_1000_puts,
        "delete": book.usd_per_1000_deletes,
    }
    for price_class, count in requests_by_class(operation.requests).items():
        unit_price = _unit_price(usd_per_1000[price_class], per=1_000)
        yield f"requests/{price_class}", _rounded(Decimal(count)), unit_price


def row_of(charge: Charge, tables: Mapping[str, Table], *, account: str, region: str) -> Charge:
    """A charge with all columns. `account` is the lake's address, `region` that of the prices."""
    table = charge["x_table"]
    layer = table.partition("/")[0]
    owner = tables[table].owner if table in tables else ""
    start = midnight(charge["x_day"])
    month = start.replace(day=1)
    tags = {"layer": layer, "owner": owner}
    kind = _kind(charge)
    usd = _EXACT.multiply(charge["ConsumedQuantity"], charge["ListUnitPrice"])
    return {
        **charge,
        "BillingAccountId": account,
        "BillingCurrency": "USD",
        "BillingPeriodStart": month,
        "BillingPeriodEnd": (month + timedelta(days=31)).replace(day=1),
        "ChargePeriodStart": start,
        "ChargePeriodEnd": start + timedelta(days=1),
        "ChargeCategory": "Usage",
        "ServiceCategory": "Compute" if kind == "compute" else "Storage",
        "RegionId": region,
        "SubAccountId": layer or None,
        "ResourceId": f"{account}/{table}" if table else account,
        "ResourceName": table or OUTSIDE,
        "Tags": dumps({name: value for name, value in tags.items() if value}),
        "ConsumedUnit": _UNITS[kind],
        "PricingQuantity": charge["ConsumedQuantity"],
        "PricingUnit": _UNITS[kind],
        "ContractedUnitPrice": charge["ListUnitPrice"],
        **dict.fromkeys(("ListCost", "ContractedCost", "EffectiveCost", "BilledCost"), usd),
        "x_owner": owner,
    }


def updated(recorded: Sequence[Charge], current: Sequence[Charge]) -> list[Charge]:
    """The charges of a day after a run, in a fixed order.

    Current charges for storage replace all recorded ones. A current charge for operations replaces
    the recorded one of the same table, part and priced item. What is recorded but no longer known
    stays.
    """
    has_storage = any(map(_is_storage, current))
    kept = [each for each in recorded if not (has_storage and _is_storage(each))]
    charges = {(each["x_table"], each["x_part"], each["SkuId"]): each for each in (*kept, *current)}
    return [charges[key] for key in sorted(charges)]


def costs_document(charges: Sequence[Charge], *, by: str, since: str) -> Document:
    """The document of `lakehouse costs --json`: the sums by one of `GROUPS`.

    Groups are by descending cost. `size_bytes` are the stored bytes on the newest day with an
    inventory; null if no charge is for storage.
    """
    days = {each["x_day"] for each in charges}
    stored_days = {each["x_day"] for each in charges if _is_storage(each)}
    newest_day = max(stored_days, default=None)
    groups = dict[str, list[Charge]]()
    for charge in charges:
        groups.setdefault(_group(charge, by), []).append(charge)
    sums = list[Document]()
    for name, group in sorted(groups.items()):
        stored = [each for each in group if _is_storage(each) and each["x_day"] == newest_day]
        usd = {
            f"{kind}_usd": _total(each for each in group if _kind(each) == kind) for kind in _UNITS
        }
        size_bytes = sum(each["x_bytes"] for each in stored) if stored else None
        sums.append({"name": name, "size_bytes": size_bytes, **usd, "usd": _total(group)})
    sums.sort(key=lambda each: -each["usd"])
    return {
        "since": since,
        "until": max(days).isoformat() if days else None,
        "stored_days": len(stored_days),
        "by": by,
        "usd": _total(charges),
        "groups": sums,
    }


def midnight(day: date) -> datetime:
    """The start of a day, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def day_of(ms: int) -> date:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()


def _unit_price(usd: float, *, per: int = 1) -> Decimal:
    price = _rounded(Decimal(repr(usd)) / per)
    if price >= _MOST_USD:
        raise Refused(f"a price is {price:f} USD a unit. Use a price below {_MOST_USD:,} USD")
    return price


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-_DIGITS), context=_EXACT)


def _total(charges: Iterable[Charge]) -> float:
    return float(round(sum((each["BilledCost"] for each in charges), Decimal(0)), 9))


def _kind(charge: Charge) -> str:
    """What is charged: `storage`, `compute` or `requests`."""
    return charge["SkuId"].partition("/")[0]


def _is_storage(charge: Charge) -> bool:
    return _kind(charge) == "storage"


def _group(charge: Charge, by: str) -> str:
    match by:
        case "table":
            return charge["ResourceName"]
        case "layer":
            return charge["SubAccountId"] or OUTSIDE
        case "owner":
            return charge["x_owner"] or "(no owner)"
        case _:
            return charge["SkuId"].partition("/")[2] if _is_storage(charge) else "(operations)"
