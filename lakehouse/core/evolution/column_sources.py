"""Maps each declared column of a table to the present column that has its values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.declaration.change_sources import HISTORY_COLUMNS
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import History
from lakehouse.core.delta.snapshot import Column, Snapshot
from lakehouse.core.evolution.declaration_changes import compare

# Spark's simple string for each type name in DDL. Source: Spark's SQL reference, "Data Types"
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
    """A column of the rebuilt table, and the present column that has its values.

    `source` is `None` for a new column, which is null in all rows.
    """

    column: Column
    source: str | None


def declared_sources(
    table: Table, columns: Sequence[Column], snapshot: Snapshot
) -> tuple[ColumnSource, ...]:
    """The declared columns with their sources, then present columns that are no longer declared.

    If the declared type is empty (unknown), the present type is kept. A declared name may differ
    from the present one in case.
    """
    existing = {column.name: column for column in snapshot.columns}
    spellings = {name.lower(): name for name in existing}
    changes = compare(table, columns, snapshot).changes
    renamed = {
        change.column.name: change.before
        for change in changes
        if change.column is not None and change.before in existing
    }
    sources = list[ColumnSource]()
    for column in columns:
        source = renamed.get(column.name) or spellings.get(column.name.lower(), "")
        present = existing.get(source)
        if present is not None:
            comment = column.comment or present.comment
            column = replace(column, type=column.type or present.type, comment=comment)
        sources.append(ColumnSource(column=column, source=source if present else None))
    used = {each.source for each in sources}
    return (*sources, *[each for each in present_columns(snapshot) if each.source not in used])


def columns_without_spark(
    table: Table, snapshot: Snapshot, added: Iterable[str] = ()
) -> tuple[Column, ...] | None:
    """The declared columns of a landed table; `None` for a table whose schema is not declared.

    The type of a derived or nested column is empty, since it is unknown without Spark. Columns of
    the lake itself, and columns `added` for undeclared fields, are returned as the table has them.
    """
    if table.source is None or table.source.schema is None:
        return None
    types = {name: simple_type(text) for name, text in field_types(table.source.schema)}
    names = table.source.column_names
    history = HISTORY_COLUMNS if isinstance(table.write, History) else ()
    others = {*added, *history}
    own = [
        column
        for column in snapshot.columns
        if column.name not in names and (column.name.startswith("_") or column.name in others)
    ]
    return (*[Column(name=name, type=types.get(name, "")) for name in names], *own)


def simple_type(ddl: str) -> str:
    """Spark's simple string of a type in DDL; empty if the type is nested or unknown."""
    match = _TYPE.match(ddl.strip())
    if match is None or ddl.strip()[match.end() : match.end() + 1] == "<":
        return ""
    word = match[1].lower()
    if word in _DECIMALS:
        return f"decimal({match[2] or 10},{match[3] or 0})"
    return "" if match[2] else _SIMPLE.get(word, "")


def present_columns(snapshot: Snapshot) -> tuple[ColumnSource, ...]:
    """The table's present columns, each with itself as the source."""
    return tuple(ColumnSource(column=each, source=each.name) for each in snapshot.columns)


def is_other_schema(columns: Sequence[ColumnSource], snapshot: Snapshot) -> bool:
    """Whether the change data feed of earlier versions cannot be read under these columns.

    Source: delta-io/delta v4.4.0, SchemaUtils.isReadCompatible: only columns may be added.
    """
    after = {each.column.name: each.column.type for each in columns}
    return any(after.get(each.name) != each.type for each in snapshot.columns)


def is_cast(each: ColumnSource, snapshot: Snapshot) -> bool:
    """Whether the values of the column get another type."""
    types = {column.name: column.type for column in snapshot.columns}
    return each.source is not None and types[each.source] != each.column.type


def described(columns: Sequence[ColumnSource], snapshot: Snapshot) -> list[str]:
    """A text for each change of the columns."""
    types = {column.name: column.type for column in snapshot.columns}
    changes = list[str]()
    for each in columns:
        name = each.column.name
        type_ = each.column.type
        if each.source is None:
            changes.append(f"{name} ({type_}) is new, and null")
            continue
        if each.source != name:
            changes.append(f"{each.source} becomes {name}")
        if types[each.source] != type_:
            changes.append(f"{name} becomes {type_} (now {types[each.source]})")
    kept = {each.source for each in columns}
    changes += [f"{name} is dropped" for name in types if name not in kept]
    return changes
