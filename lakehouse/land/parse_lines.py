"""Parses staged records into rows of a table, or gives a reason why a record cannot be a row.

Spark's CSV reader and casts misread some texts: a time of day becomes a time of today, digits alone
become a year, `1,5` becomes 15, and `1.5` becomes the integer 1. Therefore, a text is cast only if
it has the form of the declared type. Blanks around it do not count, except in a STRING.

`land/spark/csv.py` finds and judges the fields of CSV records, staged or in large files. For JSON,
staging has already checked the syntax of each record and recorded its problem, if any. Spark
parses the text of the other records into typed columns, once. Fields that the schema does not name
become columns of their own, are collected in one column, or make their record bad
(`Landing.new_columns`). Staging puts all these fields of a record into one JSON object, which is
parsed here.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import type_word
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.land.plan.records import FORMS, GROUPED, RESCUED, TWO_NAMES, UNFIT
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, literal_path
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField


UNDECLARED = "_lakehouse_undeclared"
UNKNOWN = "the schema does not name "
_PARSED = "_lakehouse_undeclared_parsed"
# A number that a variant may round: 16 digits or more before an exponent, an exponent beyond those
# of a double, or more than 38 digits. The group is what a variant shows if it keeps the number.
_MAY_BE_ROUNDED = (
    r"[:,\[]\s*-?([0-9.]{16,}(?=[eE])|[0-9.]{39,}"
    r"|[0-9.]+[eE][-+]?0*(?:30[789]|3[1-9][0-9]|[4-9][0-9]{2}|[0-9]{4,}))"
)
# As in Python, the last of several members with one name counts.
JSON_CONFS = {
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}


def csv_types(lines: "DataFrame", landing: Landing) -> "list[StructField]":
    """The declared fields with their types and comments."""
    empty = F.from_csv(F.lit(""), landing.schema).alias("row")
    row_type = lines.select(empty).schema[0].dataType
    return row_type.fields  # pyright: ignore[reportAttributeAccessIssue]


def cast_text(text: "Column", field: "StructField") -> "Column":
    """The value of a text; null if it does not have the form of the type."""
    kind = field.dataType.typeName()
    if kind == "string":
        return text
    if kind == "decimal":
        without_commas = F.replace(text, F.lit(","))
        is_grouped = text.contains(",") & text.rlike(GROUPED)
        text = F.when(is_grouped, without_commas).otherwise(text)
    if kind in FORMS:
        text = F.when(text.rlike(FORMS[kind]), text)
    return text.try_cast(field.dataType)


def is_unfit(text: "Column", value: "Column", field: "StructField") -> "Column":
    """Whether a text does not fit the type of its field. `value` is what it was cast to."""
    kind = field.dataType.typeName()
    if kind == "string":
        return F.lit(False)
    is_without_value = value.isNull() & text.isNotNull()
    if kind not in ("float", "double"):
        return is_without_value
    # The cast makes a number beyond the type's range infinite.
    return is_without_value | ((F.abs(value) == inf) & text.rlike("[0-9]"))


CORRUPT = "_lakehouse_corrupt"
RAW = "_lakehouse_raw"
EVENT = "_lakehouse_event"  # the text to parse instead of RAW, if any (`Record.event`)
SPELLED = "_lakehouse_spelled"  # a struct of texts to load in place of the parsed ones, if any
DIGEST = "_lakehouse_digest"  # the digest of the record's file
REASON = "_lakehouse_reason"
ORIGIN = ("_source_file", "_source_line", "_landed_at")
# The staged columns of a text record.
STAGED_SCHEMA = (
    f"{ORIGIN[0]} STRING, {ORIGIN[1]} BIGINT, {ORIGIN[2]} TIMESTAMP, {RAW} STRING, "
    f"{REASON} STRING, {UNDECLARED} STRING, {DIGEST} STRING, {EVENT} STRING"
)
# The first staged columns of a row of Parquet or Avro. The row's values follow, as c0, c1, ….
ROW_SCHEMA = f"{ORIGIN[0]} STRING, {ORIGIN[1]} BIGINT, {ORIGIN[2]} TIMESTAMP, {DIGEST} STRING"
PARSED = "_parsed"
# The beginnings of reasons, by which `depends_on_declaration` recognises them.
_MISSING = "required field "
_EMPTY = "partition field "
LATE = "its partition is in the table's archive"
# Hive's word for null in the name of a partition's folder.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# The accepted range of a DATE or TIMESTAMP. Spark writes any year, but Python and other readers
# support only the years 1 to 9999.
_FIRST_AND_LAST = {
    "DATE": ("0001-01-01", "9999-12-31"),
    "TIMESTAMP": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
}
# Matches Spark's text of a date or time before year 1 or after year 9999.
_OTHER_YEARS = r"^[-+]|^0000-"


def parse_records(
    landing: Landing,
    lines: "DataFrame",
    added: Sequence[str],
    partition_by: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> "DataFrame":
    """One row per record of `staged_lines`: its columns, origin and text, and why it is bad.

    `lines` may also have the values of the records as the struct `PARSED`, as those of CSV and
    Parquet have, and lack the column of undeclared fields if there are none. Of their other
    columns, those in `kept` stay.
    The reason of a good record is null. A record is also bad if a column of `partition_by` has an
    empty string or Hive's word for null, because Delta stores both as null.
    Source: Delta protocol, "Partition Value Serialization"; delta-io/delta v4.4.0,
    PartitionUtils.scala, parsePartitionColumn.
    """
    has_undeclared = UNDECLARED in lines.columns
    parsed_lines = lines
    if has_undeclared:
        undeclared_fields = F.from_json(UNDECLARED, "MAP<STRING, VARIANT>")
        parsed_lines = lines.withColumn(_PARSED, evaluated_once(undeclared_fields))
    values = _values(landing, lines)
    reason = no_reason()
    if PARSED not in lines.columns:
        # A record that staging found bad is not parsed.
        text = F.when(F.col(REASON).isNull(), F.coalesce(EVENT, RAW))
        parsed = parsed_json(text, f"{landing.schema}, {CORRUPT} STRING")
        parsed_lines = parsed_lines.withColumn(PARSED, evaluated_once(parsed))
        reason = reason.when(F.col(PARSED).isNull() | _member(CORRUPT).isNotNull(), UNFIT)
    reason = _why_other_years(reason, landing, values)
    if has_undeclared:
        reason = _why_undeclared_unfit(reason, landing, added)
    for name in landing.required:
        reason = reason.when(values[name].isNull(), f"{_MISSING}{name} is missing")
    reason = F.coalesce(REASON, reason).alias(REASON)
    undeclared = [F.lit(None).cast("string").alias(name) for name in undeclared_names(added)]
    if has_undeclared:
        undeclared = _undeclared_columns(landing, added)
    metadata = dict[str, dict[str, str]]()
    if "comment" in landing.schema.lower():
        # A computed column would lose its comment.
        metadata = {field.name: field.metadata for field in csv_types(lines, landing)}
    columns = [
        value.alias(name, metadata=metadata.get(name) or None) for name, value in values.items()
    ]
    rows = parsed_lines.select(*columns, *ORIGIN, *undeclared, RAW, DIGEST, *kept, reason)
    if landing.derived:
        derived = [F.expr(expression).alias(name) for name, expression in landing.derived.items()]
        rows = rows.select(*map(quote, values), *derived, *map(quote, rows.columns[len(values) :]))
        reason = _why_derived_unfit(no_reason(), landing)
        rows = rows.withColumn(REASON, F.coalesce(REASON, reason))
    for name in partition_by:
        value = F.col(quote(name)).cast("string")
        why = F.when(value == "", f"{_EMPTY}{name} is empty")
        why = why.when(value == _HIVE_NULL, f"{_EMPTY}{name} is {_HIVE_NULL}, a word for null")
        rows = rows.withColumn(REASON, F.coalesce(REASON, why))
    return rows


def staged_lines(lake: Lake, spark: "SparkSession", names: Sequence[str]) -> "DataFrame":
    """The staged text records in these parts."""
    paths = [literal_path(f"{lake.settings.spark_root}/{name}") for name in names]
    return spark.read.schema(STAGED_SCHEMA).parquet(*paths)


def count_lines(lines: "DataFrame") -> tuple[int, int, int]:
    """The numbers of rows, of bad records, and of rows with a value in the column `RESCUED`."""
    is_good = F.col(REASON).isNull()
    is_rescued = is_good & F.col(RESCUED).isNotNull()
    counts = lines.select(F.count_if(is_good), F.count_if(~is_good), F.count_if(is_rescued))
    row_count, bad_count, rescued_count = counts.collect()[0]
    return row_count, bad_count, rescued_count


def table_rows(lines: "DataFrame") -> "DataFrame":
    """The good records, with the columns of the table."""
    return lines.where(f"{REASON} IS NULL").drop(RAW, DIGEST, REASON, UNDECLARED)


def failing_at_bad_records(lines: "DataFrame") -> "DataFrame":
    """The parsed records; a statement fails if one has a reason, or fields without a column."""
    reason = F.coalesce(REASON, F.when(F.col(RESCUED).isNotNull(), "it has undeclared fields"))
    error = F.raise_error("a record is bad").cast("string")
    return lines.withColumn(REASON, F.when(reason.isNotNull(), error))


def quarantined_lines(lines: "DataFrame") -> "DataFrame":
    """The bad records, with the columns of a quarantine table (`land/quarantine.py`)."""
    return lines.where(f"{REASON} IS NOT NULL").selectExpr(
        f"{ORIGIN[0]} AS source_file",
        f"{ORIGIN[1]} AS line",
        f"{REASON} AS reason",
        f"{RAW} AS raw",
        f"{UNDECLARED} AS undeclared",
        f"{DIGEST} AS digest",
    )


def depends_on_declaration(reason: "Column") -> "Column":
    """Whether a bad record can be retried: a changed declaration may remove this reason.

    A record with any other reason may have been stored with a truncated text.
    """
    beginnings = "|".join((_MISSING, _EMPTY, LATE, UNKNOWN, TWO_NAMES))
    return (reason == UNFIT) | reason.rlike(f"^(?:{beginnings})")


def no_reason() -> "Column":
    """A chain of `when` without a case."""
    return F.when(F.lit(False), F.lit(""))


def parsed_json(text: "Column", ddl: str) -> "Column":
    """JSON text as a struct of the fields in `ddl`.

    If a value does not fit its type, the field `CORRUPT` is set (if `ddl` has it).
    """
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        # Otherwise, Spark reads a DATE of digits as a number of days. Source: Spark, JacksonParser
        "enableDateTimeParsingFallback": "false",
    }
    return F.from_json(text, ddl, options)


def _why_other_years(why: "Column", landing: Landing, values: "Mapping[str, Column]") -> "Column":
    """Adds to the cases of `why`: a declared DATE or TIMESTAMP is outside the years 1 to 9999.

    `values` are the columns of the declared fields, by name.
    """
    for name, type_ in landing.field_types.items():
        word = type_word(type_).removesuffix("_NTZ")
        if word in _FIRST_AND_LAST:
            first, last = [F.lit(text).cast(word.lower()) for text in _FIRST_AND_LAST[word]]
            why = why.when(~values[name].between(first, last), UNFIT)
    return why


def _why_derived_unfit(why: "Column", landing: Landing) -> "Column":
    """Adds to the cases of `why`: a derived date or time is outside the years 1 to 9999."""
    for name in landing.derived:
        value = F.col(quote(name))
        is_time = F.typeof(value).isin("date", "timestamp", "timestamp_ntz")
        is_other = is_time & value.cast("string").rlike(_OTHER_YEARS)
        why = why.when(is_other, f"derived {name} is not in the years 1 to 9999")
    return why


def _member(name: str) -> "Column":
    return F.col(f"{PARSED}.{quote(name)}")


def _values(landing: Landing, lines: "DataFrame") -> "dict[str, Column]":
    """The values of a record's declared fields, as members of the parsed struct."""
    values = dict[str, "Column"]()
    has_spelled = SPELLED in lines.columns
    for name, type_ in landing.field_types.items():
        value = _member(name)
        is_text = type_word(type_) == "STRING"
        if is_text and has_spelled:
            value = F.coalesce(F.col(f"{SPELLED}.{quote(name)}"), value)
        if is_text and landing.null_value is not None:
            value = F.nullif(value, F.lit(landing.null_value))
        values[name] = value
    return values


def _undeclared_columns(landing: Landing, added: Sequence[str]) -> "list[Column]":
    """The added columns, then two JSON columns of a record's undeclared fields.

    The first has the fields without an added column. It is null if there are none, or if they make
    a record bad. The second has all undeclared fields.
    """
    rest = _rest(added)
    rescued: Column = F.lit(None).cast("string")
    if landing.new_columns != "refuse":
        # If no field has a column, the text is kept as it is.
        is_whole = F.size(rest) == F.size(F.json_object_keys(UNDECLARED))
        others = F.map_filter(
            _PARSED, lambda name, value: ~name.isin(*added) & ~F.is_variant_null(value)
        )
        rescued = F.when(is_whole, F.col(UNDECLARED)).when(F.size(rest) > 0, F.to_json(others))
    values = list["Column"]()
    for name in added:
        if name != RESCUED:
            # The text of the field, as JSON if it is no string; null if it is missing.
            value = F.try_element_at(_PARSED, F.lit(name))
            values.append(F.try_variant_get(value, "$", "string").alias(name))
    return [*values, rescued.alias(RESCUED), F.col(UNDECLARED)]


def undeclared_names(added: Sequence[str]) -> list[str]:
    """The names of the columns that `_undeclared_columns` returns."""
    return [*(name for name in added if name != RESCUED), RESCUED, UNDECLARED]


def _why_undeclared_unfit(why: "Column", landing: Landing, added: Sequence[str]) -> "Column":
    """Extends `why`, a chain of `when`, by the reasons why undeclared fields make a record bad."""
    if landing.new_columns == "refuse":
        rest = _rest(added)
        why = why.when(F.size(rest) > 0, F.concat(F.lit(UNKNOWN), F.array_join(rest, ", ")))
    if any(name != RESCUED for name in added):
        is_inexact = F.col(_PARSED).isNull() | loses_digits(F.col(UNDECLARED), F.col(_PARSED))
        why = why.when(F.col(UNDECLARED).isNotNull() & is_inexact, UNFIT)
    return why


def without_rescued(
    lines: "DataFrame", added: Sequence[str], rescued_count: int, snapshot: Snapshot | None
) -> "DataFrame":
    """Drops the column of rescued fields if it is not needed.

    It is needed if a row has a value in it, or if the table or `added` has it.
    """
    columns = () if snapshot is None else snapshot.columns
    is_in_table = any(column.name == RESCUED for column in columns)
    return lines if rescued_count or is_in_table or RESCUED in added else lines.drop(RESCUED)


def loses_digits(sent: "Column", kept: "Column") -> "Column":
    """Whether a map of variants (`kept`) has another number than the JSON text that was sent."""
    numbers = F.regexp_extract_all(without_strings(sent), F.lit(_MAY_BE_ROUNDED))
    kept_text = without_strings(F.to_json(kept))
    is_lost = F.exists(numbers, lambda number: ~kept_text.contains(number))
    return sent.rlike(_MAY_BE_ROUNDED) & is_lost


def without_strings(text: "Column") -> "Column":
    """A JSON text with empty strings."""
    without_escapes = F.regexp_replace(text, r"\\.", "")
    return F.regexp_replace(without_escapes, '"[^"]*"', '""')


def _rest(added: Sequence[str]) -> "Column":
    """The names of fields that have no column; null if a record has no undeclared fields."""
    names = F.array(*map(F.lit, added)).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)


def is_plain_line(pattern: str | None) -> "Column":
    """Whether a line (`value`) is UTF-8, and matches the pattern of plain lines, if any."""
    if pattern is None:
        return F.lit(False)
    return F.is_valid_utf8("value") & F.col("value").rlike(pattern)
