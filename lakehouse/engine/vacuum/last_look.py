"""What storage is asked just before files go: what no log of this table tells of, and the plan could not know."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lakehouse.core.inventory import TableBooks
from lakehouse.core.vacuum import ASKED_AT_ONCE, Doomed, VacuumPlan, are_partitions, folders_above
from lakehouse.engine.store import Store, StoredFile


def written_again(planned: VacuumPlan, doomed: Sequence[Doomed], found: dict[str, StoredFile]) -> set[str]:
    """The files that storage has in another state than the plan knew: of another size, or modified within the retention.

    A writer that gives a file the same name in each try may be about to commit it. LITE knows sizes only where the log does.
    """
    again = set[str]()
    for each in doomed:
        now = found.get(each.name)
        if now is None or each.goes_with:
            continue
        is_size_known = each.size_bytes > 0 or planned.mode != "LITE"
        if now.modified_ms >= planned.horizon_ms or (is_size_known and now.size_bytes != each.size_bytes):
            again.add(each.name)
    return again


def in_new_tables(store: Store, books: TableBooks, doomed: Sequence[Doomed]) -> set[str]:
    """The files in whose folder, or above it, a table lies, as CONVERT makes one of what lies there: one request for each folder.

    The plan holds no file of a table that was known; a file that this table removed may be the new one's as well as an orphan.
    """
    above = {each.name: folders_above(each.name) for each in doomed}
    asked = are_partitions(sorted({folder for folders in above.values() for folder in folders}), books.partition_columns)

    def has_log(folder: str) -> bool:
        # Partitions are many, and a HEAD costs a twelfth of a LIST; a table as young as a report has its first commit.
        log = f"{books.table}/{folder}/_delta_log"
        return store.stat(f"{log}/{0:020}.json") is not None if asked[folder] else bool(store.list(log))

    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        made = {folder for folder, has in zip(asked, pool.map(has_log, asked), strict=True) if has}
    return {name for name, folders in above.items() if not made.isdisjoint(folders)}


def stored(store: Store, table: str, files: Sequence[Doomed]) -> dict[str, StoredFile]:
    """Those of the files that storage has now, by name."""
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        found = zip(files, pool.map(store.stat, [f"{table}/{each.name}" for each in files]), strict=True)
        return {each.name: now for each, now in found if now}
