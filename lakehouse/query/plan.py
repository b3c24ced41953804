"""Plans a statement of `lakehouse sql`: refuses writes, and finds the tables that it names.

This is no SQL parser: the engine that answers has one. A statement is cut into names, strings and
comments. A name is a table's if all of it is the name of a known table, so aliases, columns and
common table expressions are left to the engine.
"""

import re
from collections.abc import Callable, Mapping

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen

_PART = r'(?:\w+|"[^"]+"|`[^`]+`)'
# A version is asked for as in Spark SQL. Source: Spark 4.2.0, SqlBaseParser.g4, temporalClause
_PIECE = re.compile(
    rf"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'
    |(?P<name>{_PART}(?:\s*\.\s*{_PART})*)
     (?:\s+(?:FOR\s+)?VERSION\s+AS\s+OF\s+(?P<version>\d{{1,18}}))?""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_READS = ("SELECT", "WITH", "DESCRIBE", "DESC")
# A statement that begins with one of `_READS` and writes has one of these words. A column of this
# name has to be in quotes.
# Source: Spark 4.2.0, SqlBaseParser.g4, dmlStatementNoWith
_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE", "INTO")


@frozen
class NamedTable:
    """A place in a statement that names a table, from `start` to `end`, with its version clause.

    `version` is `None` without such a clause.
    """

    key: str
    start: int
    end: int
    version: int | None

    @property
    def quoted_name(self) -> str:
        """A name of two parts for the table at this version, such as `"gold"."daily@3"`."""
        schema, _, name = self.key.rpartition("/")
        version = "" if self.version is None else f"@{self.version}"
        return f'"{schema}"."{name}{version}"'


@frozen
class QueryPlan:
    """A statement that only reads, and the tables that it names."""

    statement: str
    tables: tuple[NamedTable, ...]

    def with_names(self, name_of: Callable[[NamedTable], str]) -> str:
        """The statement with another text at each place that names a table."""
        text = self.statement
        for table in reversed(self.tables):
            text = text[: table.start] + name_of(table) + text[table.end :]
        return text


def plan_query(statement: str, keys: Mapping[str, str]) -> QueryPlan:
    """Plans one statement. `keys` maps the known names of tables (`gold/daily`) to their keys.

    Raises:
        Refused: the statement does more than read, or is empty.
    """
    names = [piece for piece in _PIECE.finditer(statement) if piece["name"]]
    words = [piece.group().upper() for piece in names] or ["an empty statement"]
    writes = [word for word in words if word in _WRITES]
    if words[0] not in _READS or writes:
        verb = writes[0] if writes else words[0]
        raise Refused(
            f"sql: {verb} is refused. This command only reads: use SELECT, WITH, DESCRIBE or SHOW "
            "TABLES"
        )
    tables = list[NamedTable]()
    for piece in names:
        parts = re.findall(_PART, piece["name"])
        # Names of tables are in lower case, and SQL ignores the case of names without quotes.
        name = "/".join(part[1:-1] if part[0] in '"`' else part.lower() for part in parts)
        if name in keys:
            version = int(piece["version"]) if piece["version"] else None
            tables.append(
                NamedTable(key=keys[name], start=piece.start(), end=piece.end(), version=version)
            )
    return QueryPlan(statement=statement, tables=tuple(tables))
