"""Finds the tables in a list of object names, and the table that an object belongs to."""

from collections.abc import Iterable

from lakehouse.core.inventory.objects import FOLDER_SUFFIX

_LOG = "/_delta_log/"


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that contain a Delta log: all tables, declared or not, but no archives.

    `names` are the names of objects, relative to the lake. Folder markers do not count as a log.
    """
    in_logs = (name for name in names if _LOG in name)
    return {name.partition(_LOG)[0] for name in in_logs if _is_log(name)}


def _is_log(name: str) -> bool:
    return not name.startswith("archive/") and not name.endswith(FOLDER_SUFFIX)


class Owners:
    """Finds the table that an object belongs to: the innermost table whose folder it is in."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._depths = sorted({table.count("/") + 1 for table in self._tables}, reverse=True)

    def table_of(self, name: str) -> str | None:
        """The table that the object `name` (relative to the lake) belongs to, or `None`.

        The marker of a table's folder (`<table>/`) belongs to this table.
        """
        parts = name.split("/")
        for depth in self._depths:
            folder = "/".join(parts[:depth])
            if len(parts) > depth and folder in self._tables:
                return folder
        return None
