"""The columns of a landed table's declaration, as far as they are known without Spark."""

import re
from collections.abc import Iterable

from lakehouse.core.declaration.change_sources import HISTORY_COLUMNS
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import History
from lakehouse.core.delta.snapshot import Column, Snapshot

# Spark's simple strings of type names in DDL. Source: Spark's SQL reference, "Data Types"
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


def columns_without_spark(
    table: Table, snapshot: Snapshot, added: Iterable[str] = ()
) -> tuple[Column, ...] | None:
    """The declared columns of a landed table; `None` for a table whose schema is not declared.

    The type of a derived or nested column is unknown, and so empty. The lake's own columns, and
    those that were `added` for undeclared fields, are taken from the table.
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
    """Spark's simple string of a type in DDL; empty if it is nested or not known here."""
    match = _TYPE.match(ddl.strip())
    if match is None or ddl.strip()[match.end() : match.end() + 1] == "<":
        return ""
    word = match[1].lower()
    if word in _DECIMALS:
        return f"decimal({match[2] or 10},{match[3] or 0})"
    return "" if match[2] else _SIMPLE.get(word, "")
