"""Finds tables: in a lake's upper folders, in a listing, and inside tables outside the lake."""

from collections.abc import Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import chain

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.table_roots import table_roots
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE
from lakehouse.engine.lake import Lake

_OWN_FOLDER = "_lakehouse"
# The folder of the records of tables outside the lake. Its object `<key>/<digest of the address>`
# contains an address at which a vacuum found the table with that key.
FOUND = f"{_OWN_FOLDER}/adopted"
_NO_TABLES = frozenset({"", ".", "..", _OWN_FOLDER, "_delta_log"})


def listed_tables(lake: Lake) -> set[str]:
    """The tables in the lake, found by listing all of its files."""
    prefix = lake.store.prefix
    return table_roots(each.key.removeprefix(prefix) for each in lake.store.walk(""))


def upper_folders(lake: Lake, landed: Iterable[str]) -> set[str]:
    """The lake's folders up to two levels deep, for example `silver` and `silver/orders`.

    Each of these folders may be a table. Logs, partitions, and landing prefixes that consist of a
    single folder are omitted.

    Raises:
        Refused: the lake's root is a table, or the lake has files at the key of a table outside
            the lake.
    """
    store = lake.store
    root = lake.settings.root
    names = store.folders("")
    if "_delta_log" in names:
        raise Refused(
            f"vacuum: the lake's root {root} is itself a Delta table, which may read files of "
            "every table of the lake. Move the table at the root into a subfolder"
        )
    skipped = _NO_TABLES | {prefix.rstrip("/") for prefix in landed}
    folders = {name for name in names if name not in skipped}
    for top_folder in sorted(folders):
        for name in store.folders(top_folder):
            # A top-level folder may be a table itself. Its log and its partitions are not tables.
            is_partition = "=" in name
            if name not in _NO_TABLES and not is_partition:
                folders.add(f"{top_folder}/{name}")
    for key in sorted(folders & lake.elsewhere.keys()):
        if lake.holds_files(key):
            raise Refused(
                f"vacuum: {key} is the table at {lake.elsewhere[key]}, but there are also files at "
                f"{root}/{key}. These files may be another table, whose log would not be read. Use "
                f"another key for {lake.elsewhere[key]}"
            )
    return folders


def tables_inside(lake: Lake, spread_folders: Set[str]) -> set[str]:
    """The tables nested up to two folders deep in tables outside the lake.

    Neither reports nor listings of the lake show these tables. `spread_folders` are not searched.
    They are taken for partitions, because one table has so many of them.
    """

    def below(folder: str) -> list[str]:
        names = lake.store.folders(folder)
        return [
            f"{folder}/{name}"
            for name in names
            if name[:1] not in ("", ".", "_") and "=" not in name
        ]

    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        first_level = [*chain.from_iterable(pool.map(below, lake.elsewhere))]
        searched = [folder for folder in first_level if folder not in spread_folders]
        second_level = chain.from_iterable(pool.map(below, searched))
        return with_log(lake, [*first_level, *second_level])


def with_log(lake: Lake, folders: Sequence[str]) -> set[str]:
    """The folders that contain a log.

    Log folders are listed, because an old log may lack both its first commit and
    `_last_checkpoint`.
    """
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        logs = pool.map(lake.store.list, [f"{folder}/_delta_log" for folder in folders])
        return {folder for folder, files in zip(folders, logs, strict=True) if files}


def remember_found(lake: Lake, tables: Sequence[str]) -> None:
    """Records the addresses of these tables, so that later runs notice if a table is missing."""

    def record(table: str) -> None:
        address = lake.elsewhere[table].encode()
        name = f"{FOUND}/{table}/{blake2b(address, digest_size=16).hexdigest()}"
        lake.store.put_if_absent(name, address)

    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        for _ in pool.map(record, tables):
            pass


def may_never_have_existed(lake: Lake, table: str) -> bool:
    """Whether a missing table outside the lake may never have existed.

    True if no vacuum has ever found the table at any address, and its storage is available, so it
    is not just an unmounted disk.
    """
    return not lake.store.list(f"{FOUND}/{table}") and lake.storage_is_there(table)
