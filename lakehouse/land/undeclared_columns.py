"""Columns for fields that a landing's schema does not name: one per added column, one for the rest.

Staging puts all these fields of a record into one JSON object, which is parsed here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.delta.snapshot import Snapshot
from lakehouse.land.plan.records import UNFIT
from lakehouse.land.plan.undeclared import RESCUED
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def with_undeclared(lines: "DataFrame") -> "DataFrame":
    """The records with their undeclared fields parsed, for the other functions of this module."""
    parsed = F.from_json(UNDECLARED, "MAP<STRING, VARIANT>")
    return lines.withColumn(_PARSED, evaluated_once(parsed))


def undeclared_columns(landing: Landing, added: Sequence[str]) -> "list[Column]":
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
    values = [_added_value(name).alias(name) for name in added if name != RESCUED]
    return [*values, rescued.alias(RESCUED), F.col(UNDECLARED)]


def no_undeclared(added: Sequence[str]) -> "list[Column]":
    """The columns that `undeclared_columns` returns, for records without undeclared fields."""
    return [F.lit(None).cast("string").alias(name) for name in undeclared_names(added)]


def undeclared_names(added: Sequence[str]) -> list[str]:
    """The names of the columns that `undeclared_columns` returns."""
    return [*(name for name in added if name != RESCUED), RESCUED, UNDECLARED]


def why_undeclared_unfit(why: "Column", landing: Landing, added: Sequence[str]) -> "Column":
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
    return F.rlike(sent, F.lit(_MAY_BE_ROUNDED)) & F.exists(
        numbers, lambda number: ~F.contains(kept_text, number)
    )


def without_strings(text: "Column") -> "Column":
    """A JSON text with empty strings."""
    without_escapes = F.regexp_replace(text, F.lit(r"\\."), F.lit(""))
    return F.regexp_replace(without_escapes, F.lit('"[^"]*"'), F.lit('""'))


def _added_value(name: str) -> "Column":
    """The text of an undeclared field, as JSON if it is no string; null if it is missing."""
    return F.try_variant_get(F.try_element_at(_PARSED, F.lit(name)), "$", "string")


def _rest(added: Sequence[str]) -> "Column":
    """The names of fields that have no column; null if a record has no undeclared fields."""
    names = F.array(*map(F.lit, added)).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)
