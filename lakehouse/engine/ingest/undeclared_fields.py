"""The fields that a declaration does not name, as columns: those that were added to the table, and one with the rest."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.declaration.column_names import field_names
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn
from lakehouse.engine.ingest.misread import is_too_large
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNDECLARED = "_lakehouse_undeclared"
UNKNOWN_FIELD = "the schema does not name "
_ADDED, _CORRUPT = "_lakehouse_added", "_lakehouse_added_corrupt"


def with_undeclared(lines: "DataFrame", landing: Landing, added: Sequence[AddedColumn], lenient: "Column | None") -> "DataFrame":
    """The lines with their undeclared fields parsed. `lenient` is the text of lines that are no strict JSON, which Spark alone can read."""
    if lenient is not None:
        beside = _members(lenient, lambda name: ~name.isin(*field_names(landing.schema)))
        lines = lines.withColumn(UNDECLARED, F.coalesce(UNDECLARED, F.nullif(beside, F.lit("{}"))))
    columns = [f"{statements.quote(column.name)} {column.type}" for column in _typed(added)]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return lines.withColumn(_ADDED, F.from_json(UNDECLARED, ", ".join([*columns, f"{_CORRUPT} STRING"]), options))


def undeclared_columns(landing: Landing, added: Sequence[AddedColumn]) -> "list[Column]":
    """The added columns, then what is left, and the JSON of all of it."""
    names, rest = [column.name for column in _typed(added)], _rest(added)
    left: Column = F.lit(None).cast("string")
    if landing.new_columns != "refuse":
        all_left = F.when(F.size(rest) == F.size(F.json_object_keys(UNDECLARED)), F.col(UNDECLARED))
        left = all_left.when(F.size(rest) > 0, _members(F.col(UNDECLARED), lambda name: ~name.isin(*names)))
    return [*[F.col(f"{_ADDED}.{statements.quote(name)}").alias(name) for name in names], left.alias(RESCUED), F.col(UNDECLARED)]


def undeclared_names(added: Sequence[AddedColumn]) -> list[str]:
    """The names of `undeclared_columns`."""
    return [*(column.name for column in _typed(added)), RESCUED, UNDECLARED]


def why_unfit(why: "Column", landing: Landing, added: Sequence[AddedColumn], unfit: str) -> "Column":
    """The reasons for which undeclared fields make a line no row, after those of `why`."""
    rest = _rest(added)
    if landing.new_columns == "refuse":
        why = why.when(F.size(rest) > 0, F.concat(F.lit(UNKNOWN_FIELD), F.array_join(rest, ", ")))
    for name in [column.name for column in added if column.type == "DOUBLE"]:
        why = why.when(is_too_large(F.col(UNDECLARED), name, F.col(f"{_ADDED}.{statements.quote(name)}")), unfit)
    return why.when(F.col(f"{_ADDED}.{_CORRUPT}").isNotNull(), unfit)


def without_rescued(lines: "DataFrame", added: Sequence[AddedColumn], rescued_count: int, snapshot: Snapshot | None) -> "DataFrame":
    """The lines as the table has their columns, which gets the one for the rest with the first row that has any."""
    is_there = snapshot is not None and any(column.name == RESCUED for column in snapshot.columns)
    return lines if rescued_count or is_there or any(column.name == RESCUED for column in added) else lines.drop(RESCUED)


def missing_columns(frame: "DataFrame", added: Sequence[AddedColumn], snapshot: Snapshot | None) -> dict[str, str]:
    """The types of the columns that a table does not have yet and that its load adds to it."""
    there = set() if snapshot is None else {column.name for column in snapshot.columns}
    own = {RESCUED, *(column.name for column in added)} - there
    return {} if snapshot is None else {field.name: field.dataType.simpleString() for field in frame.schema.fields if field.name in own}


def _typed(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [column for column in added if column.name != RESCUED]


def _rest(added: Sequence[AddedColumn]) -> "Column":
    """The names of fields that have no column; null where a line has none."""
    names = F.array(*[F.lit(column.name) for column in _typed(added)]).cast("array<string>")
    return F.array_except(F.json_object_keys(UNDECLARED), names)


def _members(text: "Column", is_wanted: "Callable[[Column], Column]") -> "Column":
    """Members of a JSON object as another, null left out. Values keep their types, unless an object inside has a key twice."""
    typed = F.map_filter(F.from_json(text, "MAP<STRING, VARIANT>"), lambda name, value: is_wanted(name) & ~F.is_variant_null(value))
    texts = F.map_filter(F.from_json(text, "MAP<STRING, STRING>"), lambda name, value: is_wanted(name) & value.isNotNull())
    return F.coalesce(F.to_json(typed), F.to_json(texts))
