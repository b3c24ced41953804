"""Encodes, lists and expires journal records of all kinds."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import Broken
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from lakehouse.engine.journal.journal import JournalCache

# Matches the journal's own records, but not files that a person adds.
_RECORD_NAME = re.compile(r"/\d{15}-[0-9a-f]+\.json$")


def encoded(content: Mapping[str, Any]) -> bytes:
    """A record's content as the journal stores it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def damaged(name: str, error: Exception) -> Broken:
    """The error for a record that cannot be read."""
    return Broken(
        f"journal: {name} cannot be read ({type(error).__name__}: {error}); "
        "restore it from a copy of the lake"
    )


def append_record(
    store: Store, folder: str, name: str, content: Mapping[str, Any], *, kept_count: int
) -> None:
    """Adds a record to a table's folder, for example `_lakehouse/tries/gold/daily`.

    Keeps the newest `kept_count` records in the folder, and deletes the others.
    """
    store.put(f"{folder}/{name}", encoded(content))
    kind, layer, table = folder.rsplit("/", 2)
    table_key = f"{layer}/{table}"
    names = names_by_table(store, kind, table_key).get(table_key, [])
    store.delete(names[:-kept_count])


def names_by_table(
    store: "Store | JournalCache", kind: str, table_key: str = ""
) -> dict[str, list[str]]:
    """The names of all records of one kind, by table, oldest first; only of `table_key`, if given.

    `kind` is a folder, for example `_lakehouse/tries`.
    """
    folder = f"{kind}/{table_key}".removesuffix("/")
    names = sorted(file.name for file in store.list(folder) if _RECORD_NAME.search(file.name))
    by_table = dict[str, list[str]]()
    for name in names:
        table = name.removeprefix(f"{kind}/").rpartition("/")[0]
        by_table.setdefault(table, []).append(name)
    return by_table


def recorded_ms(name: str) -> int:
    """The time in a record's name."""
    return int(name.rpartition("/")[2][:15])
