"""Values that Spark reads as others without a word: which columns of a landing may have them, and which values are some.

- DECIMAL: a comma is left out, as it groups digits in English. A number with a huge exponent takes hours.
- TIMESTAMP: a time of day becomes a time of today, digits alone a year, and whole seconds overflow.
- DATE: what follows the day, or stands for it, is left out.
- DATE and TIMESTAMP: years below 1 and above 9999 are written, and many readers of the table have no such years.
- TINYINT: 128 to 255 are below 0 in JSON.
- DOUBLE and FLOAT: a number that is too large has no end. In CSV `1.5D` and `0x1p3` are numbers of Java.

The members of nested types are not looked at, but for huge exponents.

Source: Spark's JacksonParser, UnivocityParser and SparkDateTimeUtils; Jackson's getByteValue; Java's BigDecimal.setScale
and Double.parseDouble.
"""

import re
from collections.abc import Callable, Mapping
from functools import reduce
from math import inf
from operator import or_
from typing import TYPE_CHECKING

from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

type_of_column_of = Callable[[str], "Column"]
UNFIT = "a field does not fit the schema"
_KINDS = {
    "TIMESTAMP": "TIMESTAMP",
    "DATE": "DATE",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
}
_KINDS |= dict.fromkeys(("DOUBLE", "FLOAT", "REAL"), "DOUBLE")
_LAST_SECOND, _FIRST_SECOND = 253_402_300_799, -62_135_596_800  # the years 9999 and 1
# What a DATE or TIMESTAMP may hold. Spark writes any year that it reads; Python and other readers have no others than these.
_YEARS = {
    "DATE": ("0001-01-01", "9999-12-31"),
    "TIMESTAMP": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
}
# As Spark writes the years before 1 and after 9999.
_OTHER_YEARS = r"^[-+]|^0000-"
_HUGE = r"[-+]?[\d.]+[eE][-+]?\d{4,}"
# A type with a DECIMAL among its members.
_NESTED_DECIMAL = re.compile(
    r"(?:struct|array|map)\s*<.*\b(?:dec|decimal|numeric)\b", re.IGNORECASE | re.DOTALL
)
# The beginning of a value that may be misread, by kind.
_JSON_VALUES = {
    "TIMESTAMP": r'"\s*+(?:T\d|\d{1,2}:|[-+]?\d+\s*+")|-?\d{12,}',
    "DATE": r'"(?!\s*+\d{4,7}-\d{1,2}-\d{1,2}\s*+")',
    "DECIMAL": rf'"\s*+(?:[-+\d.]*,|{_HUGE})',
    "TINYINT": r'"?\s*+[-+]?\d{3}',
}
_DIGITS = r"^\s*[-+]?\d+\s*$"
# A day, and at most its first moment in no other zone.
_DAY = r"^\s*[-+]?\d{4,7}-\d{1,2}-\d{1,2}(?:[T ]\s*00?:00(?::00(?:\.0+)?)?\s*(?:Z|UTC|[-+]00:?00)?)?\s*$"
_JAVA_NUMBER = r"[\d.][dDfF]\s*$|^\s*[-+]?0[xX]"
# Digits in groups, as English has them; without a point `1,234` may be a fraction as others write it.
_GROUPED = r"^\s*[-+]?\d{1,3}(,\d{3})+\.\d+\s*$"


def misread_types(landing: Landing) -> dict[str, str]:
    """The columns whose values may be misread, each with its kind: TIMESTAMP, DATE, DECIMAL; TINYINT but in CSV; DOUBLE in CSV."""
    safe = ("", "TINYINT" if landing.records_are_csv else "DOUBLE")
    return {name: kind for name, kind in _kinds(landing) if kind not in safe}


def is_suspect(
    raw: "Column", is_object: "Column", types: Mapping[str, str], landing: Landing
) -> "Column":
    """Whether a record may hold a value that is misread, told by its text alone, so that few records are parsed twice."""
    pattern = (
        _csv_pattern({*types.values()}, landing)
        if landing.records_are_csv
        else _json_pattern(types)
    )
    found = raw.rlike(pattern)
    # Names and values may be told by escapes; and what is no strict JSON may have other quotes.
    return found if landing.records_are_csv else found | raw.contains("\\") | ~is_object


def why_misread(
    why: "Column",
    landing: Landing,
    raw: "Column",
    text: type_of_column_of,
    value: type_of_column_of,
) -> "Column":
    """The reasons for which a misread value makes a line no row, after those of `why`.

    `text` gives the text of a column, null where nothing is suspect, and `value` what Spark read of `raw`.
    """
    for name, kind in misread_types(landing).items():
        why = why.when(_is_misread(text(name), value(name), kind), UNFIT)
        if kind in _YEARS:
            first, last = (F.lit(end).cast(kind.lower()) for end in _YEARS[kind])
            why = why.when(~value(name).between(first, last), UNFIT)
    for name in (
        []
        if landing.records_are_csv
        else [name for name, kind in _kinds(landing) if kind == "DOUBLE"]
    ):
        why = why.when(is_too_large(raw, name, value(name)), UNFIT)
    return why


def why_derived_unfit(why: "Column", landing: Landing) -> "Column":
    """The reasons for which a derived date or time makes a line no row, after those of `why`."""
    for name in landing.derived:
        value = F.col(quote(name))
        is_time = F.typeof(value).isin("date", "timestamp", "timestamp_ntz")
        is_other = is_time & value.cast("string").rlike(_OTHER_YEARS)
        why = why.when(is_other, f"derived {name} is not in the years 1 to 9999")
    return why


def is_too_large(raw: "Column", name: str, value: "Column") -> "Column":
    """Whether a DOUBLE or FLOAT without an end is not called so in its JSON, but is a number there."""
    return _is_endless(value) & ~raw.rlike(
        rf"""["']{_literal(name)}["']\s*+:\s*+["']?\s*+[-+]?[iI]"""
    )


def unless_huge(
    parsed: "Column", raw: "Column", text: type_of_column_of, landing: Landing
) -> "Column":
    """The record as it is `parsed`, null where a DECIMAL of it is a number with a huge exponent, which is never to be parsed.

    JSON is looked at as it stands, since Spark's text of a number is that of a DOUBLE; `text` gives the text of a column of CSV.
    """
    names = [name for name, kind in misread_types(landing).items() if kind == "DECIMAL"]
    before = [rf'"(?:{"|".join(map(_literal, names))})"\s*+:'] if names else []
    if any(
        _NESTED_DECIMAL.match(type_) for _, type_ in field_types(landing.schema)
    ):  # CSV has no such types
        before = [r"[:,\[]"]  # any value: its name, if it has one, may be that of another member
    if not before:
        return parsed
    if landing.records_are_csv:
        is_huge = reduce(
            or_, (F.coalesce(text(name).rlike(rf"^\s*{_HUGE}\s*$"), F.lit(False)) for name in names)
        )
    else:
        is_huge = raw.rlike(rf'{before[0]}\s*+"?\s*+{_HUGE}')
    return F.when(~is_huge, parsed)


def _kinds(landing: Landing) -> list[tuple[str, str]]:
    """The columns with their kinds, empty for one whose values are read as they stand."""
    types = ((name, type_.strip().upper()) for name, type_ in field_types(landing.schema))
    return [
        (name, next((kind for word, kind in _KINDS.items() if type_.startswith(word)), ""))
        for name, type_ in types
    ]


def _is_misread(text: "Column", value: "Column", kind: str) -> "Column":
    if kind == "DECIMAL":
        return text.contains(",") & ~text.rlike(_GROUPED)
    if kind == "TINYINT":
        return text.cast("int") != value.cast("int")
    if kind == "DATE":
        return ~text.rlike(_DAY)
    if kind == "DOUBLE":
        return text.rlike(_JAVA_NUMBER) | (_is_endless(value) & text.rlike(r"\d"))
    told = F.when(
        text.rlike(_DIGITS),
        F.coalesce(F.trim(text).try_cast("decimal(38,0)"), F.lit(_LAST_SECOND + 1)),
    )
    is_other = ~told.between(_FIRST_SECOND, _LAST_SECOND) | (
        told != F.unix_seconds(value.cast("timestamp"))
    )
    return text.rlike(r"^\s*(T\d|\d{1,2}:)") | is_other


def _is_endless(value: "Column") -> "Column":
    return F.abs(value) == F.lit(inf)


def _json_pattern(types: Mapping[str, str]) -> str:
    names = {
        kind: "|".join(_literal(name) for name, its in types.items() if its == kind)
        for kind in types.values()
    }
    return "|".join(
        rf'"(?:{names[kind]})"\s*+:\s*+(?:{_JSON_VALUES[kind]})' for kind in sorted(names)
    )


def _csv_pattern(kinds: set[str], landing: Landing) -> str:
    """The pattern of any field: which one it is shows only when the record is parsed."""
    delimiter, quote = _literal(landing.delimiter), _literal(landing.quote)
    begin, end = rf"(?:^|{delimiter})\s*+(?:{quote}\s*+)?+", rf"\s*(?:{quote}|{delimiter}|$)"
    year = rf"[-+]?\d{{4,7}}{end}"
    # A comma within a field stands in quotes where commas are the delimiter.
    grouped = (
        rf"(?:^|{delimiter})\s*+{quote}{'' if landing.delimiter == ',' else '?+'}\s*+[-+\d.]*,"
    )
    values = {
        "TIMESTAMP": rf"{begin}(?:T\d|\d{{1,2}}:|-?\d{{12,}}|{year})",
        "DATE": rf"{begin}(?:{year}|[-+]?\d{{4,7}}-\d{{1,2}}(?:{end}|-\d{{1,2}}+(?!{end})))",
        "DECIMAL": rf"{grouped}|{begin}{_HUGE}",
        "DOUBLE": rf"{begin}[-+]?(?:0[xX]|[\d.]+(?:[eE][-+]?\d+)?[dDfF]{end}|[\d.]+[eE]\+?\d|\d{{39}})",
    }
    return "|".join(values[kind] for kind in sorted(kinds))


def _literal(text: str) -> str:
    """The text in a regular expression of Java."""
    return re.sub(r"(\W)", r"\\\1", text)
