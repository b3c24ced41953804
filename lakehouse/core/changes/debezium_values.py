"""Decodes values in Debezium's JSON to the declared column types.

The schema in a line names the type of each field. Without a schema, a value is decoded only if the
declared type makes it unambiguous: a date is a number of days in every mode of Debezium, but a
timestamp may count milli-, micro- or nanoseconds.

**Safety properties**
- A value is decoded exactly, or is left as it is for Spark to read, or is refused (`Undecodable`).
  Only a decimal in a column of type FLOAT, REAL or DOUBLE is rounded.

Source: Debezium's reference, "Data type mappings" of the connectors for PostgreSQL and MySQL;
`io.debezium.time.*`, `io.debezium.data.Bits`, `VariableScaleDecimal`; Kafka Connect,
`JsonConverter` (bytes are Base64).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from math import isinf
from typing import Any, NamedTuple, cast

from lakehouse.core.changes.debezium_decimals import decimal_of, fitting, is_decimal
from lakehouse.core.changes.debezium_field import Field, Undecodable, bytes_of, part_of, shown
from lakehouse.core.declaration.column_names import struct_types

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_BITS = "io.debezium.data.Bits"
_DATES = (f"{_TIME}Date", f"{_CONNECT}Date")
# Units per second.
_TIMESTAMPS = {
    f"{_TIME}Timestamp": 1_000,
    f"{_CONNECT}Timestamp": 1_000,
    f"{_TIME}MicroTimestamp": 1_000_000,
    f"{_TIME}NanoTimestamp": 1_000_000_000,
}
_TIMES = {
    f"{_TIME}Time": 1_000,
    f"{_CONNECT}Time": 1_000,
    f"{_TIME}MicroTime": 1_000_000,
    f"{_TIME}NanoTime": 1_000_000_000,
}
_HEX = re.compile(r"(?:[0-9a-f]{2})+|(?:[0-9A-F]{2})+")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}Z")
_ISO_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+Z")
_BEYOND_MICROSECONDS = re.compile(r"\.\d{6}\d*[1-9]")
_TYPE = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_NESTED = re.compile(r"\s*(ARRAY|MAP)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
# The type of a map's keys, which may be a DECIMAL(10,2), and the comma after it.
_KEY_TYPE = re.compile(r"[^,(]*(\([^)]*\))?\s*,")
_WHOLE_BITS = {
    "TINYINT": 8,
    "BYTE": 8,
    "SMALLINT": 16,
    "SHORT": 16,
    "INT": 32,
    "INTEGER": 32,
    "BIGINT": 64,
    "LONG": 64,
}
# A whole decimal with at most this many digits is written as a whole number, not as a float.
_EXACT_DIGITS = 15
# Naive, because Debezium counts timestamps without a time zone as if they were in UTC.
_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = (date.min - _EPOCH.date()).days
_LAST_DAY = (date.max - _EPOCH.date()).days


class _Shape(NamedTuple):
    """A parsed declared type. `inside` is the text between the brackets of an ARRAY or MAP."""

    kind: str
    precision: int = 10
    scale: int = 0
    inside: str = ""
    members: Mapping[str, str] = {}


@cache
def _shape_of(declared: str) -> _Shape:
    if nested := _NESTED.match(declared):
        return _Shape(nested[1].upper(), inside=nested[2])
    if members := struct_types(declared):
        return _Shape("STRUCT", members=members)
    match = _TYPE.match(declared)
    if match is None:
        return _Shape("")
    return _Shape(match[1].upper(), int(match[2] or 10), int(match[3] or 0))


def decoded(value: Any, field: Field, spelled: Callable[[], str] | None = None) -> Any:
    """The value as JSON that Spark reads as the declared type; the same object if unchanged.

    `spelled` returns the text of a number in the line, so that a decimal keeps all its digits.

    Raises:
        Undecodable: the value is ambiguous, or does not fit the declared type.
    """
    if value is None:
        return None
    shape = _shape_of(field.declared)
    match shape.kind:
        case "STRING" | "VARCHAR" | "CHAR":
            return _as_text(value, field)
        case "DECIMAL" | "DEC" | "NUMERIC":
            text = spelled() if spelled is not None and isinstance(value, float) else None
            number = decimal_of(value, field, shape.scale, text)
            fitted = fitting(number, shape.precision, shape.scale)
            # A number in JSON that fits stays a number: Spark reads its text in the line.
            return value if isinstance(value, int | float) else fitted
        case "DATE":
            return _as_date(value, field)
        case "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ":
            return _as_timestamp(value, field, shape.kind)
        case "FLOAT" | "REAL" | "DOUBLE":
            return _as_double(value, field) if is_decimal(value, field) else value
        case "BOOLEAN":
            # A BOOLEAN of MySQL is a TINYINT(1), which Debezium sends as a number.
            return bool(value) if type(value) is int and value in (0, 1) else value
        case "BINARY":
            return _as_binary(value, field)
        case "ARRAY" | "MAP" | "STRUCT":
            return _decoded_inside(value, field, shape)
        case _:
            bits = _WHOLE_BITS.get(shape.kind)
            return value if bits is None else _as_whole_number(value, field, bits)


def _decoded_inside(value: Any, field: Field, shape: _Shape) -> Any:
    if shape.kind == "ARRAY" and isinstance(value, list):
        items = cast("list[Any]", value)
        item_field = replace(field, declared=shape.inside, schema=part_of(field.schema, "items"))
        decoded_items = [decoded(each, item_field) for each in items]
        is_same = all(one is other for one, other in zip(items, decoded_items, strict=True))
        return items if is_same else decoded_items
    if shape.kind == "MAP" and isinstance(value, dict):
        row = cast("dict[str, Any]", value)
        types = dict.fromkeys(row, _KEY_TYPE.sub("", shape.inside, count=1))  # keys stay texts
        return _decoded_members(row, field, types, part_of(field.schema, "values"))
    if shape.kind == "STRUCT" and isinstance(value, dict):
        return _decoded_members(cast("dict[str, Any]", value), field, shape.members, None)
    return value


def _decoded_members(
    row: dict[str, Any], field: Field, types: Mapping[str, str], shared: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The members of an object, decoded to these types.

    `shared` is the schema of all members. If it is `None`, each member has its own schema.
    """
    schemas = fields_of(field.schema)
    members = dict(row)
    for name, value in row.items():
        if name in types:
            schema = shared or schemas.get(name)
            members[name] = decoded(value, replace(field, declared=types[name], schema=schema))
    return row if all(members[name] is row[name] for name in members) else members


def fields_of(schema: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The schemas of the fields in a struct's schema, by name; empty without a schema."""
    schemas: dict[str, Mapping[str, Any]] = {}
    fields = (schema or {}).get("fields")
    if not isinstance(fields, list):
        return schemas
    for each in cast("list[Any]", fields):
        if isinstance(each, dict):
            field = cast("dict[str, Any]", each)
            schemas[str(field.get("field"))] = field
    return schemas


def _as_double(value: Any, field: Field) -> int | float:
    number = decimal_of(value, field, 0, None)
    if number.adjusted() < _EXACT_DIGITS and number == number.to_integral_value():
        return int(number)
    rounded = float(number)
    if isinf(rounded):
        raise Undecodable("is too large for a DOUBLE")
    return rounded


def _as_whole_number(value: Any, field: Field, bits: int) -> Any:
    if field.name == _BITS and isinstance(value, str):
        number = Decimal(int.from_bytes(bytes_of(value), "little"))
    elif is_decimal(value, field):
        number = decimal_of(value, field, 0, None)
    elif isinstance(value, str):
        raise Undecodable(
            f"is {shown(value)}, a text, and the line has no schema that makes it a number: use"
            " schemas.enable=true"
        )
    else:
        return value
    if number.adjusted() > 20 or number != number.to_integral_value():
        raise Undecodable(f"is {shown(str(number))}, which is not a whole number of {bits} bits")
    whole = int(number)
    if not -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1):
        raise Undecodable(f"is {whole}, which is not a whole number of {bits} bits")
    return whole


def _as_date(value: Any, field: Field) -> Any:
    if type(value) is int:
        if field.name in _DATES or field.schema is None:
            return _iso_date(value)
        if field.name in _TIMESTAMPS:  # Oracle's DATE has a time of day
            seconds, rest = divmod(value, _TIMESTAMPS[field.name])
            days, second_of_day = divmod(seconds, 86_400)
            if not rest and not second_of_day:
                return _iso_date(days)
            raise Undecodable(
                f"is {value} ({field.name}), which has a time of day: declare a TIMESTAMP"
            )
        raise Undecodable(f"is {value} ({field.description}), which is not a date")
    return value[:-1] if isinstance(value, str) and _ISO_DATE.fullmatch(value) else value


def _iso_date(days: int) -> str:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise Undecodable(f"is day {days}, beyond the years 1 to 9999")
    return (_EPOCH.date() + timedelta(days=days)).isoformat()


def _as_timestamp(value: Any, field: Field, kind: str) -> Any:
    zone = "" if kind == "TIMESTAMP_NTZ" else "Z"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if field.name in _DATES and isinstance(value, int):
            return f"{_iso_date(value)}T00:00:00{zone}"
        if field.name in _TIMESTAMPS and isinstance(value, int):
            return f"{_iso_timestamp(value, _TIMESTAMPS[field.name], most_digits=6)}{zone}"
        raise Undecodable(
            f"is {value}, and the line does not name its unit: use schemas.enable=true, or declare"
            " a BIGINT and convert it in Landing.derived"
        )
    if isinstance(value, str):
        if _BEYOND_MICROSECONDS.search(value):
            raise Undecodable(
                f"is {shown(value)}, which a {kind} cannot hold exactly: declare a STRING"
            )
        if field.name == f"{_TIME}IsoTimestamp" and not zone and _ISO_TIMESTAMP.fullmatch(value):
            return value[:-1]
    return value


def _iso_timestamp(value: int, units: int, *, most_digits: int) -> str:
    seconds, fraction = divmod(value, units)
    try:
        whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError as error:
        raise Undecodable(f"is {value}, beyond the years 1 to 9999") from error
    return f"{whole}{_fraction(value, fraction, units, most_digits)}"


def _fraction(value: int, fraction: int, units: int, most_digits: int) -> str:
    digits = f"{fraction:0{len(str(units)) - 1}}".rstrip("0")
    if len(digits) > most_digits:
        raise Undecodable(
            f"is {value} nanoseconds, which a TIMESTAMP cannot hold exactly: declare a STRING or"
            " BIGINT"
        )
    return f".{digits}" if digits else ""


def _as_binary(value: Any, field: Field) -> Any:
    if isinstance(value, str) and field.type == "string" and _HEX.fullmatch(value):
        raise Undecodable(
            f"is {shown(value)}, which may be hex or Base64: use binary.handling.mode=bytes, or"
            " declare a STRING"
        )
    return value


def _as_text(value: Any, field: Field) -> Any:
    """Readable text for types that Debezium sends as numbers or bytes; other values unchanged."""
    if field.schema is None or isinstance(value, bool):
        return value
    if is_decimal(value, field):
        return f"{decimal_of(value, field, 0, None):f}"
    if type(value) is not int:
        return value
    if field.name in _DATES:
        return _iso_date(value)
    if field.name in _TIMESTAMPS:
        return _iso_timestamp(value, _TIMESTAMPS[field.name], most_digits=9)
    if field.name in _TIMES:
        return _iso_time(value, _TIMES[field.name])
    return value


def _iso_time(value: int, units: int) -> str:
    """A time as text, such as `10:30:00.5`. A TIME of MySQL may be negative, or exceed a day."""
    seconds, fraction = divmod(abs(value), units)
    sign = "-" if value < 0 else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sign}{clock}{_fraction(value, fraction, units, 9)}"
