"""Judges lines of CSV in Spark: staged records, and lines of large files.

A field is cast to its declared type only if its text has the form of the type
(`land.parse_lines.cast_text`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.declare.landing import Csv, Landing
from lakehouse.land.parse_lines import (
    PARSED,
    RAW,
    REASON,
    UNDECLARED,
    cast_text,
    csv_types,
    is_unfit,
)
from lakehouse.land.plan.file_text import (
    MISREAD_CHARACTER,
    MOST_FIELDS,
    line_pattern,
    wide_line_pattern,
)
from lakehouse.land.plan.records import FIELD_COUNT, UNFIT, CsvFields
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, struct_once
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_TEXTS = "_lakehouse_texts"
# Spark's CSV reader puts this in place of a field without content, and reads it as null. No text
# contains it.
_NOTHING = "\x01nothing\x01"
# Swaps the decimal point and the commas between groups of digits.
_SWAPPED = (",.", ".,")


def is_whole_record(csv: Csv) -> "Column":
    """Whether a line is a whole record: each quoted field ends in it, at the end of the field.

    Even if all quotes were closed, a field such as `"y"z` would have no clear value.
    """
    line = F.col("value")
    return ~line.contains(csv.quote) | line.rlike(line_pattern(csv))


def judged_lines(
    lines: "DataFrame",
    fields: CsvFields,
    landing: Landing,
    origin: "Sequence[Column | str]",
    reason: "Column",
) -> "DataFrame":
    """The values of each line (`value`) as `PARSED`, with columns for its `origin`.

    `reason` is a chain of `when`, which is extended by the problems of a line.
    """
    # If a field that is added to each line is not found in its place, the line has more or fewer
    # fields than declared. No delimiter is a letter or a digit.
    end = uuid4().hex
    line = F.col("value")
    is_misread = line.contains(MISREAD_CHARACTER)
    # The pattern takes time, and few lines are so long.
    is_wide = (F.octet_length(line) > MOST_FIELDS) & line.rlike(wide_line_pattern(landing.csv))
    record = F.concat(line, F.lit(f"{landing.csv.delimiter}{end}"))
    record = F.when(~is_misread & ~is_wide, record)
    texts = _csv_texts(record, landing, len(fields.names) + 1)
    lines = lines.withColumn(_TEXTS, evaluated_once(texts))
    misread = "it has the character U+FFFF, which Spark's CSV reader misreads"
    is_corrupt = F.coalesce(_text(len(fields.names)) != end, F.lit(True))
    is_reduced = fields.has_header and fields.names != landing.field_names
    source = "in its header" if is_reduced else "declared"
    reason = reason.when(is_misread, misread)
    reason = reason.when(is_corrupt, f"{FIELD_COUNT}{len(fields.names)} {source}")
    values = list["Column"]()
    for field in csv_types(lines, landing):
        value = F.lit(None).cast(field.dataType.simpleString())
        if field.name in fields.names:
            text = _castable_text(_field(fields, field.name), field, landing)
            value = cast_text(text, field)
            reason = reason.when(
                is_unfit(text, F.col(f"{PARSED}.{quote(field.name)}"), field), UNFIT
            )
        values.append(value.alias(field.name))
    return lines.withColumn(PARSED, struct_once(values)).select(
        *origin,
        PARSED,
        _raw(fields, landing, is_corrupt).alias(RAW),
        *_undeclared(fields, landing, is_corrupt),
        evaluated_once(reason).alias(REASON),
    )


def _csv_texts(record: "Column", landing: Landing, count: int) -> "Column":
    """The first `count` fields of a record as a struct of texts, by their places (`_text`)."""
    ddl = ", ".join(f"c{place} STRING" for place in range(count))
    options = {
        "mode": "PERMISSIVE",
        "sep": landing.csv.delimiter,
        "quote": landing.csv.quote,
        # RFC 4180, section 2.7: a quote inside quotes is doubled.
        "escape": landing.csv.quote,
        # Line breaks inside quotes are kept.
        "multiLine": "true",
        "nullValue": _NOTHING,
    }
    return F.from_csv(record, ddl, options)


def _castable_text(text: "Column", field: "StructField", landing: Landing) -> "Column":
    """The text of a CSV field that is cast to the field's type; null for a null."""
    kind = field.dataType.typeName()
    if kind == "string":
        return _string_value(text, landing)
    value = F.btrim(text, F.lit(" \t"))
    is_blank = (value == "") & (text != "")
    text = F.nullif(F.when(~is_blank, value), F.lit(landing.null_value or ""))
    is_swapped = kind in ("decimal", "float", "double") and landing.csv.decimal == ","
    return F.translate(text, *_SWAPPED) if is_swapped else text


def _string_value(text: "Column", landing: Landing) -> "Column":
    if landing.keeps_empty_texts:
        text = F.coalesce(text, F.lit(""))
    return F.nullif(text, F.lit(landing.null_value or ""))


def _undeclared(fields: CsvFields, landing: Landing, is_corrupt: "Column") -> "list[Column]":
    """The column of the undeclared fields of lines that are not corrupt, if there may be any."""
    texts = list["Column"]()
    for name in fields.names:
        if name not in landing.field_names:
            texts.append(_string_value(_field(fields, name), landing).alias(name))
    others = F.nullif(F.to_json(F.struct(*texts)), F.lit("{}"))
    return [F.when(~is_corrupt, others).alias(UNDECLARED)] if texts else []


def _field(fields: CsvFields, name: str) -> "Column":
    return _text(fields.names.index(name))


def _text(place: int) -> "Column":
    return F.col(f"{_TEXTS}.c{place}")


def _raw(fields: CsvFields, landing: Landing, is_corrupt: "Column") -> "Column":
    """The line, reduced to the declared fields in their order."""
    line = F.make_valid_utf8("value")
    declared = landing.field_names
    if fields.names == declared:
        return line
    options = {
        "sep": landing.csv.delimiter,
        "quote": landing.csv.quote,
        "escape": landing.csv.quote,
        "nullValue": "",
        "emptyValue": landing.csv.quote * 2,
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }
    null = F.lit(None).cast("string")
    kept = [
        (_field(fields, each) if each in fields.names else null).alias(each) for each in declared
    ]
    return F.when(is_corrupt, line).otherwise(F.to_csv(F.struct(*kept), options))
