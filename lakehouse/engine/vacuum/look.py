"""The last look at storage before files go: what no log tells of, and the plan could not know."""

from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor

from lakehouse.core.inventory import Part
from lakehouse.core.vacuum import Doomed, VacuumPlan, folders_to_ask, written_once
from lakehouse.engine.store import Store, StoredFile

_AT_ONCE = 16


def written_again(store: Store, planned: VacuumPlan, doomed: Sequence[Doomed]) -> set[str]:
    """The orphans that storage has in another state than when they were listed: no log would tell of these.

    What the log removed keeps its name for ever, and so does what a writer gave a name of its own. LITE lists nothing to compare with, and
    takes no orphans.
    """
    if planned.mode == "LITE":
        return set()
    orphans = [each for each in doomed if each.part is Part.ORPHANED_OLD and not written_once(each.name)]
    found = stored(store, planned.table, orphans)
    return {
        each.name
        for each in orphans
        if (now := found.get(each.name)) and (now.modified_ms >= planned.horizon_ms or now.size_bytes != each.size_bytes)
    }


def in_new_tables(store: Store, planned: VacuumPlan, doomed: Sequence[Doomed], *, partition_columns: Set[str]) -> set[str]:
    """The orphans of a report in whose folder a table was made since, as CONVERT makes one of what lies there: one listing per folder.

    A listing shows such a table itself, and what the log removed was this table's own.
    """
    if planned.mode != "INVENTORY":
        return set()
    above = {each.name: folders_to_ask(each.name, partition_columns) for each in doomed if each.part is Part.ORPHANED_OLD}
    folders = sorted({folder for asked in above.values() for folder in asked})
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        logs = pool.map(store.list, [f"{planned.table}/{folder}/_delta_log" for folder in folders])
        made = {folder for folder, log in zip(folders, logs, strict=True) if log}
    return {name for name, asked in above.items() if not made.isdisjoint(asked)}


def stored(store: Store, table: str, files: Sequence[Doomed]) -> dict[str, StoredFile]:
    """Those of the files that storage has now, by name."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        found = zip(files, pool.map(store.stat, [f"{table}/{each.name}" for each in files]), strict=True)
        return {each.name: now for each, now in found if now}
