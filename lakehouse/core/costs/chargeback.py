"""The charges of one day: estimated from an inventory and prices, or corrected by a later report.

A day's charges are rewritten until the day has ended. The first run after that closes the day. A
report that arrives later adds corrections, and changes no row.
"""

from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from lakehouse.core.costs.focus import EXACT, FocusCharge, rounded
from lakehouse.core.inventory.objects import Part
from lakehouse.core.inventory.reconcile import Reconciliation, UsageShare

_GB = 1024**3
OUTSIDE = "outside"
_DEFAULT_CLASS = "STANDARD"

# The price of a GB-month of a storage class; `None` if it is unknown.
FindPrice = Callable[[str], Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDay:
    """The inventory that stands for a day. `owners` maps tables to their owners."""

    day: date
    report: str
    reconciliation: Reconciliation
    owners: Mapping[str, str]


def storage_charges(stored: StoredDay, find_price: FindPrice) -> list[FocusCharge]:
    """The charges for one day of storage: bytes by table, part and storage class.

    S3 bills GB-months by the hour, so a day is the share of its month. Classes without a price are
    charged as STANDARD.
    """
    found = stored.reconciliation
    shares = [(table.table, share) for table in found.tables for share in table.shares]
    shares += [("", share) for share in found.unclaimed]
    cells = dict[tuple[str, str, str], int]()
    for table, share in shares:
        key = (table, part_word(share.part), _class_of(share))
        cells[key] = cells.get(key, 0) + share.size_bytes
    return [
        _storage_charge(stored, key, size_bytes, find_price)
        for key, size_bytes in sorted(cells.items())
        if size_bytes
    ]


def gb_months(size_bytes: int, day: date) -> Decimal:
    """The GB-months of bytes that were stored for one day."""
    days = monthrange(day.year, day.month)[1]
    return rounded(EXACT.divide(Decimal(size_bytes), Decimal(_GB * days)))


def corrections(written: Sequence[FocusCharge], now: Sequence[FocusCharge]) -> list[FocusCharge]:
    """What must be added to the charges of a closed day, so that they sum up to those known now.

    `written` includes earlier corrections.
    """
    before, after = _sums(written), _sums(now)
    differences = list[FocusCharge]()
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        model = new or old
        assert model is not None
        quantity = (new.quantity if new else Decimal(0)) - (old.quantity if old else Decimal(0))
        size = ((new.size_bytes or 0) if new else 0) - ((old.size_bytes or 0) if old else 0)
        if quantity or size:
            report = now[0].report if now else model.report
            differences.append(
                replace(
                    model, quantity=quantity, size_bytes=size, report=report, is_correction=True
                )
            )
    return differences


def part_word(part: Part | None) -> str:
    """The word for a part in the table of costs."""
    return OUTSIDE if part is None else part.name.lower()


def _class_of(share: UsageShare) -> str:
    return share.storage_class or _DEFAULT_CLASS


def _storage_charge(
    stored: StoredDay, key: tuple[str, str, str], size_bytes: int, find_price: FindPrice
) -> FocusCharge:
    table, part, storage_class = key
    price = find_price(storage_class)
    if price is None:
        price = find_price(_DEFAULT_CLASS) or Decimal(0)
    return FocusCharge(
        day=stored.day,
        table=table,
        owner=stored.owners.get(table, ""),
        kind="storage",
        part=part,
        sku=f"storage/{storage_class}",
        quantity=gb_months(size_bytes, stored.day),
        unit="GB-Months",
        unit_price=price,
        storage_class=storage_class,
        size_bytes=size_bytes,
        report=stored.report,
    )


def _sums(charges: Iterable[FocusCharge]) -> dict[tuple[str, ...], FocusCharge]:
    """One charge per table, part and price, with the summed quantity."""
    sums = dict[tuple[str, ...], FocusCharge]()
    for each in charges:
        key = (each.table, each.owner, each.part, each.sku, str(each.unit_price.normalize()))
        before = sums.get(key)
        sums[key] = (
            each
            if before is None
            else replace(
                before,
                quantity=before.quantity + each.quantity,
                size_bytes=(before.size_bytes or 0) + (each.size_bytes or 0),
            )
        )
    return sums
