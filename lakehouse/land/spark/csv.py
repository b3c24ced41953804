"""Judges lines of large CSV files in Spark, and casts the texts of their fields."""

from typing import TYPE_CHECKING

from lakehouse.declare.landing import Csv, Landing
from lakehouse.delta.columns import field_names
from lakehouse.land.parse_lines import (
    CORRUPT,
    PARSED,
    RAW,
    UNDECLARED,
    JudgedLines,
    castable_text,
    csv_texts,
    csv_types,
    csv_value,
    is_unfit,
)
from lakehouse.land.plan.file_text import CsvFields, csv_fields, line_pattern, records_with_header
from lakehouse.land.plan.records import FIELD_COUNT, UNFIT, Unreadable
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, struct_once
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TEXTS = "_lakehouse_texts"


def is_whole_record(csv: Csv) -> "Column":
    """Whether a line is a whole record: no quoted field goes on in the next line."""
    has_quote = F.contains("value", F.lit(csv.quote))
    return ~has_quote | F.rlike("value", F.lit(line_pattern(csv)))


def fields_of_start(text: bytes, landing: Landing, *, has_mark: bool) -> CsvFields | None:
    """The fields of a file that begins with `text`; `None` if Spark cannot read the file.

    `has_mark`: a byte order mark stands before the text.

    Raises:
        Unreadable: the header is not accepted.
    """
    try:
        first = next(records_with_header(iter([text]), landing), None)
    except Unreadable:
        return None  # the record does not end in these bytes
    if first is None or first.line != 1 or b"\n" in first.content or b"\r" in first.content:
        return None
    fields = csv_fields(first, landing)
    is_clear = len({name.lower() for name in fields.names}) == len(fields.names)
    return fields if is_clear and (fields.has_header or not has_mark) else None


def judged_lines(lines: "DataFrame", fields: CsvFields, landing: Landing) -> JudgedLines:
    """Casts the fields of each line (`value`), and finds its problems."""
    # The corrupt record is the last field.
    texts = csv_texts(F.col("value"), landing, [*fields.names], CORRUPT)
    lines = lines.withColumn(_TEXTS, evaluated_once(texts))
    lines, unfit = _with_values(lines, fields, landing)
    is_corrupt = F.col(_TEXTS).isNull() | _text(CORRUPT).isNotNull()
    is_reduced = fields.has_header and fields.names != field_names(landing.schema)
    source = "in its header" if is_reduced else "declared"
    problems = [(is_corrupt, F.lit(f"{FIELD_COUNT}{len(fields.names)} {source}"))]
    problems += [(is_unfit_value, F.lit(UNFIT)) for is_unfit_value in unfit]
    raw = _raw(fields, landing, is_corrupt).alias(RAW)
    columns = [F.col(PARSED), raw, *_undeclared(fields, landing)]
    return JudgedLines(lines, problems, columns)


def _with_values(
    landed: "DataFrame", fields: CsvFields, landing: Landing
) -> "tuple[DataFrame, list[Column]]":
    """Adds the values of the declared fields as `PARSED`; returns also whether each is unfit."""
    values = list["Column"]()
    unfit = list["Column"]()
    for field in csv_types(landed, landing):
        value = F.lit(None).cast(field.dataType.simpleString())
        if field.name in fields.names:
            value = csv_value(_text(field.name), field, landing)
            text = castable_text(_text(field.name), field, landing)
            unfit.append(is_unfit(text, F.col(f"{PARSED}.{quote(field.name)}"), field))
        values.append(value.alias(field.name, metadata=field.metadata or None))
    return landed.withColumn(PARSED, struct_once(values)), unfit


def _undeclared(fields: CsvFields, landing: Landing) -> "list[Column]":
    """The column of undeclared fields, if there are any."""
    texts = list["Column"]()
    for name in fields.names:
        if name not in field_names(landing.schema):
            text = F.coalesce(_text(name), F.lit("")) if landing.keeps_empty_texts else _text(name)
            texts.append(F.nullif(text, F.lit(landing.null_value or "")).alias(name))
    others = F.nullif(F.to_json(F.struct(*texts)), F.lit("{}"))
    return [others.alias(UNDECLARED)] if texts else []


def _text(name: str) -> "Column":
    return F.col(f"{_TEXTS}.{quote(name)}")


def _raw(fields: CsvFields, landing: Landing, is_corrupt: "Column") -> "Column":
    """The line, reduced to the declared fields in their order."""
    line = F.make_valid_utf8("value")
    declared = field_names(landing.schema)
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
    kept = [(_text(each) if each in fields.names else null).alias(each) for each in declared]
    return F.when(is_corrupt, line).otherwise(F.to_csv(F.struct(*kept), options))
