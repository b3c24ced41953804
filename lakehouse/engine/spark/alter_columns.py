"""SQL statements that change the columns of a table, but not its rows."""

from collections.abc import Mapping, Sequence

from lakehouse.core.evolution.plan import NewColumn
from lakehouse.engine.spark.statements import literal, path_table, quote


def add_columns(uri: str, columns: Sequence[NewColumn], types: Mapping[str, str]) -> str:
    """Adds columns at their positions, with their comments; `types` maps names to DDL types."""
    listed = ", ".join(_definition(each, types[each.name]) for each in columns)
    return f"ALTER TABLE {path_table(uri)} ADD COLUMNS ({listed})"


def _definition(new: NewColumn, type_: str) -> str:
    comment = f" COMMENT {literal(new.column.comment)}" if new.column.comment else ""
    position = "FIRST" if new.after is None else f"AFTER {quote(new.after)}"
    name = ".".join(map(quote, (*new.parent, new.column.name)))
    return f"{name} {type_}{comment} {position}"


def comment_on_column(uri: str, name: str, comment: str) -> str:
    """Sets the description of a column."""
    column = f"ALTER COLUMN {quote(name)} COMMENT {literal(comment)}"
    return f"ALTER TABLE {path_table(uri)} {column}"


def rename_column(uri: str, before: str, after: str) -> str:
    """Renames a column of a table with column mapping."""
    return f"ALTER TABLE {path_table(uri)} RENAME COLUMN {quote(before)} TO {quote(after)}"


def widen_column(uri: str, name: str, type_: str) -> str:
    """Widens the type of a column of a table with type widening."""
    return f"ALTER TABLE {path_table(uri)} ALTER COLUMN {quote(name)} TYPE {type_}"


def drop_column(uri: str, name: str) -> str:
    """Drops a column of a table with column mapping."""
    return f"ALTER TABLE {path_table(uri)} DROP COLUMN {quote(name)}"
