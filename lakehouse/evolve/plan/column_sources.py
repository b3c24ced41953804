"""Maps each declared column of a table to the existing column that supplies its values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse.declare.change_sources import HISTORY_COLUMNS
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import History, Overwrite
from lakehouse.delta.column_names import field_types
from lakehouse.delta.column_types import is_nested, parts, type_change
from lakehouse.delta.snapshot import Column, Snapshot
from lakehouse.evolve.plan.changes import compare

# Spark's simple string for each type name in DDL; decimals are handled separately.
# Source: Spark's SQL reference, "Data Types"
_SIMPLE = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}
_TYPE = re.compile(r"(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DECIMALS = ("decimal", "dec", "numeric")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSource:
    """A column of the rebuilt table, and the existing column that supplies its values.

    `source` is `None` for a new column. A derived column has an `expression` over the rebuilt
    columns, for the rows without a value. Other new columns are null in all rows.
    """

    column: Column
    source: str | None
    expression: str = ""


def declared_sources(
    table: Table, columns: Sequence[Column], snapshot: Snapshot
) -> tuple[ColumnSource, ...]:
    """The declared columns with their sources, then existing columns that are not declared.

    The source of a renamed column has the earlier name. A declared name also matches an existing
    name that differs only in upper and lower case. If the declared type is empty (unknown), or the
    declared description is empty, the existing one is kept.
    """
    existing = {column.name: column for column in snapshot.columns}
    derived = {} if table.source is None else table.source.derived
    spellings = {name.lower(): name for name in existing}
    source_names = dict[str, str]()
    for change in compare(table, columns, snapshot).changes:
        # `before` is the earlier name of a renamed column. For any other column in the table, it is
        # the column's own name.
        if change.column is not None and change.before in existing:
            source_names[change.column.name] = change.before
    sources = list[ColumnSource]()
    for declared in columns:
        expression = derived.get(declared.name, "")
        name = source_names.get(declared.name) or spellings.get(declared.name.lower())
        if name is None:
            sources.append(ColumnSource(column=declared, source=None, expression=expression))
            continue
        present = existing[name]
        type_ = declared.type or present.type
        if not isinstance(table.write, Overwrite):  # an Overwrite keeps only what is declared
            type_ = type_change(present.type, type_).merged
        comment = declared.comment or present.comment
        column = replace(declared, type=type_, comment=comment)
        sources.append(ColumnSource(column=column, source=name, expression=expression))
    used_names = {each.source for each in sources}
    unused = [each for each in present_columns(snapshot) if each.source not in used_names]
    return (*sources, *unused)


def columns_without_spark(
    table: Table, snapshot: Snapshot, added: Iterable[str] = ()
) -> tuple[Column, ...] | None:
    """The declared columns of a landed table; `None` for a derived table.

    The type of a derived column is empty, since it is unknown without Spark. Columns that
    the lake adds (names that begin with `_`, and those of `History`) and columns `added` for
    undeclared fields are taken unchanged from the table.
    """
    if table.source is None:
        return None
    types = {name: simple_type(text) for name, text in field_types(table.source.schema)}
    names = table.source.column_names
    kept_names = {*added}
    if isinstance(table.write, History):
        kept_names.update(HISTORY_COLUMNS)
    declared = [Column(name=name, type=types.get(name, "")) for name in names]
    undeclared = [column for column in snapshot.columns if column.name not in names]
    kept = [
        column for column in undeclared if column.name.startswith("_") or column.name in kept_names
    ]
    return (*declared, *kept)


def simple_type(ddl: str) -> str:
    """Spark's simple string of a type in DDL; empty if the type is unknown."""
    text = ddl.strip()
    if is_nested(text):
        return _simple_nested(text)
    match = _TYPE.match(text)
    if match is None or text.startswith("<", match.end()):
        return ""
    word = match[1].lower()
    if word in _DECIMALS:
        return f"decimal({match[2] or 10},{match[3] or 0})"
    # Of the types that are known here, only decimals have parameters.
    return "" if match[2] else _SIMPLE.get(word, "")


def _simple_nested(ddl: str) -> str:
    """`simple_type` of a struct, an array or a map."""
    word = ddl.partition("<")[0].strip().lower()
    types = {name: simple_type(text) for name, text in parts(ddl).items()}
    if not types or not all(types.values()):
        return ""
    if word == "struct":
        return f"struct<{','.join(f'{name}:{type_}' for name, type_ in types.items())}>"
    return f"{word}<{','.join(types.values())}>"


def present_columns(snapshot: Snapshot) -> tuple[ColumnSource, ...]:
    """The table's existing columns, each with itself as the source."""
    return tuple(ColumnSource(column=each, source=each.name) for each in snapshot.columns)


def breaks_change_feed(columns: Sequence[ColumnSource], snapshot: Snapshot) -> bool:
    """Whether these columns make the change data feed of earlier versions unreadable.

    The feed stays readable only if no existing column is dropped, renamed or given another type.
    Source: delta-io/delta v4.4.0, SchemaUtils.isReadCompatible.
    """
    types = {each.column.name: each.column.type for each in columns}
    return any(types.get(each.name) != each.type for each in snapshot.columns)


def is_cast(each: ColumnSource, snapshot: Snapshot) -> bool:
    """Whether the column takes the values of an existing column that has another type."""
    types = {column.name: column.type for column in snapshot.columns}
    return each.source is not None and types[each.source] != each.column.type


def change_texts(columns: Sequence[ColumnSource], snapshot: Snapshot) -> list[str]:
    """A phrase for each column that is added, renamed, dropped or given another type."""
    types = {column.name: column.type for column in snapshot.columns}
    changes = list[str]()
    for each in columns:
        name = each.column.name
        type_ = each.column.type
        if each.source is None:
            values = "with null in all rows"
            if each.expression:
                values = f"computed as {each.expression}"
            changes.append(f"{name} ({type_}) is added, {values}")
            continue
        if each.source != name:
            changes.append(f"{each.source} is renamed to {name}")
        if types[each.source] != type_:
            changes.append(f"the type of {name} changes from {types[each.source]} to {type_}")
        if each.expression:
            changes.append(f"{name} is computed as {each.expression} where it is null")
    kept = {each.source for each in columns}
    changes += [f"{name} is dropped" for name in types if name not in kept]
    return changes
