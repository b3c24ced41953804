"""Finds JSON values that Spark would load as a different value, or parse for hours.

Spark parses the records into columns. It refuses most values of a wrong type, but silently loads
some of them as other values. A record with one of these values is refused before Spark parses it:

- `DECIMAL`: Spark drops commas, since English groups digits with commas. A number with a huge
  exponent takes hours to parse.
- `TIMESTAMP`: a time of day becomes a time of today, and a text of digits alone becomes a year. A
  number of milliseconds becomes a date in the far future. The letters of a zone stand for several
  zones (`IST`), of which Java chooses one.
- `DATE`: any text before or after the day is dropped.
- `TINYINT`: 128 to 255 become negative.
- `DOUBLE` and `FLOAT`: a number that is too large becomes infinite.

Values of a nested type are checked only for huge exponents, if the type contains a DECIMAL, and for
the letters of a zone, if it contains a TIMESTAMP.

Source: Spark's JacksonParser and SparkDateTimeUtils; Jackson's getByteValue; Java's
BigDecimal.setScale
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any, cast

from lakehouse.core.declaration.change_sources import Debezium
from lakehouse.core.declaration.column_names import field_types, type_word
from lakehouse.core.declaration.landing import Landing

# The first words of nested types.
NESTED = ("STRUCT", "ARRAY", "MAP")
# Seconds of the years 1 to 9999.
FIRST_SECOND = -62_135_596_800
LAST_SECOND = 253_402_300_799
_LARGEST_DOUBLE = 1.7976931348623157e308
LARGEST_FLOAT = 3.4028234663852886e38
# A number whose exponent has four digits or more.
_HUGE = re.compile(r"\s*[-+]?[\d.]+[eE][-+]?\d{4,}\s*")
# Matches a line that may have a number with a huge exponent, perhaps written with an escape.
_MAY_BE_HUGE = re.compile(r"[eE][-+]?\d{4,}|\\u")
# Digits in groups, as in English. `1,234` without a point does not match: it may be a fraction.
_GROUPED = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+\.\d+\s*")
# The texts that Spark loads as a different timestamp: times of day, and digits alone.
_NO_TIMESTAMP = re.compile(r"\s*(?:T\d|\d{1,2}:|[-+]?\d+\s*\Z)")
# The zones that a time may have: an offset, UTC, or the name of a region.
ZONE = r"(?:Z|(?:UTC|GMT)?(?:[-+][0-9:]+)?|[A-Za-z_]+/[A-Za-z0-9_+/-]+)"
_OTHER_ZONE = re.compile(
    rf"\s*[-+]?\d{{4,7}}-\d{{1,2}}-\d{{1,2}}[T ][\d:.\s]*(?!{ZONE}\s*\Z)[^\d:.\s]"
)
# A date, perhaps followed by midnight in UTC.
_DAY = re.compile(
    r"\s*[-+]?\d{4,7}-\d{1,2}-\d{1,2}"
    r"(?:[T ]\s*00?:00(?::00(?:\.0+)?)?\s*(?:Z|UTC|[-+]00:?00)?)?\s*"
)
_DECIMAL_WORDS = re.compile(r"\b(?:dec|decimal|numeric)\b", re.IGNORECASE)
_TIME_WORDS = re.compile(r"\btimestamp", re.IGNORECASE)


_ChecksByName = Mapping[str, Callable[[Any], bool]]


class _Digits(str):
    """A JSON number with a point or an exponent, as it is written."""

    __slots__ = ()


_exact = json.JSONDecoder(parse_float=_Digits).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """For each checked column, a function that returns whether Spark loads a value unchanged.

    `decimals` are the checks of columns with a DECIMAL in their type, and `others` of the rest.
    """

    others: _ChecksByName
    decimals: _ChecksByName


def has_misread_value(document: Mapping[str, Any], text: str, landing: Landing) -> bool:
    """Whether Spark would load a value of an object as a different value, or parse it for hours.

    `document` is the decoded `text`. For Debezium it is an event, whose rows are checked.
    """
    checks = _checks(landing.schema)
    if checks.others and _is_misread(checks.others, document, landing):
        return True
    if not checks.decimals:
        return False
    # Python decodes a fraction as a float, which hides a huge exponent, so decode the text again.
    as_written = _exact(text) if _MAY_BE_HUGE.search(text) else document
    return _is_misread(checks.decimals, as_written, landing)


def has_decimals(type_: str) -> bool:
    """Whether a type contains a DECIMAL."""
    return _DECIMAL_WORDS.search(type_) is not None


def has_times(type_: str) -> bool:
    """Whether a type contains a TIMESTAMP."""
    return _TIME_WORDS.search(type_) is not None


def _is_misread(checks: _ChecksByName, document: Mapping[str, Any], landing: Landing) -> bool:
    for row in _rows_of(document, landing):
        for name, is_exact in checks.items():
            value = row.get(name)
            if value is not None and not is_exact(value):
                return True
    return False


def _rows_of(document: Mapping[str, Any], landing: Landing) -> Sequence[Mapping[str, Any]]:
    """The rows of an event, before and after the change; any other object is the row itself."""
    changes = landing.changes
    if not isinstance(changes, Debezium) or changes.unwrapped:
        return (document,)
    images = (document.get("before"), document.get("after"))
    return [cast("Mapping[str, Any]", row) for row in images if isinstance(row, dict)]


@cache
def _checks(schema: str | None) -> _Checks:
    others = dict[str, Callable[[Any], bool]]()
    decimals = dict[str, Callable[[Any], bool]]()
    for name, type_ in field_types(schema):
        kind = type_word(type_)
        if kind in ("DECIMAL", "DEC", "NUMERIC"):
            decimals[name] = _is_exact_decimal
        elif kind in NESTED and has_decimals(type_):
            decimals[name] = _has_no_huge_number
        if kind in NESTED and has_times(type_):
            others[name] = _has_no_other_zone
        elif kind in _CHECK_OF:
            others[name] = _CHECK_OF[kind]
    return _Checks(others=others, decimals=decimals)


def _is_exact_timestamp(value: Any) -> bool:
    if isinstance(value, str):
        return not (_NO_TIMESTAMP.match(value) or _OTHER_ZONE.match(value))
    return not isinstance(value, int) or FIRST_SECOND <= value <= LAST_SECOND


def _is_exact_date(value: Any) -> bool:
    return not isinstance(value, str) or _DAY.fullmatch(value) is not None


def _is_exact_decimal(value: Any) -> bool:
    if isinstance(value, str) and "," in value:
        return _GROUPED.fullmatch(value) is not None
    return _has_no_huge_number(value)


def _has_no_huge_number(value: Any) -> bool:
    match value:
        case str():
            return _HUGE.fullmatch(value) is None
        case float():
            return isfinite(value)
        case list():
            return all(map(_has_no_huge_number, cast("list[Any]", value)))
        case dict():
            return all(map(_has_no_huge_number, cast("dict[str, Any]", value).values()))
        case _:
            return True


def _has_no_other_zone(value: Any) -> bool:
    match value:
        case str():
            return _OTHER_ZONE.match(value) is None
        case list():
            return all(map(_has_no_other_zone, cast("list[Any]", value)))
        case dict():
            return all(map(_has_no_other_zone, cast("dict[str, Any]", value).values()))
        case _:
            return True


def _is_exact_byte(value: Any) -> bool:
    return not isinstance(value, int) or -128 <= value <= 127


def _is_exact_double(value: Any) -> bool:
    return not isinstance(value, int | float) or abs(value) <= _LARGEST_DOUBLE


def _is_exact_float(value: Any) -> bool:
    return not isinstance(value, int | float) or abs(value) <= LARGEST_FLOAT


_CHECK_OF: dict[str, Callable[[Any], bool]] = {
    "TIMESTAMP": _is_exact_timestamp,
    "TIMESTAMP_LTZ": _is_exact_timestamp,
    "TIMESTAMP_NTZ": _is_exact_timestamp,
    "DATE": _is_exact_date,
    "TINYINT": _is_exact_byte,
    "BYTE": _is_exact_byte,
    "DOUBLE": _is_exact_double,
    "FLOAT": _is_exact_float,
    "REAL": _is_exact_float,
}
