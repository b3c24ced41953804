"""The charges of a lake by day, for stored bytes and operations.

Sums are exact decimals and are rounded only for display.

- Storage: the GB-months of one day (bytes / 2^30 / days of the month), times the price of the
  class. Bytes that a colder class bills per object are a separate charge. Minimum storage days are
  not charged.
- Operations: the measured vCPU-seconds and the counted requests. What was not measured or counted
  is not charged.

A day is closed once a run has written its charges after the end of the day, and could read all
tables. Later charges only correct it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Literal

from lakehouse.core.costs.exact_amounts import EXACT, day_of, decimal_of, gb_months, rounded
from lakehouse.core.costs.operations import UpkeepOperation, requests_by_class
from lakehouse.core.costs.price_book import PriceBook
from lakehouse.core.declaration.table import Table
from lakehouse.core.inventory.objects import RECLAIMABLE, Part

OUTSIDE = "outside"
MULTIPART = "multipart"
# The parts of storage that are needed only by earlier versions of a table, or not at all.
_DEAD = frozenset(
    part.name.lower() for part in (*RECLAIMABLE, Part.TOMBSTONED_KEPT, Part.VECTORS_KEPT)
) | {MULTIPART}

ChargeKind = Literal["storage", "compute", "requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A priced quantity of one day. `table` is empty for bytes that belong to no table.

    - `part`: for storage, the use of the objects: a `Part` in lower case, for example `live`, or
      `outside` or `multipart`. For operations, the kind of the operation.
    - `sku`: the priced item, for example `storage/STANDARD`.
    - `size_bytes`: the stored bytes; `None` if the charge is not for storage.
    - `report`: the inventory that shows the quantity; empty if no inventory shows it.
    - `is_correction`: whether the charge corrects the sum of a closed day. Its quantity may be
      negative.
    """

    day: date
    table: str
    owner: str
    kind: ChargeKind
    part: str
    sku: str
    quantity: Decimal
    unit: str
    unit_price: Decimal
    storage_class: str = ""
    size_bytes: int | None = None
    report: str = ""
    is_correction: bool = False

    @property
    def layer(self) -> str:
        """The table's layer, or an empty string."""
        return self.table.partition("/")[0]

    @property
    def usd(self) -> Decimal:
        """The cost, exact to `DIGITS` decimal places."""
        return rounded(EXACT.multiply(self.quantity, self.unit_price))

    @property
    def is_stored(self) -> bool:
        """Whether the charge is for the stored bytes, and not for a minimum size or an overhead."""
        return self.sku == f"storage/{self.storage_class}"

    @property
    def is_dead(self) -> bool:
        """Whether the charge is for stored bytes of a part in `_DEAD`."""
        return self.kind == "storage" and self.part in _DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSum:
    """The sum of the charges of one table, layer, owner or kind, which is its `name`."""

    name: str
    usd: Decimal


def of_report(charges: Iterable[Charge]) -> list[Charge]:
    """The charges that come from an inventory: for stored bytes, and for the inventory itself."""
    return [each for each in charges if each.report]


def operation_charges(
    operations: Iterable[UpkeepOperation], tables: Mapping[str, Table], book: PriceBook
) -> list[Charge]:
    """The charges for operations, summed by the day of their end, table, kind and priced item.

    `tables` must contain the tables of all operations.
    """
    charges = dict[tuple[object, ...], Charge]()
    for each in operations:
        for charge in _charges_of(each, tables[each.table], book):
            key = (charge.day, charge.table, charge.part, charge.sku)
            previous = charges.get(key)
            quantity = charge.quantity + (previous.quantity if previous else 0)
            charges[key] = replace(charge, quantity=quantity)
    return [charge for charge in charges.values() if charge.quantity]


def corrections(recorded: Sequence[Charge], correct: Sequence[Charge]) -> list[Charge]:
    """The charges to add to a closed day, so that its sums equal those of the `correct` charges.

    `recorded` are the charges of the day so far, including earlier corrections.
    """
    recorded_sums = _sums(recorded)
    correct_sums = _sums(correct)
    differences = list[Charge]()
    for key in sorted(recorded_sums.keys() | correct_sums.keys()):
        old = recorded_sums.get(key)
        new = correct_sums.get(key)
        model = new or old
        assert model is not None
        quantity = _quantity(new) - _quantity(old)
        size_bytes = _size_bytes(new) - _size_bytes(old)
        if quantity or size_bytes:
            correction = replace(
                model,
                quantity=quantity,
                size_bytes=size_bytes,
                report=correct[0].report if correct else model.report,
                is_correction=True,
            )
            differences.append(correction)
    return differences


def _quantity(charge: Charge | None) -> Decimal:
    return charge.quantity if charge else Decimal(0)


def _size_bytes(charge: Charge | None) -> int:
    return (charge.size_bytes or 0) if charge else 0


def carried(charges: Sequence[Charge], day: date) -> list[Charge]:
    """The storage charges of `day`, assuming that it stores the same bytes as another day.

    `charges` are the charges of the other day. Only charges for stored bytes are carried over.
    """
    sums = [each for each in _sums(charges).values() if (each.size_bytes or 0) > 0]
    return [
        replace(
            each,
            day=day,
            quantity=gb_months(each.size_bytes or 0, day),
            is_correction=False,
        )
        for each in sums
    ]


def sum_by(charges: Iterable[Charge], by: str) -> list[CostSum]:
    """The sums by `table`, `layer`, `owner` or `kind`, the largest first.

    With `kind`, the sums are by the kind and the part of the charges.
    """
    sums = dict[str, Decimal]()
    for charge in charges:
        name = _name_of(charge, by)
        sums[name] = EXACT.add(sums.get(name, Decimal(0)), charge.usd)
    cost_sums = [CostSum(name=name, usd=usd) for name, usd in sums.items()]
    return sorted(cost_sums, key=lambda each: (-each.usd, each.name))


def total_usd(charges: Iterable[Charge]) -> Decimal:
    """The sum of all charges."""
    total = Decimal(0)
    for charge in charges:
        total = EXACT.add(total, charge.usd)
    return total


def _charges_of(operation: UpkeepOperation, table: Table, book: PriceBook) -> Iterable[Charge]:
    compute = Charge(
        day=day_of(operation.ended_ms),
        table=table.key,
        owner=table.owner,
        kind="compute",
        part=operation.kind,
        sku="compute/vcpu-hour",
        quantity=Decimal(0),
        unit="vCPU-Hours",
        unit_price=decimal_of(table.prices.usd_per_vcpu_hour),
    )
    if operation.vcpu_seconds is not None:
        hours = EXACT.divide(decimal_of(operation.vcpu_seconds), Decimal(3600))
        yield replace(compute, quantity=rounded(hours))
    usd_per_1000 = {
        "get": table.prices.usd_per_1000_gets,
        "put": table.prices.usd_per_1000_puts,
        "delete": book.usd_per_1000_deletes,
    }
    for price_class, count in requests_by_class(operation.requests or {}).items():
        yield replace(
            compute,
            kind="requests",
            sku=f"requests/{price_class}",
            quantity=Decimal(count),
            unit="Requests",
            unit_price=decimal_of(usd_per_1000[price_class]) / 1_000,
        )


def _sums(charges: Iterable[Charge]) -> dict[tuple[str, ...], Charge]:
    """One charge per table, owner, part, priced item and price, with the summed quantity."""
    sums = dict[tuple[str, ...], Charge]()
    for each in charges:
        key = (each.table, each.owner, each.part, each.sku, str(each.unit_price.normalize()))
        previous = sums.get(key)
        if previous is None:
            sums[key] = each
            continue
        sums[key] = replace(
            previous,
            quantity=previous.quantity + each.quantity,
            size_bytes=_size_bytes(previous) + _size_bytes(each),
            report=max(previous.report, each.report),
        )
    return sums


def _name_of(charge: Charge, by: str) -> str:
    match by:
        case "table":
            return charge.table or "(outside all tables)"
        case "layer":
            return charge.layer or "(outside all tables)"
        case "owner":
            return charge.owner or "(no owner)"
        case _:
            return f"{charge.kind}: {charge.part}"
