"""Decodes the events of Debezium, and the values in them, to the declared column types.

Kafka Connect's `schema` and `payload` are unpacked first. The schema in a line names the type of
each field. Without a schema, a value is decoded only if the declared type makes it unambiguous: a
date is a number of days in every mode of Debezium, but a timestamp may count milli-, micro- or
nanoseconds. `declare/landing.py` says what each operation of an event means, and
`cdc/run.py` applies it.

**Safety properties** (tests in `cdc/plan/test_decode_debezium.py`)
- A value is decoded exactly, or is left as it is for Spark to read, or is refused (`Undecodable`).
  Only a decimal in a column of type FLOAT, REAL or DOUBLE is rounded.
- If a declared field cannot be decoded, the event has a problem, which names the field unless an
  earlier problem was found.
- A placeholder for a value that Debezium did not send is not loaded: the field is null. Unless the
  event is a deletion, its member `UNSENT` lists such fields of the row after the change.
- A placeholder inside a field's value is a problem, except in a deletion. Only in an array of
  booleans, it is not recognized.

Source: Debezium's reference, "Data type mappings" of the connectors for PostgreSQL and MySQL;
`io.debezium.time.*`, `io.debezium.data.Bits`, `VariableScaleDecimal`; Kafka Connect,
`JsonConverter` (bytes are Base64).
"""

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from math import isinf
from typing import Any, NamedTuple, cast
from uuid import UUID

from lakehouse.base.frozen import frozen
from lakehouse.declare.landing import Debezium, Landing
from lakehouse.delta.columns import type_word
from lakehouse.land.plan.records import (
    earlier_names,
    is_of_the_event,
    members_of,
    object_of,
    others_in_object,
    with_present_names,
)


class Undecodable(Exception):
    """A value is malformed or ambiguous, or the declared type cannot hold it.

    The text continues a sentence that begins with the field's name. It gives the reason and, for
    some reasons, what to do.
    """


@frozen
class Field:
    """A field as declared, and its part of the line's schema.

    `schema` is `None` if the line has no schema. `decimals` is the declared `Debezium.decimals`.
    """

    declared: str
    schema: Mapping[str, Any] | None
    decimals: str | None

    @property
    def name(self) -> str:
        """The semantic type, for example `io.debezium.time.Date`; may be empty."""
        return str((self.schema or {}).get("name") or "")

    @property
    def type(self) -> str:
        """The literal type, for example `int32`; empty without a schema."""
        return str((self.schema or {}).get("type") or "")

    @property
    def description(self) -> str:
        """The type in the schema, for messages."""
        return self.name or self.type


def part_of(schema: Mapping[str, Any] | None, part: str) -> Mapping[str, Any] | None:
    """The schema under the key `part`, for example the `items` of an array, or `None`."""
    value = (schema or {}).get(part)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def bytes_of(value: str) -> bytes:
    """The bytes of a Base64 text.

    Raises:
        Undecodable: the text is not Base64.
    """
    try:
        return b64decode(value, validate=True)
    except ValueError as error:  # binascii.Error, or a character that is not ASCII
        raise Undecodable(f"is {shown(value)}, which is not Base64") from error


def shown(value: Any) -> str:
    """The value as a message shows it: truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_DECIMAL_TEXT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
# A decimal with at most this many digits is the same after a conversion to a float and back.
# Source: C's DBL_DIG
_EXACT_DIGITS = 15
# An unscaled value with more characters in Base64, or a larger scale, is refused: its conversion
# would be slow.
_MOST_CHARACTERS = 40_000


def is_decimal(value: Any, field: Field) -> bool:
    """Whether a value is a decimal by its schema or, without one, by its members."""
    if field.schema is not None:
        return field.name in (_DECIMAL, _VARIABLE_SCALE)
    return isinstance(value, dict) and value.keys() == {"scale", "value"}


def decimal_of(value: Any, field: Field, scale: int, text: str | None) -> Decimal:
    """A value as a number.

    `scale` is the declared scale, for Base64 without a schema. `text` is a float as the line spells
    it, with all digits; `None` if the value is no float, or its spelling is unknown.

    Raises:
        Undecodable: the value is not a decimal, or is ambiguous.
    """
    if isinstance(value, dict) and is_decimal(value, field):
        members = cast("dict[str, Any]", value)
        if type(members.get("scale")) is int:
            return _unscaled(members.get("value"), members["scale"])
    is_plain = field.name in ("", _DECIMAL) and not isinstance(value, bool)
    # With the JSON converter's setting decimal.format=NUMERIC, a decimal is a number.
    if is_plain and isinstance(value, int | float):
        return _from_text(_spelled(value) if text is None else text)
    if isinstance(value, str) and field.name == _DECIMAL:
        return _unscaled(value, _scale_of(field))
    if isinstance(value, str) and field.schema is None:
        return _of_mode(value, field.decimals, scale)
    if is_plain and isinstance(value, str) and field.type == "string":
        return _from_text(value)
    described = field.description or "no schema"
    raise Undecodable(f"is {shown(value)}, which is not a decimal ({described})")


def _scale_of(field: Field) -> int:
    """The scale in the field's schema. Source: Kafka Connect, Decimal.SCALE_FIELD"""
    try:
        return int((part_of(field.schema, "parameters") or {})["scale"])
    except (KeyError, ValueError) as error:
        raise Undecodable("has no scale in its schema") from error


def _spelled(value: float) -> str:
    text = repr(value)
    if isinstance(value, float) and sum(map(str.isdigit, text)) > _EXACT_DIGITS:
        raise Undecodable(
            f"is about {text}, and more than {_EXACT_DIGITS} digits of a number are only kept in a"
            " column of type DECIMAL"
        )
    return text


def _of_mode(value: str, decimals: str | None, scale: int) -> Decimal:
    """A text without a schema as a decimal, in the declared mode (`decimals`).

    Without a declared mode, a text that cannot be Base64 is read as a plain number.
    """
    if decimals == "precise":
        return _unscaled(value, scale)
    if decimals == "string" or not _BASE64.fullmatch(value):
        return _from_text(value)
    raise Undecodable(
        f"is {shown(value)}, which may be Base64, and no schema names its scale: use"
        ' schemas.enable=true, or Debezium(decimals="precise") if each DECIMAL is declared with the'
        ' scale of its source, or decimals="string"'
    )


def _unscaled(value: Any, scale: int) -> Decimal:
    """A number from its unscaled value: big-endian bytes in two's complement, in Base64."""
    if not isinstance(value, str) or not value:
        raise Undecodable(f"is {shown(value)}, which is not Base64")
    if len(value) > _MOST_CHARACTERS or abs(scale) > _MOST_CHARACTERS:
        raise Undecodable("is a decimal with too many digits")
    unscaled = int.from_bytes(bytes_of(value), "big", signed=True)
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def _from_text(text: str) -> Decimal:
    if not _DECIMAL_TEXT.fullmatch(text):
        raise Undecodable(f"is {shown(text)}, which is not a number")
    return Decimal(text)


def fitting(number: Decimal, precision: int, scale: int) -> str:
    """The number as text, without an exponent, and without zeros at the end of its fraction.

    Raises:
        Undecodable: DECIMAL(precision, scale) cannot hold it exactly.
    """
    if not number:
        return "0"
    whole, _, fraction = f"{number:f}".partition(".")
    fraction = fraction.rstrip("0")
    if len(fraction) > scale or len(whole.lstrip("-0")) > precision - scale:
        raise Undecodable(
            f"is {shown(str(number))}, which DECIMAL({precision},{scale}) cannot hold exactly"
        )
    return f"{whole}.{fraction}" if fraction else whole


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
_BEYOND_MICROSECONDS = re.compile(r"\.\d{6}\d*[1-9]")
_TYPE = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_ARRAY = re.compile(r"\s*ARRAY\s*<(.*)>", re.IGNORECASE | re.DOTALL)
# Types of which Spark would read some encoded values as other values.
_AMBIGUOUS = re.compile(r"\b(?:dec|decimal|numeric|timestamp\w*)\b", re.IGNORECASE)
_WHOLE_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
# Naive, because Debezium counts timestamps without a time zone as if they were in UTC.
_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = (date.min - _EPOCH.date()).days
_LAST_DAY = (date.max - _EPOCH.date()).days


class _Shape(NamedTuple):
    """A parsed declared type. `element` is the type of an ARRAY's elements."""

    kind: str
    precision: int = 10
    scale: int = 0
    element: str = ""


@cache
def _shape_of(declared: str) -> _Shape:
    if array := _ARRAY.match(declared):
        return _Shape("ARRAY", element=array[1])
    match = _TYPE.match(declared)
    if match is None:
        return _Shape("")
    return _Shape(type_word(match[1]), int(match[2] or 10), int(match[3] or 0))


def decoded(value: Any, field: Field, spelled: Callable[[], str] | None = None) -> Any:
    """The value as JSON that Spark reads as the declared type; the same object if unchanged.

    `spelled` returns the text of the value in the line, so that a number keeps all its digits.

    Raises:
        Undecodable: the value is ambiguous, or does not fit the declared type.
    """
    if value is None:
        return None
    shape = _shape_of(field.declared)
    match shape.kind:
        case "STRING" | "VARCHAR" | "CHAR":
            # Spark would round the numbers in other values than a text.
            is_other = shape.kind == "STRING" and isinstance(value, float | dict | list)
            text = _as_text(value, field)
            return spelled() if is_other and text is value and spelled is not None else text
        case "DECIMAL":
            text = spelled() if spelled is not None and isinstance(value, float) else None
            number = decimal_of(value, field, shape.scale, text)
            fitted = fitting(number, shape.precision, shape.scale)
            # A number in JSON that fits stays a number: Spark reads its text in the line.
            return value if isinstance(value, int | float) else fitted
        case "DATE":
            return _as_date(value, field)
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return _as_timestamp(value, field, shape.kind)
        case "FLOAT" | "DOUBLE":
            return _as_double(value, field) if is_decimal(value, field) else value
        case "BOOLEAN":
            # A BOOLEAN of MySQL is a TINYINT(1), which Debezium sends as a number.
            return bool(value) if type(value) is int and value in (0, 1) else value
        case "BINARY" if (
            isinstance(value, str) and field.type == "string" and _HEX.fullmatch(value)
        ):
            raise Undecodable(
                f"is {shown(value)}, which may be hex or Base64: use binary.handling.mode=bytes, or"
                " declare a STRING"
            )
        case "ARRAY" | "MAP" | "STRUCT":
            return _as_nested(value, field, shape)
        case _:
            bits = _WHOLE_BITS.get(shape.kind)
            return value if bits is None else _as_whole_number(value, field, bits)


def _as_nested(value: Any, field: Field, shape: _Shape) -> Any:
    if shape.kind != "ARRAY" and _AMBIGUOUS.search(field.declared):
        raise Undecodable(
            f"has decimals or timestamps in a {shape.kind}, which are not decoded: declare them as"
            " STRING or BIGINT"
        )
    if shape.kind != "ARRAY" or not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    item_field = replace(field, declared=shape.element, schema=part_of(field.schema, "items"))
    decoded_items = [decoded(each, item_field) for each in items]
    is_same = all(one is other for one, other in zip(items, decoded_items, strict=True))
    return items if is_same else decoded_items


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


def _as_double(value: Any, field: Field) -> float:
    rounded = float(decimal_of(value, field, 0, None))
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
    return value


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
    if isinstance(value, str) and _BEYOND_MICROSECONDS.search(value):
        raise Undecodable(
            f"is {shown(value)}, which a {kind} cannot hold exactly: declare a STRING"
        )
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
    if field.name not in _TIMES:
        return value
    # A time, such as `10:30:00.5`. A TIME of MySQL may be negative, or exceed a day.
    seconds, fraction = divmod(abs(value), _TIMES[field.name])
    sign = "-" if value < 0 else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sign}{clock}{_fraction(value, fraction, _TIMES[field.name], 9)}"


# The member that is added to an event, and lists the fields whose values were not sent. A column of
# the parsed lines has the same name.
UNSENT = "_lakehouse_unsent"
TOMBSTONE = "null"
# Postgres does not send a large value that did not change. Debezium sends a placeholder instead:
# one of `_TEXTS` (this text, its bytes in Base64 or hex, or a UUID made of its bytes), an array
# with one of `_TEXTS`, or an array of its bytes as numbers. An hstore with this text as key and
# value is refused. In an array of booleans, the placeholder cannot be distinguished from values.
# Source: Debezium's reference, `unavailable.value.placeholder`; UnchangedToastedPlaceholder
_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_UUID = UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3)
_TEXTS = (_PLACEHOLDER, b64encode(_BYTES).decode(), _BYTES.hex(), str(_UUID))
# The start of a JSON array of numbers that holds the placeholder's bytes: `_`, `_`, `d`.
_ARRAY_START = re.compile(r"\[\s*95(?:\.0+)?,\s*95(?:\.0+)?,\s*100\b")
_NOT_SENT = f"was not sent ({_PLACEHOLDER})"


@frozen
class Event:
    """An event as JSON text, and its problem, if there is one. The text of a tombstone is `null`.

    `rows` are the rows before and after the change. `undeclared` has the undeclared fields of the
    row after the change as a JSON object.
    """

    text: str
    rows: Sequence[Mapping[str, Any]] = ()
    undeclared: str | None = None
    problem: str | None = None


def canonical_event(
    line: object, text: str, landing: Landing, fields: Mapping[str, str]
) -> Event | None:
    """The event in a line, with its declared fields decoded to their types.

    `None` if the line is neither an object nor null. A null line is a tombstone. An unwrapped row
    becomes an event (`_wrapped`).

    `line` is the parsed `text`. `fields` maps the declared fields to their types.
    """
    if line is None:
        return Event(text=TOMBSTONE)
    if not isinstance(line, dict):
        return None
    event = cast("dict[str, Any]", line)
    assert isinstance(landing.changes, Debezium)
    is_unwrapped = landing.changes.unwrapped
    # In an unwrapped row, `payload` may be a column. Then the line is taken as the row itself.
    has_payload_column = is_unwrapped and "payload" in fields
    # Debezium sends a tombstone after a deletion. Source: Kafka Connect, JsonConverter
    is_envelope = "payload" in event and event.keys() <= {"schema", "payload"}
    is_row = has_payload_column and "schema" not in event  # null is the value of its column
    if is_envelope and not is_row and event["payload"] is None:
        return Event(text=TOMBSTONE)
    schema: Mapping[str, Any] | None = None
    if isinstance(event.get("payload"), dict) and not has_payload_column:
        schema = part_of(event, "schema")
        event = event["payload"]
        text = members_of(text)["payload"]
    schemas: Mapping[str, Mapping[str, Any] | None] = fields_of(schema)
    if is_unwrapped:
        event, text = _wrapped(event, text)
        schemas = {"before": schema, "after": schema}
    return _Decoding(landing, landing.changes, fields, event).decoded_event(text, schemas)


def _wrapped(row: dict[str, Any], text: str) -> tuple[dict[str, Any], str]:
    """An unwrapped row as an event, and its text. Fields of `source` have names in `__source_…`.

    A row with a true `__deleted` is a deletion. If it has no `__op`, a false `__deleted` makes it a
    row of a snapshot, since it may be one.
    Source: Debezium's reference, "New Record State Extraction", `add.fields`
    """
    operation = row.get("__op")
    deleted = str(row.get("__deleted")).lower()
    if deleted == "true":
        operation = "d"
    elif operation is None and deleted == "false":
        operation = "r"
    side = "before" if operation == "d" else "after"
    source: dict[str, Any] = {}
    for prefix in ("__", "__source_"):
        for name, value in row.items():
            if name.startswith(prefix) and value is not None:
                source[name.removeprefix(prefix)] = value
    event = {"op": operation, side: row, "source": source}
    texts = {"op": json.dumps(operation), side: text, "source": json.dumps(source)}
    return event, object_of(texts)


class _Decoding:
    """The decoding of one event, taken out of Kafka Connect's envelope."""

    def __init__(
        self,
        landing: Landing,
        changes: Debezium,
        fields: Mapping[str, str],
        event: dict[str, Any],
    ) -> None:
        self._landing = landing
        self._changes = changes
        self._fields = fields
        self._event = event
        self._is_deletion = event.get("op") == "d"
        self._problem: str | None = None
        self._rows: list[Mapping[str, Any]] = []
        self._unsent: list[str] = []

    def decoded_event(self, text: str, schemas: Mapping[str, Mapping[str, Any] | None]) -> Event:
        """The event, with the first problem in its fields. `schemas` has one for each side."""
        members = members_of(text)
        texts: dict[str, str] = {}
        for side in ("before", "after"):
            row = self._event.get(side)
            if isinstance(row, dict):
                texts[side] = self._decoded_row(
                    cast("dict[str, Any]", row),
                    members[side],
                    fields_of(schemas.get(side)),
                    is_state=side == "after",
                )
        undeclared: str | None = None
        if "after" in texts:
            row = self._rows[-1]
            own = {name: row[name] for name in row if not is_of_the_event(name, self._landing)}
            undeclared = others_in_object(own, texts["after"], self._fields)
        # `_decoded_row` returns the same text object if nothing changes.
        if any(row_text is not members[side] for side, row_text in texts.items()):
            text = object_of({**members, **texts})
        if self._unsent:
            if self._event.get("op") != "u":
                self._refuse(
                    f"field {self._unsent[0]} {_NOT_SENT}, and the event is not marked as an"
                    " update (op u), which would keep the table's value: use REPLICA IDENTITY FULL"
                    " at the source; if rows are unwrapped, use add.fields=op, which marks updates"
                )
            text = object_of({**members_of(text), UNSENT: json.dumps(self._unsent)})
        has_placeholder = any(each in text for each in _TEXTS) or _ARRAY_START.search(text)
        if has_placeholder and not self._is_deletion:
            self._refuse(
                f"a value inside a field {_NOT_SENT}: use REPLICA IDENTITY FULL at the source"
            )
        return Event(text=text, rows=self._rows, undeclared=undeclared, problem=self._problem)

    def _decoded_row(
        self,
        row: dict[str, Any],
        text: str,
        schema: Mapping[str, Mapping[str, Any]],
        *,
        is_state: bool,
    ) -> str:
        """The text of the decoded row, whose value is added to `_rows`.

        `is_state` is true for the row after the change. Unsent values are recorded for this row
        only, and not for a deletion.
        """
        names = earlier_names(self._landing)
        row, text, earlier, problem = with_present_names(row, text, names)
        if problem is not None:
            self._refuse(problem)
        replaced: dict[str, Any] = {}
        # Splitting the text takes time, and few rows need it: those with a field that is decoded
        # from its spelling, or replaced.
        members = cache(partial(members_of, text))

        def spelled(name: str) -> str:
            return members()[name]

        for name, value in row.items():
            if _is_unsent(value):
                replaced[name] = None
                if is_state and not self._is_deletion:
                    self._unsent.append(name)
            elif value is not None and name in self._fields:
                field = Field(
                    declared=self._fields[name],
                    schema=schema.get(earlier.get(name, name)),
                    decimals=self._changes.decimals,
                )
                try:
                    new_value = decoded(value, field, partial(spelled, name))
                except Undecodable as error:
                    self._refuse(f"field {name} {error}")
                    continue
                if new_value is not value:
                    replaced[name] = new_value
        if replaced:
            row = {**row, **replaced}
            encoded = {name: json.dumps(replaced[name], ensure_ascii=False) for name in replaced}
            text = object_of({**members(), **encoded})
        self._rows.append(row)
        return text

    def _refuse(self, problem: str) -> None:
        """Records a problem, unless the event already has one."""
        self._problem = self._problem or problem


def _is_unsent(value: object) -> bool:
    match value:
        case str():
            return value in _TEXTS
        case list():
            items = cast("list[Any]", value)
            if len(items) == 1:
                return isinstance(items[0], str) and items[0] in _TEXTS
            return len(items) == len(_BYTES) and items == [*_BYTES]
        case _:
            return False
