"""The Delta tables below an address, found by as few listings as it takes; nothing is written."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakehouse.core.adoption.address import folders_above, nearest_addresses
from lakehouse.core.adoption.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store, store_at

# A warehouse of a few thousand tables has as many folders again; a bucket that holds anything else is looked into by its parts.
MOST_FOLDERS = 10_000
_ASKED_AT_ONCE = 16
_LOG = "_delta_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """The tables below an address, by theirs, sorted. `left_count` folders were not looked into, since there are too many."""

    addresses: tuple[str, ...]
    folder_count: int
    left_count: int = 0


def find_tables(address: str, *, store: Store | None = None, most_folders: int = MOST_FOLDERS) -> FoundTables:
    """Every Delta table at an address or below it. A table's own folders are not looked into, nor are hidden ones and partitions."""
    there = store or store_at(address)
    found, level, count = list[str](), [""], 0
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as readers:
        while level and count < most_folders:
            now, left = level[: most_folders - count], level[most_folders - count :]
            count += len(now)
            answers = list(readers.map(lambda folder: _look_into(there, folder), now))
            found += [folder for folder, below in zip(now, answers, strict=True) if below is None]
            level = [*left, *(name for below in answers for name in below or ())]
    addresses = sorted(f"{address}/{folder}".rstrip("/") for folder in found)
    return FoundTables(addresses=tuple(addresses), folder_count=count, left_count=len(level))


def is_table(store: Store, folder: str) -> bool:
    """Whether a folder has the log of a table, by its first commit or its newest checkpoint; two requests at most."""
    begin = f"{folder}/" if folder else ""
    return any(store.stat(f"{begin}{_LOG}/{name}") for name in (f"{0:020}.json", "_last_checkpoint"))


def facts_of(lake: Lake, table: Table) -> TableFacts | None:
    """What the log of a table says; `None` where the lake has not written it yet.

    Raises:
        Refused: others write it, and there is no Delta table at its address; the text names those that are near.
    """
    facts = lake.facts(table.key)
    if facts is None and isinstance(table.write, Adopted):
        raise no_table(table.write.uri)
    return facts


def no_table(address: str) -> Refused:
    """The refusal of an address at which there is no Delta table."""
    return Refused(f"there is no Delta table at {address}: it has no {_LOG} with a commit; {nearest_addresses(address, _near(address))}")


def _look_into(store: Store, folder: str) -> Sequence[str] | None:
    """The folders to look into next; `None` for a table. A table's own folder may hold a million files: it is not listed for its log."""
    begin = f"{folder}/" if folder else ""
    if is_table(store, folder):
        return None
    names = store.folders(folder)
    if _LOG in names:
        return None
    return [f"{begin}{name}" for name in names if not name.startswith(("_", ".")) and "=" not in name]


def _near(address: str) -> Sequence[str]:
    """Tables around an address at which there is none: below it, beside it, above it."""
    parent = address.rpartition("/")[0]
    try:
        for place in (address, *([parent] if parent not in ("", "s3:/") else [])):
            if found := find_tables(place, most_folders=200).addresses:
                return found
        for above in folders_above(parent):
            if _look_into(store_at(above), "") is None:
                return [above]
    except LakehouseError:
        pass  # what is near is a kindness; that there is no table is known
    return ()
