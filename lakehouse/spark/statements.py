"""The SQL statements that Spark runs, and the functions that quote names and values in them.

Tables are always addressed by path, as `Lake.table_uri` returns it.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    The condition is nested by column, which keeps it short: Spark plans 20,000 partitions of two
    columns in 3 s.
    """
    return _any_of([tuple(partition) for partition in partitions], types_by_name(columns))


def optimize(uri: str, predicate: str | None, *, zorder_by: Sequence[str] = ()) -> str:
    """Compacts a table, or the part where the predicate holds; with `zorder_by`, by Z-order."""
    ordered = f" ZORDER BY ({', '.join(map(quote, zorder_by))})" if zorder_by else ""
    return f"OPTIMIZE {path_table(uri)}{_where(predicate)}{ordered}"


def purge(uri: str, predicate: str | None) -> str:
    """Rewrites all files with deleted rows, in a table or the part where the predicate holds."""
    return f"REORG TABLE {path_table(uri)}{_where(predicate)} APPLY (PURGE)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """The table that a MERGE writes to, and the key columns by which rows match.

    `within` are conditions that begin with a key. All source rows and all matching rows meet them.
    """

    uri: str
    keys: Sequence[str]
    within: tuple[str, ...] = ()


def merge(target: MergeTarget, source: str, *, order_by: Sequence[str]) -> str:
    """Inserts rows of the view `source` that have new keys, and replaces rows by newer ones."""
    return (
        f"{_merge_into(target, source)} WHEN MATCHED AND {_newer(order_by)} THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )


def merge_changes(target: MergeTarget, source: str, *, newer: str, deleted: str) -> str:
    """As `merge`, for the newest change of each key. Deletes a row if column `deleted` is true.

    `newer` is the condition, over aliases `source` and `target`, under which a change takes effect.
    """
    return (
        f"{_merge_into(target, source)} "
        f"WHEN MATCHED AND {newer} AND source.{quote(deleted)} THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND NOT source.{quote(deleted)} THEN INSERT *"
    )


def merge_marked(
    target: MergeTarget, source: str, *, newer: str, marks_only: str, mark: Sequence[str]
) -> str:
    """As `merge_changes`, without deletions. If column `marks_only` is true, sets only `mark`."""
    marked = ", ".join(f"{quote(name)} = source.{quote(name)}" for name in mark)
    return (
        f"{_merge_into(target, source)} "  # noqa: S608  # names are quoted
        f"WHEN MATCHED AND {newer} AND source.{quote(marks_only)} THEN UPDATE SET {marked} "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def not_older(keys: Sequence[str], order_by: Sequence[str]) -> str:
    """The condition that two rows have the same keys, and that the source row is not newer."""
    return f"{same_keys(keys)} AND NOT ({_newer(order_by)})"


def same_keys(keys: Sequence[str]) -> str:
    """The condition, over aliases `source` and `target`, that two rows have the same keys."""
    return " AND ".join(f"target.{quote(key)} <=> source.{quote(key)}" for key in keys)


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
    return (
        f"MERGE INTO {path_table(uri)} AS target USING {quote(lines)} AS source "
        "ON target.source_file = source.source_file AND target.line = source.line "
        f"AND target.digest = source.digest {action}"
    )


def add_columns(uri: str, columns: Sequence[NewColumn], types: Mapping[str, str]) -> str:
    """Adds columns at their positions, with their comments; `types` maps names to DDL types."""
    definitions = list[str]()
    for new in columns:
        name = ".".join(map(quote, (*new.parent, new.column.name)))
        comment = f" COMMENT {literal(new.column.comment)}" if new.column.comment else ""
        position = "FIRST" if new.after is None else f"AFTER {quote(new.after)}"
        definitions.append(f"{name} {types[new.name]}{comment} {position}")
    return f"ALTER TABLE {path_table(uri)} ADD COLUMNS ({', '.join(definitions)})"


def restore(uri: str, version: int) -> str:
    """Writes a new version of a table that equals an older one."""
    return f"RESTORE TABLE {path_table(uri)} TO VERSION AS OF {int(version)}"


def _merge_into(target: MergeTarget, source: str) -> str:
    bounds = "".join(f" AND target.{each}" for each in target.within)
    return (
        f"MERGE INTO {path_table(target.uri)} AS target USING {quote(source)} AS source "
        f"ON {same_keys(target.keys)}{bounds}"
    )


def _newer(order_by: Sequence[str]) -> str:
    """The condition, over aliases `source` and `target`, that a source row is newer."""
    return f"{_ordering('source', order_by)} > {_ordering('target', order_by)}"


def _where(predicate: str | None) -> str:
    return f" WHERE {predicate}" if predicate else ""


def _ordering(alias: str, columns: Sequence[str]) -> str:
    # Structs sort null below every value. A direct comparison with a null column gives null.
    return f"struct({', '.join(f'{alias}.{quote(column)}' for column in columns)})"


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    return f"\\{character}" if character in "\\'" else f"\\u{ord(character):04x}"


def _any_of(rows: Sequence[PartitionValues], types: Mapping[str, str]) -> str:
    (column, _), *other_columns = rows[0]
    groups: dict[str | None, list[PartitionValues]] = defaultdict(list)
    for (_, value), *rest in rows:
        groups[value].append(tuple(rest))
    if not other_columns:
        return _one_of(column, list(groups), types)
    branches = [
        f"({_one_of(column, [value], types)} AND {_any_of(rest, types)})"
        for value, rest in groups.items()
    ]
    return f"({' OR '.join(branches)})"


def _one_of(column: str, values: Sequence[str | None], types: Mapping[str, str]) -> str:
    tests: list[str] = []
    type_ = types[column]
    not_null = [
        value for value in values if value is not None and not is_read_as_null(value, type_)
    ]
    if not_null:
        literals = [_typed(value, type_) for value in not_null]
        tests.append(f"{quote(column)} IN ({', '.join(literals)})")
    if len(not_null) < len(values):
        tests.append(f"{quote(column)} IS NULL")
    return tests[0] if len(tests) == 1 else f"({' OR '.join(tests)})"


def _typed(value: str, type_name: str) -> str:
    if not _TYPE.fullmatch(type_name):
        raise Refused(
            f"partitions cannot be selected by a column of type {type_name!r}. Use a plain type"
        )
    return literal(value) if type_name == "string" else f"CAST({literal(value)} AS {type_name})"
