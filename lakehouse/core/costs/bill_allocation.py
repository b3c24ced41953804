"""Splits each row of a bill by the bytes that each table stores. The parts sum up to the row.

The bill is a FOCUS export, such as that of AWS. A row for a storage class is split by the bytes in
that class. Any other row, and a row for a class in which no bytes are known, is split by all bytes.
The stored bytes come from the days in the row's period. If no such day is known, they come from the
last known day before it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any

from lakehouse.core.costs.chargeback_columns import COLUMNS, COSTS, FOCUS_COLUMNS, SPLIT
from lakehouse.core.costs.charges import Charge
from lakehouse.core.costs.exact_amounts import DIGITS, EXACT, rounded
from lakehouse.core.errors import Refused

# The start of a usage type in AWS's bills -> storage class. Other TimedStorage types are STANDARD.
# Source: Amazon S3 user guide, "Understanding your AWS billing and usage reports for Amazon S3".
_USAGE_CLASSES = {
    "TimedStorage-SIA": "STANDARD_IA",
    "TimedStorage-ZIA": "ONEZONE_IA",
    "TimedStorage-GIR": "GLACIER_IR",
    "TimedStorage-Glacier": "GLACIER",
    "TimedStorage-GDA": "DEEP_ARCHIVE",
    "TimedStorage-INT": "INTELLIGENT_TIERING",
}
_STORAGE = re.compile(r"TimedStorage(?:-[A-Za-z]+)*")


def split(amount: Decimal, weights: Sequence[int], *, digits: int = DIGITS) -> list[Decimal]:
    """Parts of `amount` in proportion to the weights, by the method of the largest remainder.

    The parts have at most `digits` decimal places and sum up to exactly `amount`. `amount` must not
    have more decimal places, and the sum of the weights must be above 0.
    """
    total = sum(weights)
    units = int(amount.scaleb(digits, EXACT).to_integral_value(ROUND_DOWN, EXACT))
    sign = -1 if units < 0 else 1
    floors = [abs(units) * weight // total for weight in weights]
    remainders = [abs(units) * weight % total for weight in weights]
    undistributed = abs(units) - sum(floors)
    order = sorted(range(len(weights)), key=lambda place: (-remainders[place], place))
    for place in order[:undistributed]:
        floors[place] += 1
    return [Decimal(sign * count).scaleb(-digits, EXACT) for count in floors]


def select_rows(
    bill: Iterable[Mapping[str, Any]], *, resource: str, name: str
) -> list[Mapping[str, Any]]:
    """The rows of a bill whose ResourceId names the resource, such as a bucket.

    Raises:
        Refused: no row names the resource. Or such a row lacks a cost, its period or its currency.
            Or currencies are mixed.
    """
    # A resource id may be the name alone, end with it (an ARN), or continue with a path.
    resource_name = re.compile(rf"(?:^|[:/]){re.escape(resource)}(?:$|/)")
    rows = [row for row in bill if resource_name.search(str(row.get("ResourceId") or ""))]
    if not rows:
        raise Refused(
            f"{name}: no row has a ResourceId that names {resource!r}. Use a FOCUS export with"
            " resource ids, or name the resource with --resource."
        )
    for column in (*COSTS, "ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency"):
        if any(row.get(column) in (None, "") for row in rows):
            raise Refused(f"{name}: the column {column} is missing or empty. Use a FOCUS export.")
    currencies = sorted({str(row["BillingCurrency"]) for row in rows})
    if len(currencies) > 1:
        raise Refused(
            f"{name}: the rows mix the currencies {' and '.join(currencies)}. Use one file for each"
            " currency."
        )
    return rows


def allocated_rows(
    rows: Iterable[Mapping[str, Any]], charges: Sequence[Charge], *, bill: str
) -> list[dict[str, Any]]:
    """The rows of a bill, each split as the module docstring describes.

    `charges` are the recorded charges (`costs/chargeback`); only those for storage are used. `bill`
    is the name of the bill.

    Raises:
        Refused: the charges have no stored bytes in the period of a row or before it.
    """
    by_day = dict[date, list[Charge]]()
    for each in charges:
        if each.kind == "storage":
            by_day.setdefault(each.day, []).append(each)
    return [part for row in rows for part in _split_row(row, by_day, bill)]


def _split_row(
    row: Mapping[str, Any], by_day: Mapping[date, Sequence[Charge]], bill: str
) -> list[dict[str, Any]]:
    known = {name: _typed(name, row[name]) for name in FOCUS_COLUMNS if name in row}
    start = known["ChargePeriodStart"]
    end = known["ChargePeriodEnd"]
    stored = list[Charge]()
    for day in _known_days(by_day, start, end):
        stored += by_day[day]
    weights = _weights(row, stored)
    if not weights:
        raise Refused(
            f"{bill}: costs/chargeback has no stored bytes for {start:%Y-%m-%d} or an earlier day."
            " Run the inventory and costs/chargeback for that time, or remove these rows from the"
            " bill."
        )
    keys = sorted(weights)
    sizes = [weights[key] for key in keys]
    ratios = split(Decimal(1), sizes, digits=12)
    amounts = {name: split(known[name], sizes) for name in SPLIT if known.get(name) is not None}
    billed_class = _billed_class(row)
    method = "lakehouse/stored-bytes-of-class" if billed_class else "lakehouse/stored-bytes"
    parts_of_row = list[dict[str, Any]]()
    for place, (table, owner, part, storage_class) in enumerate(keys):
        details = {
            "AllocatedRatio": float(ratios[place]),
            "UsageUnit": "Byte-Days",
            "UsageQuantity": sizes[place],
        }
        layer = table.partition("/")[0]
        parts_of_row.append(
            {
                **dict.fromkeys(COLUMNS),
                **known,
                **{name: parts[place] for name, parts in amounts.items()},
                "AllocatedMethodId": method,
                "AllocatedMethodDetails": json.dumps({"Elements": [details]}),
                "AllocatedResourceId": table or "(outside all tables)",
                "AllocatedResourceName": table or "objects outside all tables",
                "AllocatedTags": json.dumps({"owner": owner, "layer": layer}),
                "x_mode": "allocated",
                "x_day": start.date(),
                "x_table": table,
                "x_layer": layer,
                "x_owner": owner,
                "x_kind": "storage" if billed_class else "requests",
                "x_part": part,
                "x_storage_class": storage_class,
                "x_report": bill,
                "x_is_closed": True,
            }
        )
    return parts_of_row


def _weights(
    row: Mapping[str, Any], stored: Sequence[Charge]
) -> dict[tuple[str, str, str, str], int]:
    """Bytes by table, owner, part (see `Charge.part`) and storage class.

    If the billed class has bytes, only these count.
    """
    billed_class = _billed_class(row)
    billed = [each for each in stored if each.storage_class == billed_class]
    weights = dict[tuple[str, str, str, str], int]()
    for each in billed or stored:
        key = (each.table, each.owner, each.part, each.storage_class)
        weights[key] = weights.get(key, 0) + (each.size_bytes or 0)
    return {key: size_bytes for key, size_bytes in weights.items() if size_bytes > 0}


def _known_days(by_day: Mapping[date, object], start: datetime, end: datetime) -> list[date]:
    """The days in a period that have charges, or else the latest such day before the period."""
    days = [day for day in by_day if start.date() <= day and _begins_before(day, end)]
    earlier_days = sorted(day for day in by_day if day < start.date())
    return sorted(days) or earlier_days[-1:]


def _begins_before(day: date, end: datetime) -> bool:
    return datetime(day.year, day.month, day.day, tzinfo=end.tzinfo) < end


def _billed_class(row: Mapping[str, Any]) -> str:
    """The storage class that a row bills; an empty string for requests and transfers."""
    text = " ".join(str(row.get(name) or "") for name in ("x_UsageType", "SkuMeter", "SkuId"))
    usage = _STORAGE.search(text)
    if usage is None:
        return ""
    for usage_type, storage_class in _USAGE_CLASSES.items():
        if usage[0].startswith(usage_type):
            return storage_class
    return "STANDARD"


def _typed(column: str, value: Any) -> Any:
    """The value of a FOCUS column in the type of the table. Exports may be CSV or Parquet."""
    if value is None or value == "":
        return None
    match FOCUS_COLUMNS[column]:
        case "Decimal":
            number = Decimal(str(value))
            return number if column in SPLIT else rounded(number)
        case "Date/Time":
            time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        case "JSON" if not isinstance(value, str):
            return json.dumps(dict(value), default=str)
        case _:
            return str(value)
