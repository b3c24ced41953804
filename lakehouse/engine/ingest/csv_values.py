"""Casts the texts of CSV fields strictly to their declared types.

Spark's CSV reader and casts misread some texts: a time of day becomes a time of today, digits alone
become a year, `1,5` becomes 15, and `1.5` becomes the integer 1. Therefore, a text is cast only if
it has the form of the declared type. Blanks around it do not count, except in a STRING.
"""

from math import inf
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.json_values import ZONE
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

# Spark's CSV reader puts this in place of a field without content, and reads it as null. No text
# contains it.
_NOTHING = "\x01nothing\x01"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_WHOLE = r"^[-+]?[0-9]+$"
_DOUBLE = rf"^\s*(?:{_NUMBER}(?:[eE][-+]?[0-9]+)?|[-+]?Inf(?:inity)?|NaN)\s*$"
_DAY = r"[-+]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_DECIMAL = rf"^{_NUMBER}(?:[eE][-+]?[0-9]{{1,3}})?$"
# Digits grouped as in English. `1,234` without a point may be a fraction.
GROUPED = r"^[-+]?[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+$"
_CLOCK = r"[0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]*)?)?)?"
# Swaps the decimal point and the commas between groups of digits.
_SWAPPED = (",.", ".,")
# The form of a text, by Spark's name of the type. For other types, only Spark's cast decides.
FORMS = {
    "byte": _WHOLE,
    "short": _WHOLE,
    "integer": _WHOLE,
    "long": _WHOLE,
    "float": _DOUBLE,
    "double": _DOUBLE,
    "decimal": _DECIMAL,
    "boolean": "^(?i:true|false)$",
    # A day, optionally with midnight in UTC.
    "date": rf"^\s*{_DAY}(?:[T ]\s*00?:00(?::00(?:\.0+)?)?\s*(?:Z|UTC|[-+]00:?00)?)?\s*$",
    # A month or a day. After a day, a time and a zone may follow.
    "timestamp": r"^\s*[-+]?[0-9]{4,7}-[0-9]{1,2}"
    rf"(?:-[0-9]{{1,2}}(?:[T ]\s*(?:{_CLOCK}\s*)?{ZONE})?)?\s*$",
    # The cast would drop a zone.
    "timestamp_ntz": r"^\s*[-+]?[0-9]{4,7}-[0-9]{1,2}"
    rf"(?:-[0-9]{{1,2}}(?:[T ]\s*{_CLOCK})?)?\s*$",
}


def csv_texts(record: "Column", landing: Landing, names: "list[str]", corrupt: str) -> "Column":
    """A record's fields as a struct of texts. A wrong number of fields sets the field `corrupt`."""
    ddl = ", ".join(f"{quote(name)} STRING" for name in (*names, corrupt))
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": corrupt,
        "sep": landing.csv.delimiter,
        "quote": landing.csv.quote,
        # RFC 4180, section 2.7: a quote inside quotes is doubled.
        "escape": landing.csv.quote,
        # Line breaks inside quotes are kept.
        "multiLine": "true",
        "nullValue": _NOTHING,
    }
    return F.from_csv(record, ddl, options)


def csv_types(lines: "DataFrame", landing: Landing) -> "list[StructField]":
    """The declared fields with their types and comments."""
    empty = F.from_csv(F.lit(""), landing.schema).alias("row")
    row_type = lines.select(empty).schema[0].dataType
    return row_type.fields  # pyright: ignore[reportAttributeAccessIssue]


def castable_text(text: "Column", field: "StructField", landing: Landing) -> "Column":
    """The text of a field that is cast to the field's type; null for a null."""
    kind = field.dataType.typeName()
    if kind == "string":
        if landing.keeps_empty_texts:
            text = F.coalesce(text, F.lit(""))
        return F.nullif(text, F.lit(landing.null_value or ""))
    # Few texts have a blank, and trimming takes ten times as long as looking for one.
    has_blank = F.contains(text, F.lit(" ")) | F.contains(text, F.lit("\t"))
    value = F.when(has_blank, F.btrim(text, F.lit(" \t"))).otherwise(text)
    is_blank = (value == "") & (text != "")
    text = F.nullif(F.when(~is_blank, value), F.lit(landing.null_value or ""))
    if kind in ("decimal", "float", "double") and landing.csv.decimal == ",":
        text = F.translate(text, *_SWAPPED)
    return text


def cast_text(text: "Column", field: "StructField") -> "Column":
    """The value of a text; null if it does not have the form of the type."""
    kind = field.dataType.typeName()
    if kind == "string":
        return text
    castable = text
    if kind == "decimal":
        without_commas = F.replace(text, F.lit(","))
        is_grouped = F.contains(text, F.lit(",")) & text.rlike(GROUPED)
        castable = F.when(is_grouped, without_commas).otherwise(text)
    form = FORMS.get(kind)
    if form is not None:
        castable = F.when(castable.rlike(form), castable)
    return castable.try_cast(field.dataType)


def is_unfit(text: "Column", value: "Column", field: "StructField") -> "Column":
    """Whether a text does not fit the type of its field. `value` is what `cast_text` returned."""
    kind = field.dataType.typeName()
    if kind == "string":
        return F.lit(False)
    is_without_value = text.isNotNull() & value.isNull()
    if kind not in ("float", "double"):
        return is_without_value
    # The cast makes a number beyond the type's range infinite.
    return is_without_value | ((F.abs(value) == F.lit(inf)) & text.rlike("[0-9]"))
