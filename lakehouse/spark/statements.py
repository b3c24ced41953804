"""The SQL statements that Spark runs, and the functions that quote names and values in them.

Tables are always addressed by path, as `Lake.table_uri` returns it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from lakehouse.base.errors import Refused
from lakehouse.delta.columns import NewColumn
from lakehouse.delta.partition_values import is_read_as_null
from lakehouse.delta.snapshot import Column, PartitionValues, types_by_name

_TYPE = re.compile(r"[a-z_]+(\(\d+(,\s*\d+)?\))?")
# Includes the dollar, because Spark replaces ${name} by a setting before it parses a statement.
# Source: Spark 4.2.0, VariableSubstitution.scala
_UNSAFE = re.compile(r"[\\'$\x00-\x1f\x7f]")


def quote(name: str) -> str:
    """A name between backticks.

    Raises:
        Refused: the name is empty, or contains NUL, a line break, or `${`, which Spark replaces.
    """
    if not name or set(name) & set("\0\n\r") or "${" in name:
        raise Refused(
            f"the name {name!r} cannot be used in SQL. Use a name without NUL, line breaks and ${{"
        )
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    r"""A string literal that means exactly `text`. Source: Spark's SQL reference, "Literals"."""
    return f"'{_UNSAFE.sub(_escaped, text)}'"


def path_table(uri: str) -> str:
    """The SQL name of the table at a path."""
    return f"delta.{quote(uri)}"


def partition_predicate(columns: Sequence[Column], partitions: Sequence[PartitionValues]) -> str:
    """A condition that holds in exactly these partitions; `columns` include the partition columns.

    Structs are equal if their members are, and null members are equal to each other.
    """
    types = types_by_name(columns)
    names = [quote(name) for name, _ in partitions[0]]
    structs = list[str]()
    for partition in partitions:
        values = [_typed(value, types[name]) for name, value in partition]
        structs.append(f"struct({', '.join(values)})")
    return f"struct({', '.join(names)}) IN ({', '.join(structs)})"


def optimize(uri: str, predicate: str | None, *, zorder_by: Sequence[str] = ()) -> str:
    """Compacts a table, or the part where the predicate holds; with `zorder_by`, by Z-order."""
    ordered = f" ZORDER BY ({', '.join(map(quote, zorder_by))})" if zorder_by else ""
    return f"OPTIMIZE {path_table(uri)}{_where(predicate)}{ordered}"


def purge(uri: str, predicate: str | None) -> str:
    """Rewrites all files with deleted rows, in a table or the part where the predicate holds."""
    return f"REORG TABLE {path_table(uri)}{_where(predicate)} APPLY (PURGE)"


def merge_into(uri: str, source: str, condition: str, action: str) -> str:
    """Merges the view `source` into a table.

    `condition` decides which rows match, over aliases `source` and `target`. `action` begins with
    WHEN.
    """
    return (
        f"MERGE INTO {path_table(uri)} AS target USING {quote(source)} AS source "
        f"ON {condition} {action}"
    )


def upsert(newer: str) -> str:
    """The action of a MERGE that inserts rows with new keys, and replaces rows by newer ones.

    `newer` is the condition under which a source row takes effect.
    """
    return f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def upsert_or_delete(newer: str, *, deleted: str) -> str:
    """As `upsert`, for the newest change of each key. Deletes a row if column `deleted` is true."""
    return (
        f"WHEN MATCHED AND {newer} AND source.{quote(deleted)} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND NOT source.{quote(deleted)} THEN INSERT *"
    )


def upsert_or_mark(newer: str, *, marks_only: str, mark: Sequence[str]) -> str:
    """As `upsert`. If column `marks_only` is true, sets only the columns `mark`."""
    marked = ", ".join(f"{quote(name)} = source.{quote(name)}" for name in mark)
    return (
        f"WHEN MATCHED AND {newer} AND source.{quote(marks_only)} THEN UPDATE SET {marked} "
        f"{upsert(newer)}"
    )


def same_keys(keys: Sequence[str], within: Sequence[str] = ()) -> str:
    """The condition, over aliases `source` and `target`, that two rows have the same keys.

    `within` are conditions that begin with a key. All source rows and all matching rows meet them.
    """
    pairs = [f"target.{quote(key)} <=> source.{quote(key)}" for key in keys]
    return " AND ".join([*pairs, *(f"target.{each}" for each in within)])


def is_newer(order_by: Sequence[str]) -> str:
    """The condition, over aliases `source` and `target`, that a source row is newer."""
    return f"{_ordering('source', order_by)} > {_ordering('target', order_by)}"


def set_properties(uri: str, properties: Mapping[str, str]) -> str:
    """Sets properties of a table."""
    pairs = ", ".join(
        f"{literal(name)} = {literal(value)}" for name, value in sorted(properties.items())
    )
    return f"ALTER TABLE {path_table(uri)} SET TBLPROPERTIES ({pairs})"


def cluster_by(uri: str, columns: Sequence[str]) -> str:
    """Sets the columns of a table's liquid clustering; without columns, ends the clustering."""
    listed = f"({', '.join(map(quote, columns))})" if columns else "NONE"
    return f"ALTER TABLE {path_table(uri)} CLUSTER BY {listed}"


def vacuum_dry_run(uri: str, inventory: str) -> str:
    """Lists the files of the view `inventory` that the table no longer needs.

    Without FULL, Delta may run a LITE vacuum. That would change the version from which the next
    LITE vacuum continues.
    """
    columns = "path, length, isDir, modificationTime"
    listed = f"SELECT {columns} FROM {quote(inventory)}"  # noqa: S608  # it is quoted
    return f"VACUUM {path_table(uri)} FULL USING INVENTORY ({listed}) DRY RUN"


def delete_rows(uri: str, conditions: Sequence[str]) -> str:
    """Deletes the rows for which all of these conditions hold."""
    condition = " AND ".join(f"({each})" for each in conditions)
    return f"DELETE FROM {path_table(uri)} WHERE {condition}"  # noqa: S608  # all are quoted


def is_before(column: Column, time_ms: int) -> str:
    """The condition that a date or timestamp is strictly before a time (UTC).

    A TTL therefore keeps rows of exactly this time. The time is a literal, so that Delta can skip
    files.
    """
    time = datetime(1970, 1, 1) + timedelta(milliseconds=time_ms)  # UTC, without a time zone
    text = {
        "date": f"DATE '{time.date().isoformat()}'",
        "timestamp": f"TIMESTAMP_LTZ '{time.isoformat(sep=' ', timespec='milliseconds')}Z'",
        "timestamp_ntz": f"TIMESTAMP_NTZ '{time.isoformat(sep=' ', timespec='milliseconds')}'",
    }[column.type]
    return f"{quote(column.name)} < {text}"


def merge_lines(uri: str, lines: str, action: str) -> str:
    """Merges the view `lines` (source_file, line, digest) into a quarantine table.

    `action` begins with WHEN, and is over the aliases `source` and `target`.
    """
    condition = (
        "target.source_file = source.source_file AND target.line = source.line "
        "AND target.digest = source.digest"
    )
    return merge_into(uri, lines, condition, action)


def add_columns(uri: str, columns: Sequence[NewColumn], types: Mapping[str, str]) -> str:
    """Adds columns at their positions, with their comments; `types` maps names to DDL types."""
    definitions = list[str]()
    for new in columns:
        name = ".".join(map(quote, (*new.parent, new.column.name)))
        comment = f" COMMENT {literal(new.column.comment)}" if new.column.comment else ""
        position = "FIRST" if new.after is None else f"AFTER {quote(new.after)}"
        definitions.append(f"{name} {types[new.name]}{comment} {position}")
    return f"ALTER TABLE {path_table(uri)} ADD COLUMNS ({', '.join(definitions)})"


def _where(predicate: str | None) -> str:
    return f" WHERE {predicate}" if predicate else ""


def _ordering(alias: str, columns: Sequence[str]) -> str:
    # Structs sort null below every value. A direct comparison with a null column gives null.
    return f"struct({', '.join(f'{alias}.{quote(column)}' for column in columns)})"


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    return f"\\{character}" if character in "\\'" else f"\\u{ord(character):04x}"


def _typed(value: str | None, type_name: str) -> str:
    """A partition value as a constant of this type."""
    if not _TYPE.fullmatch(type_name):
        raise Refused(
            f"partitions cannot be selected by a column of type {type_name!r}. Use a plain type"
        )
    if value is None or is_read_as_null(value, type_name):
        return f"CAST(NULL AS {type_name})"
    return f"CAST({literal(value)} AS {type_name})"
