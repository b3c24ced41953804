"""The columns of the table `costs/chargeback`: all of FOCUS 1.3, Cost and Usage, and custom ones.

Source: FinOps Open Cost and Usage Specification 1.3, "Cost and Usage". Custom columns come last and
begin with `x_`, as the specification's section "Column Handling" requires.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from json import dumps
from typing import Any, Literal

from lakehouse.core.costs.charges import Charge, ChargeKind
from lakehouse.core.costs.exact_amounts import DIGITS

FocusType = Literal["String", "Decimal", "Date/Time", "JSON"]

_TEXTS = (
    "AllocatedMethodId",
    "AllocatedResourceId",
    "AllocatedResourceName",
    "AvailabilityZone",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CommitmentDiscountUnit",
    "ConsumedUnit",
    "HostProviderName",
    "InvoiceId",
    "InvoiceIssuerName",
    "PricingCategory",
    "PricingCurrency",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceProviderName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
)
# The cost columns. An allocation splits all columns in `SPLIT`: the costs and the quantities.
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
SPLIT = (
    *COSTS,
    "CommitmentDiscountQuantity",
    "ConsumedQuantity",
    "PricingCurrencyEffectiveCost",
    "PricingQuantity",
)
_PRICES = (
    "ContractedUnitPrice",
    "ListUnitPrice",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyListUnitPrice",
)
_TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
_DOCUMENTS = (
    "AllocatedMethodDetails",
    "AllocatedTags",
    "ContractApplied",
    "SkuPriceDetails",
    "Tags",
)


def _focus_columns() -> dict[str, FocusType]:
    columns: dict[str, FocusType] = {
        **dict.fromkeys(_TEXTS, "String"),
        **dict.fromkeys((*SPLIT, *_PRICES), "Decimal"),
        **dict.fromkeys(_TIMES, "Date/Time"),
        **dict.fromkeys(_DOCUMENTS, "JSON"),
    }
    return {name: columns[name] for name in sorted(columns)}


# Name -> type, in the order of the table.
FOCUS_COLUMNS: Mapping[str, FocusType] = _focus_columns()
# Name -> type as Spark spells it.
# - x_mode: estimated (from prices) or allocated (from a bill).
# - x_part: see `Charge.part`.
# - x_report: the inventory or the bill from which the row was computed.
# - x_is_closed: true if the row was written after the end of its day and all tables could be read,
#   and for all rows of a bill. A closed estimated row is never replaced. If it was wrong, rows with
#   ChargeClass "Correction" are added to its day.
CUSTOM_COLUMNS: Mapping[str, str] = {
    "x_mode": "STRING",
    "x_day": "DATE",
    "x_table": "STRING",
    "x_layer": "STRING",
    "x_owner": "STRING",
    "x_kind": "STRING",
    "x_part": "STRING",
    "x_storage_class": "STRING",
    "x_bytes": "BIGINT",
    "x_report": "STRING",
    "x_is_closed": "BOOLEAN",
}
_SPARK_TYPES: Mapping[FocusType, str] = {
    "String": "STRING",
    "Decimal": f"DECIMAL(38, {DIGITS})",
    "Date/Time": "TIMESTAMP",
    "JSON": "STRING",
}
COLUMNS: Mapping[str, str] = {
    **{name: _SPARK_TYPES[kind] for name, kind in FOCUS_COLUMNS.items()},
    **CUSTOM_COLUMNS,
}

# Kind -> service category, subcategory and name. The names of AWS services are spelled as in bills.
_SERVICES: Mapping[ChargeKind, tuple[str, str, str]] = {
    "storage": ("Storage", "Object Storage", "Amazon Simple Storage Service"),
    "requests": ("Storage", "Object Storage", "Amazon Simple Storage Service"),
    "compute": ("Compute", "Other (Compute)", "Table upkeep"),
}
# The columns that have the same value in every row of an estimate.
_SAME_IN_ALL_ROWS = {
    "BillingAccountType": "Lake",
    "BillingCurrency": "USD",
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "PricingCategory": "Standard",
    "PricingCurrency": "USD",
    "x_mode": "estimated",
    "HostProviderName": "AWS",
    "InvoiceIssuerName": "AWS",
    "ProviderName": "AWS",
    "PublisherName": "AWS",
    "ServiceProviderName": "AWS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeAccount:
    """What all rows of a lake have in common: its address, and its prices' region and month."""

    address: str
    region: str
    prices_as_of: str


def estimated_row(charge: Charge, account: LakeAccount, *, is_closed: bool) -> dict[str, Any]:
    """The row of an estimated charge, with a value for every column."""
    start = midnight(charge.day)
    month = midnight(charge.day.replace(day=1))
    category, subcategory, service = _SERVICES[charge.kind]
    tags = {"layer": charge.layer, "owner": charge.owner}
    known = {
        "BillingAccountId": account.address,
        "BillingAccountName": account.address,
        "BillingPeriodStart": month,
        "BillingPeriodEnd": next_month(month),
        "ChargeClass": "Correction" if charge.is_correction else None,
        "ChargeDescription": _description(charge),
        "ChargePeriodStart": start,
        "ChargePeriodEnd": start + timedelta(days=1),
        "ConsumedQuantity": charge.quantity,
        "ConsumedUnit": charge.unit,
        "PricingQuantity": charge.quantity,
        "PricingUnit": charge.unit,
        "RegionId": account.region,
        "RegionName": account.region,
        "ResourceId": f"{account.address}/{charge.table}" if charge.table else account.address,
        "ResourceName": charge.table or account.address,
        "ResourceType": "Delta table" if charge.table else "Objects outside all tables",
        "ServiceCategory": category,
        "ServiceName": service,
        "ServiceSubcategory": subcategory,
        "SkuId": charge.sku,
        "SkuMeter": charge.kind,
        "SkuPriceId": f"{account.region}/{account.prices_as_of}/{charge.sku}",
        "SubAccountId": charge.layer or None,
        "SubAccountName": charge.layer or None,
        "SubAccountType": "Layer" if charge.layer else None,
        "Tags": dumps({name: value for name, value in tags.items() if value}),
        **dict.fromkeys((*COSTS, "PricingCurrencyEffectiveCost"), charge.usd),
        **dict.fromkeys(_PRICES, charge.unit_price),
        "x_day": charge.day,
        "x_table": charge.table,
        "x_layer": charge.layer,
        "x_owner": charge.owner,
        "x_kind": charge.kind,
        "x_part": charge.part,
        "x_storage_class": charge.storage_class,
        "x_bytes": charge.size_bytes,
        "x_report": charge.report,
        "x_is_closed": is_closed,
    }
    return {**dict.fromkeys(COLUMNS), **_SAME_IN_ALL_ROWS, **known}


def charge_of(row: Mapping[str, Any]) -> Charge:
    """The charge from which `estimated_row` made this row."""
    return Charge(
        day=row["x_day"],
        table=row["x_table"],
        owner=row["x_owner"],
        kind=row["x_kind"],
        part=row["x_part"],
        sku=row["SkuId"],
        quantity=Decimal(row["ConsumedQuantity"]),
        unit=row["ConsumedUnit"],
        unit_price=Decimal(row["ListUnitPrice"]),
        storage_class=row["x_storage_class"],
        size_bytes=row["x_bytes"],
        report=row["x_report"],
        is_correction=row["ChargeClass"] == "Correction",
    )


def midnight(day: date) -> datetime:
    """The start of a day, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def next_month(month: datetime) -> datetime:
    """The start of the next month; `month` is the start of a month."""
    return (month + timedelta(days=31)).replace(day=1)


def _description(charge: Charge) -> str:
    subject = charge.table or "objects outside all tables"
    storage_class = f", {charge.storage_class}" if charge.storage_class else ""
    correction = ", corrected by a later inventory" if charge.is_correction else ""
    return f"{charge.kind} of {subject}: {charge.part}{storage_class}{correction}"
