"""Inspects a table that other programs write, and adds it to the file of adopted tables.

Nothing is written into the table.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from threading import Lock

from lakehouse.core.adoption.adopted_file import adopted_lines, parse_adopted
from lakehouse.core.adoption.inspection_report import TableFinding
from lakehouse.core.declaration.adopted import Adopted, folders_above, is_inside, key_of
from lakehouse.core.declaration.compaction_policy import Compaction, LiquidClustering
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import unknown_features
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.adoption.find_tables import is_table
from lakehouse.engine.commit_safety import refuse_table_of_another_lake
from lakehouse.engine.compaction.skip_reasons import compaction_risk
from lakehouse.engine.declared_tables import address_of, checked
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, real_address, store_at
from lakehouse.engine.table_health import health_of
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.plan import plan
from lakehouse.runtime.processes import hold_lock

_WAIT_SECONDS = 10.0
_HEAD = (
    "# Tables that other programs write and this lake maintains. lakehouse adopt adds entries; "
    "docs/adopt.md explains them.\n"
)
# `LakeFacts` is not thread-safe, and several threads inspect tables.
_ONE_AT_A_TIME = Lock()


def inspect_table(
    lake_facts: LakeFacts, table: Table, facts: TableFacts, *, known_as: str = ""
) -> TableFinding:
    """Inspects one of the tables of `lake_facts`.

    `known_as` is the key of a table that is already declared, or empty.

    Raises:
        Refused: the table has a feature that this program does not know.
    """
    if unknown := unknown_features(facts.snapshot.features):
        address = address_of(table, lake_facts.lake.settings)
        raise Refused(
            f"table {address} has the feature {', '.join(unknown)}. "
            "This program does not know the feature's rules for rewriting and deleting files. Use "
            "a table without this feature"
        )
    if facts.snapshot.clustering_columns and not known_as and isinstance(table.write, Adopted):
        table = replace(
            table,
            compaction=Compaction(
                data_layout=LiquidClustering(columns=facts.snapshot.clustering_columns)
            ),
        )
    try:
        with _ONE_AT_A_TIME:
            vacuum = plan(lake_facts, table) or "there is no table"
    except LakehouseError as error:
        vacuum = str(error)
    health = health_of(lake_facts.lake, table, facts)
    return TableFinding(
        table=table,
        facts=facts,
        health=health,
        vacuum=vacuum,
        risk=compaction_risk(lake_facts.lake, table, health.plan.engine.engine),
        known_as=known_as,
    )


def choose_key(address: str, tables: Mapping[str, Table], lake: Lake, *, wanted: str | None) -> str:
    """The key of a table to adopt: the wanted one, or one derived from its address.

    Raises:
        Refused: the key is taken, or the lake has files at the key's path. In this lake, also: the
            table's path is not `layer/name`, or the wanted key is not the table's path.
    """
    settings = lake.settings
    root = real_address(lake.settings.root)
    path = address.removeprefix(f"{root}/") if is_inside(address, root) else None
    if path is not None and (path.count("/") != 1 or wanted not in (None, path)):
        suggestion = f"the key {path}" if path.count("/") == 1 else "a table at layer/name"
        raise Refused(
            f"adopt {address}: the table lies in this lake, {root}, where a table's key is its "
            f"path. Use {suggestion}"
        )
    free_key = path or key_of(address, tables)
    taken = {*tables}
    while path is None and lake.holds_files(free_key):
        taken.add(free_key)
        free_key = key_of(address, taken)
    if wanted is not None and wanted in tables:
        raise Refused(
            f"adopt {address}: the table at {address_of(tables[wanted], settings)} already has the "
            f"key {wanted}. Use another key, for example {free_key}"
        )
    if path is None and wanted is not None and lake.holds_files(wanted):
        raise Refused(
            f"adopt {address}: the path of the key {wanted}, {settings.root}/{wanted}, already has "
            f"files. Use another key, for example {free_key}"
        )
    return wanted or free_key


def refuse_adoption(lake: Lake, address: str, tables: Iterable[Table]) -> None:
    """Refuses a table of another lake, and a table that lies inside or contains another table."""
    refuse_table_of_another_lake(lake, address, asked=f"adopt {address}")
    for table in tables:
        other = address_of(table, lake.settings)
        if is_inside(address, other) or is_inside(other, address):
            outer, inner = (other, address) if is_inside(address, other) else (address, other)
            raise Refused(
                f"adopt {address}: {inner} lies inside the folder of the table {outer}. Use "
                "only one of these two tables"
            )
    for above in takewhile(lambda folder: folder != lake.settings.root, folders_above(address)):
        if _may_be_table(above):
            raise Refused(
                f"adopt {address}: it lies inside the folder of the table {above}. Use "
                "only one of these two tables"
            )


def write_adopted(
    settings: Settings, tables: Iterable[Table], *, beside: Mapping[str, Table]
) -> None:
    """Adds tables to the file of adopted tables, and keeps the other entries.

    `beside` are all tables that are declared already. The file is replaced atomically, under a
    lock, so two people who adopt at once lose no entry.

    Raises:
        Refused: the file is not a file of adopted tables, already has one of these tables, or with
            them would make the next command fail.
        Transient: another process is writing the file.
    """
    store = DiskStore(settings.adopted.parent)
    name = settings.adopted.name
    try:
        with hold_lock(settings.home / "locks" / "adopted.lock", seconds=_WAIT_SECONDS):
            before = _HEAD
            with suppress(FileNotFoundError):
                before = store.read(name).decode("utf-8")
            known = parse_adopted(before, name=str(settings.adopted))
            added = {table.key: table for table in tables}
            if duplicates := [key for key in added if key in known]:
                raise Refused(f"{settings.adopted} already has {duplicates[0]}. Use another key")
            checked({**beside, **known, **added}, settings)
            text = "\n".join([before.rstrip("\n") + "\n", *map(adopted_lines, added.values())])
            if parse_adopted(text, name=str(settings.adopted)) != known | added:
                raise Broken(
                    f"{settings.adopted}: the new entries, parsed again, differ from the tables; "
                    "nothing was written"
                )
            store.put(name, text.encode("utf-8"))
    except BlockingIOError as error:
        raise Transient(
            f"{settings.adopted} is being written by another process; try again"
        ) from error


def _may_be_table(address: str) -> bool:
    """Whether the address is a table; false if this process may not read the address.

    A user who may read a table may lack permission for the folders above the table.
    """
    try:
        return is_table(store_at(address), "")
    except LakehouseError:
        return False
