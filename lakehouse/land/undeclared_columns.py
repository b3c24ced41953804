"""Columns for fields that a landing's schema does not name: one per added column, one for the rest.

Staging puts all these fields of a record into one JSON object, which is parsed here.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.delta.snapshot import Snapshot
from lakehouse.land.plan.records import UNFIT
from lakehouse.land.plan.undeclared import RESCUED, AddedColumn
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNDECLARED = "_lakehouse_undeclared"
UNKNOWN = "the schema does not name "
_ADDED = "_lakehouse_added"
_ADDED_CORRUPT = "_lakehouse_added_corrupt"


def with_undeclared(lines: "DataFrame", added: Sequence[AddedColumn]) -> "DataFrame":
    """The records with their undeclared fields parsed, for the other functions of this module."""
    columns = [f"{quote(column.name)} {column.type}" for column in _typed(added)]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _ADDED_CORRUPT}
    ddl = ", ".join([*columns, f"{_ADDED_CORRUPT} STRING"])
    return lines.withColumn(_ADDED, evaluated_once(F.from_json(UNDECLARED, ddl, options)))


def undeclared_columns(landing: Landing, added: Sequence[AddedColumn]) -> "list[Column]":
    """The added columns, then two JSON columns of a record's undeclared fields.

    The first has the fields without an added column. It is null if there are none, or if they make
    a record bad. The second has all undeclared fields.
    """
    names = [column.name for column in _typed(added)]
    rest = _rest(added)
    rescued: Column = F.lit(None).cast("string")
    if landing.new_columns != "refuse":
        # If no field has a column, the text is kept as it is.
        is_whole = F.size(rest) == F.size(F.json_object_keys(UNDECLARED))
        rest_members = _members(F.col(UNDECLARED), lambda name: ~name.isin(*names))
        rescued = F.when(is_whole, F.col(UNDECLARED)).when(F.size(rest) > 0, rest_members)
    return [
        *[_added_value(name).alias(name) for name in names],
        rescued.alias(RESCUED),
        F.col(UNDECLARED),
    ]


def no_undeclared(added: Sequence[AddedColumn]) -> "list[Column]":
    """The columns that `undeclared_columns` returns, for records without undeclared fields."""
    types = {column.name: column.type for column in _typed(added)}
    types |= {RESCUED: "string", UNDECLARED: "string"}
    return [F.lit(None).cast(type_).alias(name) for name, type_ in types.items()]


def undeclared_names(added: Sequence[AddedColumn]) -> list[str]:
    """The names of the columns that `undeclared_columns` returns."""
    return [*(column.name for column in _typed(added)), RESCUED, UNDECLARED]


def why_undeclared_unfit(why: "Column", landing: Landing, added: Sequence[AddedColumn]) -> "Column":
    """Extends `why`, a chain of `when`, by the reasons why undeclared fields make a record bad."""
    rest = _rest(added)
    if landing.new_columns == "refuse":
        why = why.when(F.size(rest) > 0, F.concat(F.lit(UNKNOWN), F.array_join(rest, ", ")))
    for column in added:
        if column.type == "DOUBLE":  # Spark reads a number that is too large as infinite
            why = why.when(F.abs(_added_value(column.name)) == F.lit(inf), UNFIT)
    return why.when(_added_value(_ADDED_CORRUPT).isNotNull(), UNFIT)


def without_rescued(
    lines: "DataFrame", added: Sequence[AddedColumn], rescued_count: int, snapshot: Snapshot | None
) -> "DataFrame":
    """Drops the column of rescued fields if it is not needed.

    It is needed if a row has a value in it, or if the table or `added` has it.
    """
    columns = () if snapshot is None else snapshot.columns
    is_in_table = any(column.name == RESCUED for column in columns)
    is_added = any(column.name == RESCUED for column in added)
    return lines if rescued_count or is_in_table or is_added else lines.drop(RESCUED)


def _added_value(name: str) -> "Column":
    return F.col(f"{_ADDED}.{quote(name)}")


def _typed(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [column for column in added if column.name != RESCUED]


def _rest(added: Sequence[AddedColumn]) -> "Column":
    """The names of fields that have no column; null if a record has no undeclared fields."""
    names = F.array(*[F.lit(column.name) for column in _typed(added)]).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)


def _members(text: "Column", is_wanted: "Callable[[Column], Column]") -> "Column":
    """The wanted members of a JSON object, without nulls, as a new JSON object.

    Values keep their types, unless a nested object has a duplicate key. All values are then texts.
    """
    typed = F.map_filter(
        F.from_json(text, "MAP<STRING, VARIANT>"),
        lambda name, value: is_wanted(name) & ~F.is_variant_null(value),
    )
    texts = F.map_filter(
        F.from_json(text, "MAP<STRING, STRING>"),
        lambda name, value: is_wanted(name) & value.isNotNull(),
    )
    return F.coalesce(F.to_json(typed), F.to_json(texts))
