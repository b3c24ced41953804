"""Which table a key belongs to: the longest table folder that it lies in, by whole path components."""

from collections.abc import Iterable

_LOG = "/_delta_log/"


class Owners:
    """Table folders, relative to the lake; `a/b` never claims `a/bc`, and a table inside another keeps what is its own."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._depths = sorted({table.count("/") + 1 for table in self._tables}, reverse=True)

    def table_of(self, name: str) -> str | None:
        """The table that the object `name` (relative to the lake) belongs to; `None` for none. The folder's own marker is its, too."""
        parts = name.split("/")
        for depth in self._depths:
            if len(parts) > depth and (table := "/".join(parts[:depth])) in self._tables:
                return table
        return None


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that hold a Delta log, by the names of all objects: every table, declared or not."""
    return {name.partition(_LOG)[0] for name in names if _LOG in name}
