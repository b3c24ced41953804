"""Finds the tables of a lake: by its folders, by a listing, and inside tables outside the lake."""

from collections.abc import Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import chain

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.table_files import table_roots
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE
from lakehouse.engine.lake import Lake

_OWN_FOLDER = "_lakehouse"
# Records of where a vacuum once found a table outside the lake: `<key>/<digest of the address>`.
FOUND = f"{_OWN_FOLDER}/adopted"
_NO_TABLES = frozenset({"", ".", "..", _OWN_FOLDER, "_delta_log"})


def listed_tables(lake: Lake) -> set[str]:
    """The tables in the lake, by a listing of all its files."""
    prefix = lake.store.prefix
    return table_roots(each.key.removeprefix(prefix) for each in lake.store.walk(""))


def upper_folders(lake: Lake, landed: Iterable[str]) -> set[str]:
    """The lake's folders, two levels deep, like `silver/orders`. Deeper new tables are missed.

    Raises:
        Refused: the lake's root is a table, or files lie at the key of a table outside the lake.
    """
    store, root = lake.store, lake.settings.root
    names = store.folders("")
    if "_delta_log" in names:
        raise Refused(
            f"vacuum: the lake's root {root} is a Delta table itself, and may read files of any "
            "table in it. Move that table into a folder of its own"
        )
    skipped = _NO_TABLES | {prefix.rstrip("/") for prefix in landed}
    tops = [name for name in names if name not in skipped]
    # A table of the uppermost level has its log and its partitions in its folder.
    folders = {
        f"{top}/{name}"
        for top in tops
        for name in store.folders(top)
        if name not in _NO_TABLES and "=" not in name
    }
    folders.update(tops)
    for key in sorted(folders & lake.elsewhere.keys()):
        if lake.holds_files(key):
            raise Refused(
                f"vacuum: {key} is the table at {lake.elsewhere[key]}, but files also lie at "
                f"{root}/{key}, and what a table there borrows would not be seen. Use another key "
                f"for {lake.elsewhere[key]}"
            )
    return folders


def tables_inside(lake: Lake, spread_folders: Set[str]) -> set[str]:
    """The tables up to two folders deep inside tables outside the lake.

    No report and no listing of the lake shows them. Folders in `spread_folders` are partitions, and
    are not searched.
    """

    def below(folder: str) -> list[str]:
        names = lake.store.folders(folder)
        return [
            f"{folder}/{name}"
            for name in names
            if name[:1] not in ("", ".", "_") and "=" not in name
        ]

    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        first = [*chain.from_iterable(pool.map(below, lake.elsewhere))]
        searched = [folder for folder in first if folder not in spread_folders]
        second = chain.from_iterable(pool.map(below, searched))
        return with_log(lake, [*first, *second])


def with_log(lake: Lake, folders: Sequence[str]) -> set[str]:
    """The folders that contain a log.

    Only a listing finds an old log, which may lack its first commit and `_last_checkpoint`.
    """
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        logs = pool.map(lake.store.list, [f"{folder}/_delta_log" for folder in folders])
        return {folder for folder, files in zip(folders, logs, strict=True) if files}


def remember_found(lake: Lake, tables: Sequence[str]) -> None:
    """Records where these tables outside the lake are, so that later runs notice if one is gone."""

    def record(table: str) -> None:
        address = lake.elsewhere[table].encode()
        name = f"{FOUND}/{table}/{blake2b(address, digest_size=16).hexdigest()}"
        lake.store.put_if_absent(name, address)

    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        for _ in pool.map(record, tables):
            pass


def may_never_have_existed(lake: Lake, table: str) -> bool:
    """Whether a missing table outside the lake was never found, although storage is available."""
    return not lake.store.list(f"{FOUND}/{table}") and lake.storage_is_there(table)
