"""Finds the Delta tables below an address, and calls an operation for several tables.

A search takes few listings and writes nothing. A failure for one table does not stop the others.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.declare.table import Table, undeclared_among
from lakehouse.declare.write_modes import LAYERS, Adopted
from lakehouse.delta.log import TableFacts, garbage_uncollected
from lakehouse.lake.lake import Lake
from lakehouse.store import Store

# One search looks into at most this many folders. A warehouse of a few thousand tables has about as
# many other folders. A bucket with more folders must be searched part by part.
MOST_FOLDERS = 10_000
_REQUESTS_AT_ONCE = 16
_TABLES_AT_ONCE = 8
_LOG = "_delta_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """The addresses of the tables at an address or below it, sorted.

    - `passed`: folders that were skipped because of their names. These are hidden folders, and
      partitions outside of Delta tables.
    - `left_count`: how many known folders were not searched, because there are too many. They may
      contain more folders.
    """

    addresses: tuple[str, ...]
    passed: tuple[str, ...]
    left_count: int = 0


def find_tables(store: Store, address: str) -> FoundTables:
    """The Delta tables in a store whose root is `address`, in at most `MOST_FOLDERS` folders.

    Folders inside a table are not searched.
    """
    tables = list[str]()
    passed = list[str]()
    unsearched = [""]
    left_count = MOST_FOLDERS
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as readers:
        while unsearched and left_count:
            batch = unsearched[:left_count]
            unsearched = unsearched[left_count:]
            left_count -= len(batch)
            contents = list(readers.map(partial(_subfolders, store), batch))
            for folder, subfolders in zip(batch, contents, strict=True):
                if subfolders is None:
                    tables.append(folder)
                    continue
                for subfolder in subfolders:
                    name = subfolder.rpartition("/")[2]
                    if name[:1] in ("", "_", ".") or "=" in name:  # hidden, or a partition
                        passed.append(subfolder)
                    else:
                        unsearched.append(subfolder)

    def addresses_of(folders: list[str]) -> tuple[str, ...]:
        return tuple(sorted(f"{address}/{folder}".rstrip("/") for folder in folders))

    return FoundTables(
        addresses=addresses_of(tables),
        passed=addresses_of(passed),
        left_count=len(unsearched),
    )


def undeclared_tables(lake: Lake, declared: Collection[Table]) -> tuple[str, ...]:
    """The keys of the tables in the lake's layers that are not declared, sorted.

    Lists the folders of each layer once, and looks for a log in each folder that is not declared.
    """
    folders = [f"{layer}/{name}" for layer in LAYERS for name in lake.store.folders(layer)]
    unknown = undeclared_among(folders, declared)
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as readers:
        contents = list(readers.map(partial(_subfolders, lake.store), unknown))
    return tuple(
        key for key, subfolders in zip(unknown, contents, strict=True) if subfolders is None
    )


def is_table(store: Store, folder: str) -> bool:
    """Whether a folder has a Delta log, with its first commit or `_last_checkpoint`."""
    log = f"{folder}/{_LOG}" if folder else _LOG
    return any(store.stat(f"{log}/{name}") for name in (f"{0:020}.json", "_last_checkpoint"))


def is_written(lake: Lake, table_key: str) -> bool:
    """Whether a table exists. Reads the log only if `is_table` does not find it."""
    return is_table(lake.store, table_key) or lake.facts(table_key) is not None


def facts_of(lake: Lake, table: Table) -> TableFacts | None:
    """The facts in a table's log; `None` if the lake has not written the table yet.

    Raises:
        Refused: an adopted table does not exist.
    """
    facts = lake.facts(table.key)
    if facts is None and isinstance(table.write, Adopted):
        raise no_table(table.write.uri)
    return facts


def no_table(address: str) -> Refused:
    """The error for an address without a Delta table."""
    return Refused(
        f"there is no Delta table at {address}: it has no {_LOG} with a commit. Use the folder that"
        f" contains the table's {_LOG}. To list the tables in a folder, use lakehouse adopt"
        " --prefix FOLDER --dry-run"
    )


def _subfolders(store: Store, folder: str) -> Sequence[str] | None:
    """The folders inside `folder`, or `None` if it is a table.

    A table's folder may have a million files, so it is only listed if no log is found by name.
    """
    begin = f"{folder}/" if folder else ""
    if is_table(store, folder):
        return None
    names = store.folders(folder)
    if _LOG in names:
        return None
    return [f"{begin}{name}" for name in names]


FoundValue = TypeVar("FoundValue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[FoundValue]):
    """The result or the error for one table.

    Both are `None` if the operation returned `None`, usually because the table does not exist yet.
    """

    table: Table
    value: FoundValue | None = None
    error: LakehouseError | None = None

    @property
    def reason(self) -> str:
        """Why there is no value, as one word for JSON documents."""
        return type(self.error).__name__.upper() if self.error else "NO_TABLE"

    @property
    def sentence(self) -> str:
        """Why there is no value, as a sentence."""
        return str(self.error) if self.error else "the table is declared, but does not exist yet"


def attempt(table: Table, operation: Callable[[Table], FoundValue | None]) -> Found[FoundValue]:
    """The result of an operation for one table, or its error, so that other tables can follow."""
    try:
        return Found(table=table, value=operation(table))
    except LakehouseError as error:
        return Found(table=table, error=error)


def for_each_table(
    tables: Sequence[Table], operation: Callable[[Table], FoundValue | None]
) -> list[Found[FoundValue]]:
    """Calls `operation` for each table, for several at once.

    Returns the results, or the errors of this program (`LakehouseError`), in the order of `tables`.
    """
    with garbage_uncollected(), ThreadPoolExecutor(max_workers=_TABLES_AT_ONCE) as readers:
        return list(readers.map(partial(attempt, operation=operation), tables))
