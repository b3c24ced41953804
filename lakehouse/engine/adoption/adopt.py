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
from lakehouse.engine.compaction.holds import compaction_risk
from lakehouse.engine.declared_tables import address_of, checked
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import Lake
from lakehouse.engine.lake_owner import refuse_table_of_another_lake
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
    run: LakeFacts, table: Table, facts: TableFacts, *, known_as: str = ""
) -> TableFinding:
    """Inspects one of the run's tables. Unknown table features are refused."""
    if unknown := unknown_features(facts.snapshot.features):
        raise Refused(
            f"table {address_of(table, run.lake.settings)} has the feature {', '.join(unknown)}: "
            "this program does not know its rules for rewriting and deleting files. Use a table "
            "without this feature"
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
            vacuum = plan(run, table) or "there is no table"
    except LakehouseError as error:
        vacuum = str(error)
    health = health_of(run.lake, table, facts)
    return TableFinding(
        table=table,
        facts=facts,
        health=health,
        vacuum=vacuum,
        risk=compaction_risk(run.lake, table, health.plan.engine.engine),
        known_as=known_as,
    )


def choose_key(address: str, tables: Mapping[str, Table], lake: Lake, *, wanted: str | None) -> str:
    """The key of a table to adopt: the wanted one, or one derived from its address.

    Raises:
        Refused: the key is taken, the lake has files at the key's path, or the table lies in this
            lake at a path that is not its key.
    """
    settings = lake.settings
    root = real_address(lake.settings.root)
    own = address.removeprefix(f"{root}/") if is_inside(address, root) else None
    if own is not None and (own.count("/") != 1 or wanted not in (None, own)):
        near = f"the key {own}" if own.count("/") == 1 else "a table at layer/name"
        raise Refused(
            f"adopt {address}: it lies in this lake, {root}, where a table's key is its path. Use"
            f" {near}"
        )
    free = own or key_of(address, tables)
    taken = {*tables}
    while own is None and lake.holds_files(free):
        taken.add(free)
        free = key_of(address, taken)
    if wanted is not None and wanted in tables:
        raise Refused(
            f"adopt {address}: the key {wanted} is taken, by "
            f"{address_of(tables[wanted], settings)}. Use another, like {free}"
        )
    if own is None and wanted is not None and lake.holds_files(wanted):
        raise Refused(
            f"adopt {address}: files lie at {settings.root}/{wanted}, the path of this key. "
            f"Use another key, like {free}"
        )
    return wanted or free


def refuse_adoption(lake: Lake, address: str, tables: Iterable[Table]) -> None:
    """Refuses a table of another lake, and one that lies inside or contains another table."""
    refuse_table_of_another_lake(lake, address, asked=f"adopt {address}")
    for table in tables:
        place = address_of(table, lake.settings)
        if is_inside(address, place) or is_inside(place, address):
            outer, inner = (place, address) if is_inside(address, place) else (address, place)
            raise Refused(
                f"adopt {address}: {inner} lies inside the folder of the table {outer}. Use "
                "tables that do not lie inside one another"
            )
    for above in takewhile(lambda folder: folder != lake.settings.root, folders_above(address)):
        if _may_be_table(above):
            raise Refused(
                f"adopt {address}: it lies inside the folder of the table {above}. Use "
                "tables that do not lie inside one another"
            )


def write_adopted(
    settings: Settings, tables: Iterable[Table], *, beside: Mapping[str, Table]
) -> None:
    """Adds tables to the file and keeps its other contents; `beside` are the known tables.

    The file is replaced atomically, under a lock, so two people who adopt at once lose no entry.

    Raises:
        Refused: the file is not a file of adopted tables, already has one of these tables, or would
            make the next command fail.
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
            if both := [key for key in added if key in known]:
                raise Refused(f"{settings.adopted} has {both[0]} already. Use another key")
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
    """Whether the address is a table; false if it may not be read.

    A user who may read a table may lack permission for the folders above it.
    """
    try:
        return is_table(store_at(address), "")
    except LakehouseError:
        return False
