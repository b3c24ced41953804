"""Decodes Debezium's decimals exactly in each `decimal.handling.mode`: precise, string, double."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from lakehouse.core.changes.debezium_field import Field, Undecodable, bytes_of, part_of, shown

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
# With the JSON converter's setting decimal.format=NUMERIC, `bytes` may be a number.
_NUMERIC = ("bytes", "int8", "int16", "int32", "int64", "float32", "float64", "float", "double")
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
    if isinstance(value, bool) or field.name not in ("", _DECIMAL):
        raise _no_decimal(value, field)
    if isinstance(value, int | float) and (not field.type or field.type in _NUMERIC):
        return _from_text(_spelled(value) if text is None else text)
    if isinstance(value, str) and field.name == _DECIMAL:
        return _unscaled(value, _scale_of(field))
    if isinstance(value, str) and field.schema is None:
        return _of_mode(value, field.decimals, scale)
    if isinstance(value, str) and field.type == "string":
        return _from_text(value)
    raise _no_decimal(value, field)


def _no_decimal(value: Any, field: Field) -> Undecodable:
    described = field.description or "no schema"
    return Undecodable(f"is {shown(value)}, which is not a decimal ({described})")


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
    if not isinstance(value, str) or not value or not _BASE64.fullmatch(value):
        raise Undecodable(f"is {shown(value)}, which is not Base64 of a decimal")
    if len(value) > _MOST_CHARACTERS or abs(scale) > _MOST_CHARACTERS:
        raise Undecodable("is a decimal with too many digits")
    unscaled = int.from_bytes(bytes_of(value), "big", signed=True)
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -scale))


def _from_text(text: str) -> Decimal:
    try:
        if _DECIMAL_TEXT.fullmatch(text):
            return Decimal(text)
    except InvalidOperation:
        pass
    raise Undecodable(f"is {shown(text)}, which is not a number")


def fitting(number: Decimal, precision: int, scale: int) -> str:
    """The number as text, without an exponent, and without zeros at the end of its fraction.

    Raises:
        Undecodable: DECIMAL(precision, scale) cannot hold it exactly.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    all_digits = "".join(map(str, digits)).lstrip("0")
    significant = all_digits.rstrip("0")
    exponent += len(all_digits) - len(significant)
    if not significant:
        return "0"
    whole_digit_count = len(significant) + exponent
    if exponent < -scale or whole_digit_count > precision - scale:
        raise Undecodable(
            f"is {shown(str(number))}, which DECIMAL({precision},{scale}) cannot hold exactly"
        )
    return f"{Decimal((sign, tuple(map(int, significant)), exponent)):f}"
