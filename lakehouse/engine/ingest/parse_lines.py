"""Staged records as rows, or as reasons why they are none; fields that no declaration names become columns, and one with the rest."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn
from lakehouse.engine.ingest.misread import (
    UNFIT,
    is_suspect,
    is_too_large,
    misread_types,
    unless_huge,
    why_derived_unfit,
    why_misread,
)
from lakehouse.engine.ingest.staging import STAGED_SCHEMA, part_names
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import literal_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CORRUPT = "_lakehouse_corrupt"
RAW = "_lakehouse_raw"
EVENT = "_lakehouse_event"  # of Debezium, decoded
DIGEST = "_lakehouse_digest"  # of the file that a line is from
REASON = "_lakehouse_reason"
IS_OBJECT = "_lakehouse_is_object"
OWN = ("_source_file", "_source_line", "_landed_at")
UNDECLARED = "_lakehouse_undeclared"
_ADDED, _ADDED_CORRUPT = "_lakehouse_added", "_lakehouse_added_corrupt"
_NOT_JSON, _MISSING, _EMPTY, _UNKNOWN = (
    "not JSON",
    "required field ",
    "partition field ",
    "the schema does not name ",
)
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# Columns as texts: those that Spark may misread, and those of CSV, null where a field holds nothing.
_TEXTS, _FILLED = "_texts", "_filled"


def parse_records(
    landing: Landing, lines: "DataFrame", added: Sequence[AddedColumn], partition_by: Sequence[str]
) -> "DataFrame":
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
    spread = parsed.select(
        *[_field(name, landing, parsed) for name in fields], *OWN, *more, RAW, DIGEST, reason
    )
    derived = [F.expr(expression).alias(name) for name, expression in landing.derived.items()]
    beside = [name for name in spread.columns if name not in fields]
    rows = spread.select(
        *[F.col(statements.quote(name)) for name in fields],
        *derived,
        *map(statements.quote, beside),
    )
    if landing.derived:
        why = why_derived_unfit(F.when(F.col(REASON).isNotNull(), F.col(REASON)), landing)
        rows = rows.withColumn(REASON, why)
    for name in partition_by:
        text = F.col(statements.quote(name)).cast("string")
        why = F.when(text == "", f"{_EMPTY}{name} is empty").when(
            text == _HIVE_NULL, f"{_EMPTY}{name} is {_HIVE_NULL}, a word for null"
        )
        rows = rows.withColumn(REASON, F.coalesce(REASON, why))
    return rows


def staged_lines(lake: Lake, spark: "SparkSession", table_key: str, batch: Batch) -> "DataFrame":
    """One row per staged record of a batch, under the names of `named_lines`, without those of files that were taken out of it."""
    paths = [
        literal_path(f"{lake.settings.spark_root}/{name}") for name in part_names(table_key, batch)
    ]
    lines = named_lines(spark.read.schema(STAGED_SCHEMA).parquet(*paths))
    return (
        lines.where(lines[OWN[0]].isin(*[f"{batch.prefix}{file.name}" for file in batch.files]))
        if batch.isolated
        else lines
    )


def named_lines(lines: "DataFrame") -> "DataFrame":
    """Records with the columns of `STAGED_SCHEMA`, under names that no field of a file has."""
    renamed = {
        "source_file": OWN[0],
        "line": OWN[1],
        "landed_at": OWN[2],
        "raw": RAW,
        "problem": REASON,
        "is_object": IS_OBJECT,
    }
    renamed |= {"undeclared": UNDECLARED, "digest": DIGEST, "event": EVENT}
    return lines.withColumnsRenamed(renamed)


def count_lines(lines: "DataFrame") -> tuple[int, int, int]:
    """The counts of lines that are rows, of lines that are none, and of rows with fields that no other column has."""
    good = F.col(REASON).isNull()
    found = lines.select(
        F.count_if(good), F.count_if(~good), F.count_if(good & F.col(RESCUED).isNotNull())
    ).collect()[0]
    return found[0], found[1], found[2]


def table_rows(lines: "DataFrame") -> "DataFrame":
    """The lines that are rows, with the columns of the table."""
    return lines.where(f"{REASON} IS NULL").drop(RAW, DIGEST, REASON, UNDECLARED)


def quarantined_lines(lines: "DataFrame") -> "DataFrame":
    """The lines that are no rows, with the columns of a quarantine table (`quarantine.entries`)."""
    own = (
        ("source_file", OWN[0]),
        ("line", OWN[1]),
        ("reason", REASON),
        ("raw", RAW),
        ("undeclared", UNDECLARED),
        ("digest", DIGEST),
    )
    return lines.where(f"{REASON} IS NOT NULL").select(
        *[F.col(name).alias(alias) for alias, name in own]
    )


def is_of_the_declaration(reason: "Column") -> "Column":
    """Whether the declaration gave this reason, so that another one may find a row in the line's text; any other text may be cut short."""
    return (
        reason.isin(_NOT_JSON, UNFIT)
        | reason.startswith(_MISSING)
        | reason.startswith(_EMPTY)
        | reason.startswith(_UNKNOWN)
    )


def with_undeclared(
    lines: "DataFrame", landing: Landing, added: Sequence[AddedColumn], lenient: "Column | None"
) -> "DataFrame":
    """The lines with their undeclared fields parsed. `lenient` is the text of lines that are no strict JSON, which Spark alone can read."""
    if lenient is not None:
        beside = _members(lenient, lambda name: ~name.isin(*field_names(landing.schema)))
        lines = lines.withColumn(UNDECLARED, F.coalesce(UNDECLARED, F.nullif(beside, F.lit("{}"))))
    columns = [f"{statements.quote(column.name)} {column.type}" for column in _typed(added)]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _ADDED_CORRUPT}
    return lines.withColumn(
        _ADDED, F.from_json(UNDECLARED, ", ".join([*columns, f"{_ADDED_CORRUPT} STRING"]), options)
    )


def undeclared_columns(landing: Landing, added: Sequence[AddedColumn]) -> "list[Column]":
    """The added columns, then what is left, and the JSON of all of it."""
    names, rest = [column.name for column in _typed(added)], _rest(added)
    left: Column = F.lit(None).cast("string")
    if landing.new_columns != "refuse":
        all_left = F.when(F.size(rest) == F.size(F.json_object_keys(UNDECLARED)), F.col(UNDECLARED))
        left = all_left.when(
            F.size(rest) > 0, _members(F.col(UNDECLARED), lambda name: ~name.isin(*names))
        )
    return [
        *[F.col(f"{_ADDED}.{statements.quote(name)}").alias(name) for name in names],
        left.alias(RESCUED),
        F.col(UNDECLARED),
    ]


def undeclared_names(added: Sequence[AddedColumn]) -> list[str]:
    """The names of `undeclared_columns`."""
    return [*(column.name for column in _typed(added)), RESCUED, UNDECLARED]


def why_unfit(why: "Column", landing: Landing, added: Sequence[AddedColumn]) -> "Column":
    """The reasons for which undeclared fields make a line no row, after those of `why`."""
    rest = _rest(added)
    if landing.new_columns == "refuse":
        why = why.when(F.size(rest) > 0, F.concat(F.lit(_UNKNOWN), F.array_join(rest, ", ")))
    for name in [column.name for column in added if column.type == "DOUBLE"]:
        why = why.when(
            is_too_large(F.col(UNDECLARED), name, F.col(f"{_ADDED}.{statements.quote(name)}")),
            UNFIT,
        )
    return why.when(F.col(f"{_ADDED}.{_ADDED_CORRUPT}").isNotNull(), UNFIT)


def without_rescued(
    lines: "DataFrame", added: Sequence[AddedColumn], rescued_count: int, snapshot: Snapshot | None
) -> "DataFrame":
    """The lines as the table has their columns, which gets the one for the rest with the first row that has any."""
    is_there = snapshot is not None and any(column.name == RESCUED for column in snapshot.columns)
    return (
        lines
        if rescued_count or is_there or any(column.name == RESCUED for column in added)
        else lines.drop(RESCUED)
    )


def _parsed(landing: Landing) -> "Column":
    schema = f"{landing.schema}, {CORRUPT} STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    if not landing.records_are_csv:
        # Without this a text of digits in a nested DATE is the number of a day. Source: Spark's JacksonParser, DateType
        return F.from_json(RAW, schema, {**options, "enableDateTimeParsingFallback": "false"})
    return F.from_csv(F.col(RAW), schema, {**options, **_csv_options(landing)})


def _csv_options(landing: Landing) -> dict[str, str]:
    # RFC 4180, section 2.7: a quote inside quotes is doubled. `multiLine`: line breaks inside quotes stay as they are.
    options = {
        "sep": landing.delimiter,
        "quote": landing.quote,
        "escape": landing.quote,
        "multiLine": "true",
    }
    return options if landing.null_value is None else {**options, "nullValue": landing.null_value}


def _texts(landing: Landing, types: Mapping[str, str]) -> "Column":
    """The values of these columns as texts; null for a line in which none can be misread."""
    if landing.records_are_csv:
        texts = F.from_csv(
            F.col(RAW), _ddl_of_texts(field_names(landing.schema)), _csv_options(landing)
        )
    else:
        texts = F.from_json(RAW, _ddl_of_texts(types), {"mode": "PERMISSIVE"})
    return F.when(is_suspect(F.col(RAW), F.col(IS_OBJECT), types, landing), texts)


def _filled(landing: Landing) -> "Column":
    """The fields as texts, each null that holds nothing; null for a line in which none does."""
    sign = f"\\Q{landing.delimiter}\\E"
    texts = F.from_csv(
        F.col(RAW),
        _ddl_of_texts(field_names(landing.schema)),
        _csv_options(replace(landing, null_value="")),
    )
    return F.when(F.col(RAW).rlike(f"(?:^|{sign})(?:{sign}|$)"), texts)


def _ddl_of_texts(names: Iterable[str]) -> str:
    return ", ".join(f"{statements.quote(name)} STRING" for name in names)


def _text(name: str) -> "Column":
    return F.col(f"{_TEXTS}.{statements.quote(name)}")


def _value(name: str) -> "Column":
    return F.col(f"_parsed.{statements.quote(name)}")


def _field(name: str, landing: Landing, lines: "DataFrame") -> "Column":
    value = _value(name)
    if (
        not landing.records_are_csv
        and landing.null_value is not None
        and lines.select(value).schema[0].dataType.typeName() == "string"
    ):
        value = F.nullif(value, F.lit(landing.null_value))
    if landing.keeps_empty_texts and dict(field_types(landing.schema))[
        name
    ].strip().upper().startswith("STRING"):
        # Spark reads a field that holds nothing as null, whatever `nullValue` is. Source: Spark's CSVOptions, asParserSettings
        is_empty = (
            F.col(_FILLED).isNotNull() & F.col(f"{_FILLED}.{statements.quote(name)}").isNull()
        )
        value = F.when(is_empty, F.lit("")).otherwise(value)
    return value.alias(name)


def _why_not_a_row(landing: Landing, added: Sequence[AddedColumn]) -> "Column":
    why = F.when(F.col(REASON).isNotNull(), F.col(REASON))
    if not landing.records_are_csv:
        why = why.when(~F.col(IS_OBJECT) & ~is_one_object(), _NOT_JSON)
    why = why.when(F.col("_parsed").isNull() | F.col(f"_parsed.{CORRUPT}").isNotNull(), UNFIT)
    why = why_misread(why, landing, F.col(RAW), _text, _value)
    why = why_unfit(why, landing, added)
    for name in landing.required:
        value = _value(name)
        is_null_word = (
            F.lit(False)
            if landing.null_value is None
            else value.cast("string") == F.lit(landing.null_value)
        )
        why = why.when(value.isNull() | is_null_word, f"{_MISSING}{name} is missing")
    return why


def is_one_object() -> "Column":
    """Whether a line that is no strict JSON is one object for Spark, which takes single quotes, and nothing behind it.

    Spark's parser stops where the object ends, and what follows, perhaps a second object, would be lost without a word. Inside brackets of
    two kinds nothing can follow: what closes the one early does not fit the other.
    """
    in_array = F.json_array_length(F.concat(F.lit("["), F.col(RAW), F.lit("]")))
    in_object = F.json_array_length(F.concat(F.lit('[{"x":'), F.col(RAW), F.lit("}]")))
    is_object = F.ltrim(RAW).startswith("{") & (in_array == 1) & (in_object == 1)
    return F.coalesce(is_object, F.lit(False))


def _typed(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [column for column in added if column.name != RESCUED]


def _rest(added: Sequence[AddedColumn]) -> "Column":
    """The names of fields that have no column; null where a line has none."""
    names = F.array(*[F.lit(column.name) for column in _typed(added)]).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)


def _members(text: "Column", is_wanted: "Callable[[Column], Column]") -> "Column":
    """Members of a JSON object as another, null left out. Values keep their types, unless an object inside has a key twice."""
    typed = F.map_filter(
        F.from_json(text, "MAP<STRING, VARIANT>"),
        lambda name, value: is_wanted(name) & ~F.is_variant_null(value),
    )
    texts = F.map_filter(
        F.from_json(text, "MAP<STRING, STRING>"),
        lambda name, value: is_wanted(name) & value.isNotNull(),
    )
    return F.coalesce(F.to_json(typed), F.to_json(texts))
