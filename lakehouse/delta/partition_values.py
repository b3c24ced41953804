"""Partition values as Delta reads them: which values are equal, and which values a rewrite changes.

A log stores every partition value as text. Readers and WHERE clauses cast the text to the column's
type, and treat text that cannot be cast as null. OPTIMIZE casts in the same way and groups files by
the results. There are two exceptions, which plans ignore: it keeps files with 0.0 and -0.0 apart
(Literal.hashCode), and groups a file with a text that cannot be cast by the texts.

Sources: delta-io/delta v4.4.0, `PartitionUtils.scala` (parsePartitionValue) and `actions.scala`
(normalizedPartitionValues); PROTOCOL.md, "Partition Value Serialization"; apache/spark v4.2.0,
`Cast.scala`, `UTF8String.java` (toLong), `SparkDateTimeUtils.scala` (stringToDate,
stringToTimestamp), `StringUtils.scala` (isTrueString, isFalseString).
"""

import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from math import copysign, inf, isnan, nan

from lakehouse.delta.snapshot import PartitionValues

TypedPartition = tuple[object, ...]

_TEXT_TYPES = frozenset({"string", "binary"})

# Spark writes an empty text as null. The second text is the folder name that stands for null.
# Source: apache/spark v4.2.0, `ExternalCatalogUtils.scala`, getPartitionPathString;
# delta-io/delta#6150.
_WRITTEN_AS_NULL = frozenset({"", "__HIVE_DEFAULT_PARTITION__"})

_SPACE = " \t\n\r\x0b\x0c\x00"
_INTEGER = re.compile(r"([+-]?\d+)(?:\.\d*)?")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_FLOATING = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)[df]?|[+-]?inf(?:inity)?|nan", re.IGNORECASE
)
_DATE = re.compile(r"(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?")
_TIMESTAMP = re.compile(
    r"(?P<year>\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?"
    r"\s*(?:Z|UTC|(?P<sign>[+-])(?P<zone_hours>\d{1,2}):?(?P<zone_minutes>\d{2}))?)?)?)?"
)
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def typed_partition(partition: PartitionValues, types: Mapping[str, str]) -> TypedPartition:
    """The partition as typed values, which are equal if no WHERE clause can distinguish them.

    `types` are the types of the table's columns by name.
    """
    return tuple(_typed(value, types.get(name, "string")) for name, value in partition)


def is_changed_by_rewrite(partition: PartitionValues, types: Mapping[str, str]) -> bool:
    """Whether OPTIMIZE would replace the value of a string or binary column with null."""
    return any(
        value in _WRITTEN_AS_NULL and types.get(name, "string") in _TEXT_TYPES
        for name, value in partition
    )


def is_plain(value: str | None, type_: str) -> bool:
    """Whether all engines read the value in the same way, and write it with the same spelling."""
    if value is None:
        return True
    if type_ == "string":
        return value not in _WRITTEN_AS_NULL
    # For these types, Python spells a value as every writer does.
    is_spelled_alike = type_ in (*_INTEGER_BITS, "boolean", "date")
    return is_spelled_alike and str(_typed(value, type_)).lower() == value


def is_read_as_null(value: str | None, type_: str) -> bool:
    """Whether readers and WHERE clauses treat the value as null, in a column of this type."""
    return _typed(value, type_) is None


def _typed(text: str | None, type_: str) -> object:
    """The text, cast to the type; `None` is null."""
    if text is None:
        return None
    cast = _CASTS.get(type_.partition("(")[0])
    if cast is None:
        return text
    try:
        return cast(text.strip(_SPACE), type_)
    except (ValueError, KeyError):
        return None
    except (OverflowError, ArithmeticError):
        return text  # valid in Spark, but Python cannot represent it


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match


def _integer(text: str, type_: str) -> int:
    value = int(_matched(_INTEGER, text)[1])
    most = 1 << (_INTEGER_BITS[type_] - 1)
    if not -most <= value < most:
        raise ValueError(text)
    return value


def _decimal(text: str, type_: str) -> Decimal:
    _matched(_DECIMAL, text)
    precision, scale = (int(digits) for digits in re.findall(r"\d+", type_) or ("10", "0"))
    value = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if value and value.adjusted() >= precision - scale:  # too many digits before the point
        raise ValueError(text)
    return value


def _floating(text: str, type_: str) -> float:
    """The number. NaN is always the same object, so that tuples with NaN are equal, as in Spark."""
    match = _matched(_FLOATING, text)
    value = float(match["number"] or text)
    if type_ == "float":  # rounded to 32 bits
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = copysign(inf, value)
    return nan if isnan(value) else value


def _date(text: str, _: str) -> date:
    year, month, day = (int(part) if part else 1 for part in _matched(_DATE, text).groups())
    if year > 9999:
        raise OverflowError(text)
    return date(year, month, day)


def _timestamp(text: str, type_: str) -> datetime:
    """The time in UTC. Text without a zone uses the session's zone, which is always UTC here.

    The zone of a `timestamp_ntz` is ignored.
    """
    match = _matched(_TIMESTAMP, text)
    year = int(match["year"])
    if year > 9999:
        raise OverflowError(text)
    time = datetime(  # naive: compared values always have the same zone
        year,
        int(match["month"] or 1),
        int(match["day"] or 1),
        int(match["hour"] or 0),
        int(match["minute"] or 0),
        int(match["second"] or 0),
    )
    micros = (match["fraction"] or "")[:6].ljust(6, "0")
    time += timedelta(microseconds=int(micros))
    offset = timedelta(hours=int(match["zone_hours"] or 0), minutes=int(match["zone_minutes"] or 0))
    if type_ == "timestamp_ntz" or not match["sign"]:
        return time
    return time + offset if match["sign"] == "-" else time - offset


_CASTS: Mapping[str, Callable[[str, str], object]] = {
    **dict.fromkeys(_INTEGER_BITS, _integer),
    "decimal": _decimal,
    "float": _floating,
    "double": _floating,
    "boolean": lambda text, _: _BOOLEANS[text.lower()],
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}
