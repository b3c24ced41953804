"""Reconciles an inventory with the logs of the tables in it, and of declared tables.

The logs are read after the inventory was made, as `reconcile` requires. Nothing is written.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.inventory.objects import Inventory, KnownObjects
from lakehouse.core.inventory.reconcile import KnownTables, Reconciliation, reconcile
from lakehouse.core.inventory.table_files import TableFiles, fold_table_files, table_roots
from lakehouse.engine.inventory.table import read_keys, read_objects
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver, landing_prefixes


def reconcile_inventory(
    lake: Lake, declared: Iterable[Table], inventory: Inventory, *, now_ms: int
) -> Reconciliation:
    """Compares an inventory with the logs of the tables in it, and of `declared` tables.

    Raises:
        Refused: the inventory cannot be read.
    """
    prefix = lake.store.prefix
    keys = (key.removeprefix(prefix) for key in read_keys(lake, inventory))
    known = read_table_files(lake, declared, table_roots(keys), now_ms=now_ms)
    objects = read_objects(lake, inventory)
    in_storage = KnownObjects(objects=objects, settled_ms=inventory.settled_ms)
    return reconcile(known, in_storage, now_ms=now_ms)


def read_table_files(
    lake: Lake, declared: Iterable[Table], found: Set[str], *, now_ms: int
) -> KnownTables:
    """The files of each table, or the reason why its log cannot be read.

    The tables are those in `found`, and the declared tables in the lake, if they exist.
    """
    own = [table for table in declared if table.key not in lake.elsewhere]
    table_files: list[TableFiles] = []
    unread: dict[str, str] = {}
    for table in sorted(found | {each.key for each in own}):
        try:
            facts = lake.facts(table)
            if facts is not None:
                table_files.append(covered_files(lake, facts, now_ms=now_ms))
        except LakehouseError as error:
            unread[table] = str(error)
    return KnownTables(
        files=table_files,
        unread=unread,
        landed=landing_prefixes(lake, own),
        lake_prefix=lake.store.prefix,
    )


def covered_files(lake: Lake, facts: TableFacts, *, now_ms: int) -> TableFiles:
    """The files of a table in the lake."""
    # No inventory covers tables outside the lake, so paths to them are not resolved.
    resolve = PathResolver(replace(lake, elsewhere={}))
    commits = facts.history.commits
    return fold_table_files(facts.snapshot, resolve=resolve, commits=commits, now_ms=now_ms)
