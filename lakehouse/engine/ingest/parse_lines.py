"""Staged records as rows, or as reasons why they are none."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn
from lakehouse.engine.ingest.misread import is_suspect, misread_types, unless_huge, why_misread
from lakehouse.engine.ingest.staging import STAGED_SCHEMA, StagedRecords
from lakehouse.engine.ingest.undeclared_fields import UNDECLARED, UNKNOWN_FIELD, undeclared_columns, why_unfit, with_undeclared
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CORRUPT = "_lakehouse_corrupt"
RAW = "_lakehouse_raw"
DIGEST = "_lakehouse_digest"  # of the file that a line is from
REASON = "_lakehouse_reason"
IS_OBJECT = "_lakehouse_is_object"
_GLOB = re.compile(r"[\[\]{}*?\\]")  # Spark takes a path with these for a pattern, and with a backslash before each for a name
OWN = ("_source_file", "_source_line", "_landed_at")
UNFIT = "a field does not fit the schema"
_NOT_JSON, _MISSING, _EMPTY = "not JSON", "required field ", "partition field "
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# The columns of types into which Spark reads some values as others, as texts.
_TEXTS = "_texts"
# The columns of a record of CSV as texts, null where a field holds nothing, whatever stands for null.
_FILLED = "_filled"


def parse_records(landing: Landing, lines: "DataFrame", added: Sequence[AddedColumn], partition_by: Sequence[str]) -> "DataFrame":
    """One row per line of `named_lines`: its columns, where it came from, those that were added, its text, and a reason if it is no row.

    A line with an empty text in a column of `partition_by` is none, nor is one with Hive's word for null: Delta keeps both as null. Source:
    Delta protocol, "Partition Value Serialization"; v4.4.0, PartitionUtils.scala, parsePartitionColumn.
    """
    lenient = None if landing.records_are_csv else F.when(~F.col(IS_OBJECT), F.col(RAW))
    parsed = with_undeclared(lines, landing, added, lenient)
    if types := misread_types(landing):
        parsed = parsed.withColumn(_TEXTS, _texts(landing, types))
    parsed = parsed.withColumn("_parsed", unless_huge(_parsed(landing), F.col(RAW), _text, landing))
    if landing.keeps_empty_texts:
        parsed = parsed.withColumn(_FILLED, _filled(landing))
    fields = field_names(landing.schema)
    more, reason = undeclared_columns(landing, added), _why_not_a_row(landing, added).alias(REASON)
    spread = parsed.select(*[_field(name, landing, parsed) for name in fields], *OWN, *more, RAW, DIGEST, reason)
    derived = [F.expr(expression).alias(name) for name, expression in landing.derived.items()]
    beside = [name for name in spread.columns if name not in fields]
    rows = spread.select(*[F.col(statements.quote(name)) for name in fields], *derived, *map(statements.quote, beside))
    for name in partition_by:
        text = F.col(statements.quote(name)).cast("string")
        why = F.when(text == "", f"{_EMPTY}{name} is empty").when(text == _HIVE_NULL, f"{_EMPTY}{name} is {_HIVE_NULL}, a word for null")
        rows = rows.withColumn(REASON, F.coalesce(REASON, why))
    return rows


def staged_lines(spark: "SparkSession", staged: StagedRecords) -> "DataFrame":
    """One row per staged record: where it came from, its text, whether it is a JSON object, and a reason if it cannot be a row."""
    lines = named_lines(spark.read.schema(STAGED_SCHEMA).parquet(*[literal_path(path) for path in staged.paths]))
    return lines if staged.files is None else lines.where(lines[OWN[0]].isin(*staged.files))


def named_lines(lines: "DataFrame") -> "DataFrame":
    """Records with the columns of `STAGED_SCHEMA`, under names that no field of a file has."""
    renamed = {"source_file": OWN[0], "line": OWN[1], "landed_at": OWN[2], "raw": RAW, "problem": REASON, "is_object": IS_OBJECT}
    renamed |= {"undeclared": UNDECLARED, "digest": DIGEST}
    return lines.withColumnsRenamed(renamed)


def count_lines(lines: "DataFrame") -> tuple[int, int, int]:
    """How many of the lines are rows, how many are none, and how many rows have fields that no other column has."""
    good = F.col(REASON).isNull()
    found = lines.select(F.count_if(good), F.count_if(~good), F.count_if(good & F.col(RESCUED).isNotNull())).collect()[0]
    return found[0], found[1], found[2]


def table_rows(lines: "DataFrame") -> "DataFrame":
    """The lines that are rows, with the columns of the table."""
    return lines.where(f"{REASON} IS NULL").drop(RAW, DIGEST, REASON, UNDECLARED)


def quarantined_lines(lines: "DataFrame") -> "DataFrame":
    """The lines that are no rows, with the columns of a quarantine table (`quarantine.entries`)."""
    own = (("source_file", OWN[0]), ("line", OWN[1]), ("reason", REASON), ("raw", RAW), ("undeclared", UNDECLARED), ("digest", DIGEST))
    return lines.where(f"{REASON} IS NOT NULL").select(*[F.col(name).alias(alias) for alias, name in own])


def is_of_the_declaration(reason: "Column") -> "Column":
    """Whether the declaration gave this reason, so that another one may find a row in the line's text; any other text may be cut short."""
    return reason.isin(_NOT_JSON, UNFIT) | reason.startswith(_MISSING) | reason.startswith(_EMPTY) | reason.startswith(UNKNOWN_FIELD)


def literal_path(path: str) -> str:
    """A path as Spark's file readers take it for itself and not for a pattern."""
    return _GLOB.sub(r"\\\g<0>", path)


def _parsed(landing: Landing) -> "Column":
    schema = f"{landing.schema}, {CORRUPT} STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    if not landing.records_are_csv:
        # Without this a text of digits in a nested DATE is the number of a day. Source: Spark's JacksonParser, DateType
        return F.from_json(RAW, schema, {**options, "enableDateTimeParsingFallback": "false"})
    return F.from_csv(F.col(RAW), schema, {**options, **_csv_options(landing)})


def _csv_options(landing: Landing) -> dict[str, str]:
    # RFC 4180, section 2.7: a quote inside quotes is doubled. `multiLine`: line breaks inside quotes stay as they are.
    options = {"sep": landing.delimiter, "quote": landing.quote, "escape": landing.quote, "multiLine": "true"}
    return options if landing.null_value is None else {**options, "nullValue": landing.null_value}


def _texts(landing: Landing, types: Mapping[str, str]) -> "Column":
    """The values of these columns as texts; null for a line in which none can be misread."""

    def ddl(names: Iterable[str]) -> str:
        return ", ".join(f"{statements.quote(name)} STRING" for name in names)

    if landing.records_are_csv:
        texts = F.from_csv(F.col(RAW), ddl(field_names(landing.schema)), _csv_options(landing))
    else:
        texts = F.from_json(RAW, ddl(types), {"mode": "PERMISSIVE"})
    return F.when(is_suspect(F.col(RAW), F.col(IS_OBJECT), types, landing), texts)


def _filled(landing: Landing) -> "Column":
    """The fields as texts, each null that holds nothing; null for a line in which none does."""
    sign = f"\\Q{landing.delimiter}\\E"
    ddl = ", ".join(f"{statements.quote(name)} STRING" for name in field_names(landing.schema))
    texts = F.from_csv(F.col(RAW), ddl, _csv_options(replace(landing, null_value="")))
    return F.when(F.col(RAW).rlike(f"(?:^|{sign})(?:{sign}|$)"), texts)


def _text(name: str) -> "Column":
    return F.col(f"{_TEXTS}.{statements.quote(name)}")


def _value(name: str) -> "Column":
    return F.col(f"_parsed.{statements.quote(name)}")


def _field(name: str, landing: Landing, lines: "DataFrame") -> "Column":
    value = _value(name)
    if not landing.records_are_csv and landing.null_value is not None and lines.select(value).schema[0].dataType.typeName() == "string":
        value = F.nullif(value, F.lit(landing.null_value))
    if landing.keeps_empty_texts and dict(field_types(landing.schema))[name].strip().upper().startswith("STRING"):
        # Spark reads a field that holds nothing as null, whatever `nullValue` is. Source: Spark's CSVOptions, asParserSettings
        is_empty = F.col(_FILLED).isNotNull() & F.col(f"{_FILLED}.{statements.quote(name)}").isNull()
        value = F.when(is_empty, F.lit("")).otherwise(value)
    return value.alias(name)


def _why_not_a_row(landing: Landing, added: Sequence[AddedColumn]) -> "Column":
    why = F.when(F.col(REASON).isNotNull(), F.col(REASON))
    if not landing.records_are_csv:
        why = why.when(~F.col(IS_OBJECT) & ~is_one_object(), _NOT_JSON)
    why = why.when(F.col("_parsed").isNull() | F.col(f"_parsed.{CORRUPT}").isNotNull(), UNFIT)
    why = why_misread(why, landing, F.col(RAW), _text, _value, UNFIT)
    why = why_unfit(why, landing, added, UNFIT)
    for name in landing.required:
        why = why.when(_field_is_missing(name, landing), f"{_MISSING}{name} is missing")
    return why


def _field_is_missing(name: str, landing: Landing) -> "Column":
    value = _value(name)
    if landing.null_value is None:
        return value.isNull()
    return value.isNull() | (value.cast("string") == F.lit(landing.null_value))


def is_one_object() -> "Column":
    """Whether a line that is no strict JSON is one object for Spark, which takes single quotes, and nothing behind it.

    Spark's parser stops where the object ends, and what follows, perhaps a second object, would be lost without a word. Inside brackets of
    two kinds nothing can follow: what closes the one early does not fit the other.
    """
    in_array = F.json_array_length(F.concat(F.lit("["), F.col(RAW), F.lit("]")))
    in_object = F.json_array_length(F.concat(F.lit('[{"x":'), F.col(RAW), F.lit("}]")))
    is_object = F.ltrim(RAW).startswith("{") & (in_array == 1) & (in_object == 1)
    return F.coalesce(is_object, F.lit(False))
