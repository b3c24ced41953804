"""Values that Spark reads as others without a word: which columns of a landing may have them, and which values are some.

A comma is left out of a DECIMAL (as it groups digits in English), a time of day becomes a time of today, whole seconds overflow, and
128 to 255 are below 0 in a TINYINT of JSON. Source: Spark's JacksonParser and UnivocityParser, makeConverter; Jackson's getByteValue.
The members of nested types are not looked at.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import Column

_KINDS = {"TIMESTAMP": "TIMESTAMP", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "TINYINT": "TINYINT", "BYTE": "TINYINT"}
_LAST_SECOND, _FIRST_SECOND = 253_402_300_799, -62_135_596_800  # the years 9999 and 1
# How a value begins that may be misread, by kind.
_TIME, _NUMBER = r"T?\d{1,2}:|-?\d{12,}", r"[-+\d.]*,"
_JSON_VALUES = {"TIMESTAMP": rf'"\s*(?:{_TIME})|-?\d{{12,}}', "DECIMAL": rf'"\s*{_NUMBER}', "TINYINT": r'"?\s*[-+]?\d{3}'}
# Digits in groups, as English has them; without a point `1,234` may be a fraction as others write it.
_GROUPED = r"^\s*[-+]?\d{1,3}(,\d{3})+\.\d+\s*$"


def misread_types(landing: Landing) -> dict[str, str]:
    """The columns whose values may be misread, each with its kind: TIMESTAMP, DECIMAL, or TINYINT."""
    found = {
        name: next((kind for word, kind in _KINDS.items() if type_.strip().upper().startswith(word)), "")
        for name, type_ in field_types(landing.schema)
    }
    return {name: kind for name, kind in found.items() if kind and not (kind == "TINYINT" and landing.records_are_csv)}


def is_suspect(raw: "Column", is_object: "Column", types: Mapping[str, str], landing: Landing) -> "Column":
    """Whether a record may hold a value that is misread, told by its text alone, so that few records are parsed twice."""
    pattern = _csv_pattern({*types.values()}, landing) if landing.records_are_csv else _json_pattern(types)
    found = raw.rlike(pattern)
    # Names and values may be told by escapes; and what is no strict JSON may have other quotes.
    return found if landing.records_are_csv else found | raw.contains("\\") | ~is_object


def is_misread(text: "Column", value: "Column", kind: str) -> "Column":
    """Whether Spark read the `text` as another `value`; null where there is no text."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind == "DECIMAL":
        return text.contains(",") & ~text.rlike(_GROUPED)
    if kind == "TINYINT":
        return text.cast("int") != value.cast("int")
    seconds = F.when(text.rlike(r"^-?\d+$"), F.coalesce(text.cast("decimal(38,0)"), F.lit(_LAST_SECOND + 1)))
    return text.rlike(r"^\s*T?\d{1,2}:") | ~seconds.between(_FIRST_SECOND, _LAST_SECOND)


def _json_pattern(types: Mapping[str, str]) -> str:
    names = {kind: "|".join(_literal(name) for name, its in types.items() if its == kind) for kind in types.values()}
    return "|".join(rf'"(?:{names[kind]})"\s*:\s*(?:{_JSON_VALUES[kind]})' for kind in sorted(names))


def _csv_pattern(kinds: set[str], landing: Landing) -> str:
    """Of any field: which one it is shows only when the record is parsed."""
    delimiter, quote = _literal(landing.delimiter), _literal(landing.quote)
    begin = rf"(?:^|{delimiter})\s*{quote}?\s*"
    within = quote if landing.delimiter == "," else f"{quote}?"  # there a comma stands in quotes, or ends the field
    values = {"TIMESTAMP": rf"{begin}(?:{_TIME})", "DECIMAL": rf"(?:^|{delimiter})\s*{within}\s*{_NUMBER}"}
    return "|".join(values[kind] for kind in sorted(kinds))


def _literal(text: str) -> str:
    """The text in a regular expression of Java."""
    return re.sub(r"(\W)", r"\\\1", text)
