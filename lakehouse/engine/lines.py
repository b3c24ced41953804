"""Landed files as lines, and lines as rows or as reasons why they are none."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.core.columns import field_names
from lakehouse.core.table import Landing
from lakehouse.engine import sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CORRUPT = "_lakehouse_corrupt"
_RAW = "_lakehouse_raw"
_REASON = "_lakehouse_reason"
_GLOB = re.compile(r"[\[\]{}*?\\]")  # Spark takes a path with these for a pattern, and with a backslash before each for a name
_OWN = ("_source_file", "_source_line", "_landed_at")


def read_lines(spark: "SparkSession", landing: Landing, *, root: str, names: Sequence[str]) -> "DataFrame":
    """One row per line that is not blank: the fields, derived columns, where it came from, its text, and a reason if it is no row.

    `names` are relative to `root`, as Spark spells it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    numbered = _numbered(spark, root=root, names=names)
    lines = _without_headers(numbered, landing) if landing.format == "csv" else numbered.withColumn(_REASON, F.lit(None).cast("string"))
    lines = lines.where(F.trim(_RAW) != "").withColumn("_parsed", _parsed(landing))
    fields = field_names(landing.schema)
    spread = lines.select(*[_field(name, landing, lines) for name in fields], *_OWN, _RAW, _why_not_a_row(landing).alias(_REASON))
    derived = [F.expr(expression).alias(name) for name, expression in landing.derived.items()]
    return spread.select(*[F.col(sql.quote(name)) for name in fields], *derived, *_OWN, _RAW, _REASON)


def table_rows(lines: "DataFrame", landing: Landing) -> "DataFrame":
    """The lines that are rows, with the columns of the table."""
    return lines.where(f"{_REASON} IS NULL").select(*[sql.quote(name) for name in landing.column_names], *_OWN)


def quarantined_lines(lines: "DataFrame", *, batch: int) -> "DataFrame":
    """The lines that are no rows, with the columns of a quarantine table."""
    from pyspark.sql import functions as F  # noqa: N812

    return lines.where(f"{_REASON} IS NOT NULL").select(
        F.col("_source_file").alias("source_file"),
        F.col("_source_line").alias("line"),
        F.col(_REASON).alias("reason"),
        F.col(_RAW).alias("raw"),
        F.lit(batch).cast("bigint").alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )


def literal_path(path: str) -> str:
    """A path as Spark's file readers take it for itself and not for a pattern."""
    return _GLOB.sub(r"\\\g<0>", path)


def _numbered(spark: "SparkSession", *, root: str, names: Sequence[str]) -> "DataFrame":
    """Every line with its file and its number there, counted from 1.

    A file may be read in several parts, and a part's lines are in order: so where the part starts, and then the order within the
    task, number them, without a file ever being in memory as a whole.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    text = spark.read.text([literal_path(f"{root}/{name}") for name in names])
    lines = text.select(
        F.col("value").alias(_RAW),
        F.col("_metadata.file_path").alias("_path"),
        F.col("_metadata.file_block_start").alias("_start"),
        F.monotonically_increasing_id().alias("_place"),
        F.col("_metadata.file_modification_time").alias("_landed_at"),
    )
    number = F.row_number().over(Window.partitionBy("_path").orderBy("_start", "_place"))
    # The path is a URI, in which a plus means a plus.
    decoded = F.url_decode(F.replace("_path", F.lit("+"), F.lit("%2B")))
    inside = F.lit(f"{root}/")
    name = F.substring(decoded, F.locate(f"{root}/", decoded) + F.length(inside), F.lit(2**31 - 1))
    return lines.withColumn("_source_line", number.cast("bigint")).withColumn("_source_file", name)


def _without_headers(lines: "DataFrame", landing: Landing) -> "DataFrame":
    """CSV lines below a header that names the schema's fields in order; of another file only its first line is left, as a reason."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    wanted = ",".join(field_names(landing.schema))
    first = F.first_value(_RAW).over(Window.partitionBy("_path").orderBy("_source_line"))
    found = F.array_join(F.transform(F.split(first, ","), lambda part: F.trim(part, F.lit('" \t'))), ",")
    reason = F.lit(f"the header is not {wanted}: no line of this file was read")
    checked = lines.withColumn("_is_ours", found == F.lit(wanted))
    kept = F.col("_is_ours") & (F.col("_source_line") > 1) | ~F.col("_is_ours") & (F.col("_source_line") == 1)
    return checked.where(kept).withColumn(_REASON, F.when(~F.col("_is_ours"), reason)).drop("_is_ours")


def _parsed(landing: Landing) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    schema = f"{landing.schema}, {_CORRUPT} STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if landing.format == "json":
        return F.from_json(_RAW, schema, options)
    options |= {"escape": '"'}  # RFC 4180, section 2.7: a quote inside quotes is doubled
    return F.from_csv(F.col(_RAW), schema, options if landing.null_value is None else {**options, "nullValue": landing.null_value})


def _field(name: str, landing: Landing, lines: "DataFrame") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(f"_parsed.{sql.quote(name)}")
    if landing.format == "json" and landing.null_value is not None and lines.select(value).schema[0].dataType.typeName() == "string":
        value = F.nullif(value, F.lit(landing.null_value))
    return value.alias(name)


def _why_not_a_row(landing: Landing) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    why = F.when(F.col(_REASON).isNotNull(), F.col(_REASON))
    if landing.format == "json":
        why = why.when(~_is_one_object(), "not JSON")
    why = why.when(F.col(f"_parsed.{_CORRUPT}").isNotNull(), "a field does not fit the schema")
    for name in landing.required:
        why = why.when(_field_is_missing(name, landing), f"required field {name} is missing")
    return why


def _field_is_missing(name: str, landing: Landing) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(f"_parsed.{sql.quote(name)}")
    if landing.null_value is None:
        return value.isNull()
    return value.isNull() | (value.cast("string") == F.lit(landing.null_value))


def _is_one_object() -> "Column":
    """Whether a line is one JSON object and nothing behind it.

    Spark's parser stops where the object ends, and what follows, perhaps a second object, would be lost without a word. Inside brackets of
    two kinds nothing can follow: what closes the one early does not fit the other.
    """
    from pyspark.sql import functions as F  # noqa: N812

    in_array = F.json_array_length(F.concat(F.lit("["), F.col(_RAW), F.lit("]")))
    in_object = F.json_array_length(F.concat(F.lit('[{"x":'), F.col(_RAW), F.lit("}]")))
    is_object = F.ltrim(_RAW).startswith("{") & (in_array == 1) & (in_object == 1)
    return F.coalesce(is_object, F.lit(False))
