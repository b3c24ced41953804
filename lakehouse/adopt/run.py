"""Adds tables that other programs write to the file of adopted tables.

Nothing is written into the tables.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.processes import hold_lock
from lakehouse.base.settings import Settings
from lakehouse.declare.adopted import folders_above, is_inside, key_of
from lakehouse.declare.adopted_file import adopted_lines, parse_adopted
from lakehouse.declare.compaction import Compaction, LiquidClustering
from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts
from lakehouse.delta.protocol import unknown_features
from lakehouse.lake.declared_tables import address_of, checked
from lakehouse.lake.find_tables import is_table
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, real_address, store_at

_WAIT_SECONDS = 10.0
# Tables are two folders below the lake's root, quarantine tables are three folders below it.
_TABLE_DEPTHS = (2, 3)
_HEAD = (
    "# Tables that other programs write and this lake maintains. lakehouse adopt adds entries; "
    "docs/adopt.md explains them.\n"
)


def refuse_unknown_features(address: str, facts: TableFacts) -> None:
    """Refuses a table whose features this program does not know."""
    unknown = unknown_features(facts.snapshot.features)
    if unknown:
        raise Refused(
            f"table {address} has the feature {', '.join(unknown)}. "
            "This program does not know the feature's rules for rewriting and deleting files. Use "
            "a table without this feature"
        )


def with_clustering(table: Table, facts: TableFacts) -> Table:
    """The declaration of a table to adopt, which keeps its liquid clustering."""
    columns = facts.snapshot.clustering_columns
    if not columns:
        return table
    return replace(table, compaction=Compaction(data_layout=LiquidClustering(columns=columns)))


def choose_key(
    address: str, tables: Mapping[str, Table], lake: Lake, *, given_key: str | None
) -> str:
    """The key of a table to adopt: `given_key`, or a key derived from its address.

    Raises:
        Refused: `given_key` belongs to another table or, if the table is outside this lake, has
            files in the lake. Or the table is in this lake, and its path is not `layer/name`, or
            is not `given_key`.
    """
    settings = lake.settings
    root = real_address(lake.settings.root)
    path = address.removeprefix(f"{root}/") if is_inside(address, root) else None
    if path is not None and (path.count("/") != 1 or given_key not in (None, path)):
        suggestion = f"the key {path}" if path.count("/") == 1 else "a table at layer/name"
        raise Refused(
            f"adopt {address}: the table lies in this lake, {root}, where a table's key is its "
            f"path. Use {suggestion}"
        )
    free_key = path or key_of(address, tables)
    taken_keys = {*tables}
    # At the path of this key, the lake may have files of an undeclared table.
    while path is None and lake.holds_files(free_key):
        taken_keys.add(free_key)
        free_key = key_of(address, taken_keys)
    if given_key is None:
        return free_key
    if given_key in tables:
        raise Refused(
            f"adopt {address}: the table at {address_of(tables[given_key], settings)} already has "
            f"the key {given_key}. Use another key, for example {free_key}"
        )
    if path is None and lake.holds_files(given_key):
        raise Refused(
            f"adopt {address}: the path of the key {given_key}, {settings.root}/{given_key}, "
            f"already has files. Use another key, for example {free_key}"
        )
    return given_key


def refuse_adoption(lake: Lake, address: str, tables: Iterable[Table]) -> None:
    """Refuses a table of another lake, and a table that lies inside or contains another table."""
    for root in _lakes_above(address):
        if root != real_address(lake.settings.root):
            raise Refused(
                f"adopt {address}: it belongs to the lake {root}, which may keep versions that a "
                "vacuum by this lake would delete. Either choose a table that is in no lake, or "
                f"maintain this table with LAKEHOUSE_ROOT={root}"
            )
    for table in tables:
        other = address_of(table, lake.settings)
        for inner, outer in ((address, other), (other, address)):
            if is_inside(inner, outer):
                raise Refused(
                    f"adopt {address}: {inner} lies inside the folder of the table {outer}. Use "
                    "only one of these two tables"
                )
    for folder in folders_above(address):
        if folder == lake.settings.root:
            break
        if _may_be_table(folder):
            raise Refused(
                f"adopt {address}: it lies inside the folder of the table {folder}. Use "
                "only one of these two tables"
            )


def write_adopted(
    settings: Settings, tables: Iterable[Table], *, declared: Mapping[str, Table]
) -> None:
    """Adds tables to the file of adopted tables, and keeps the other entries.

    `declared` are all tables that are declared already. The file is replaced atomically, under a
    lock, so no entry is lost if two people adopt at the same time.

    Raises:
        Refused: the file is not a file of adopted tables, or already has one of these tables, or
            one of them conflicts with another table (`checked`).
        Transient: another process is writing the file.
        Broken: the new entries would be read as other tables; nothing was written.
    """
    store = DiskStore(settings.adopted.parent)
    name = settings.adopted.name
    try:
        with hold_lock(settings.home / "locks" / "adopted.lock", seconds=_WAIT_SECONDS):
            old_text = _HEAD
            with suppress(FileNotFoundError):
                old_text = store.read(name).decode("utf-8")
            old_tables = parse_adopted(old_text, name=str(settings.adopted))
            new_tables = {table.key: table for table in tables}
            duplicates = [key for key in new_tables if key in old_tables]
            if duplicates:
                raise Refused(f"{settings.adopted} already has {duplicates[0]}. Use another key")
            checked({**declared, **old_tables, **new_tables}, settings)
            entries = [adopted_lines(table) for table in new_tables.values()]
            text = "\n".join([old_text.rstrip("\n") + "\n", *entries])
            if parse_adopted(text, name=str(settings.adopted)) != old_tables | new_tables:
                raise Broken(
                    f"{settings.adopted}: the new entries, parsed again, differ from the tables; "
                    "nothing was written"
                )
            store.put(name, text.encode("utf-8"))
    except BlockingIOError as error:
        raise Transient(
            f"{settings.adopted} is being written by another process; try again"
        ) from error


def _lakes_above(address: str) -> Iterator[str]:
    """The folders that are a lake's root with this address as one of its tables."""
    for depth in _TABLE_DEPTHS:
        root, *below = real_address(address).rsplit("/", depth)
        if len(below) < depth or root in ("", "s3:", "s3:/"):
            continue
        # This process may not be allowed to list the folders above a table.
        with suppress(LakehouseError):
            if store_at(root).folders("_lakehouse"):
                yield root


def _may_be_table(address: str) -> bool:
    """Whether the address is a table; false if this process may not read the address.

    A user of a table may lack permission for the folders above the table.
    """
    try:
        return is_table(store_at(address), "")
    except LakehouseError:
        return False
