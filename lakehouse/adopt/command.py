"""`lakehouse adopt`: describes Delta tables that other programs write, and adopts them.

Adopted tables are added to the file of adopted tables. Nothing is written into the tables.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import click

from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import name_below, quoted_address
from lakehouse.base.processes import hold_lock
from lakehouse.base.settings import Settings
from lakehouse.base.text import Document, count_of
from lakehouse.cli.context import (
    LakeContext,
    keys_by_address,
    open_declared,
    print_errors,
    resolve_address,
)
from lakehouse.cli.output import (
    attributes,
    flag,
    json_option,
    show,
    tell,
    write_json,
)
from lakehouse.compact.assess import health_of
from lakehouse.compact.plan.health import Health
from lakehouse.declare.adopted import adopted_lines, adopted_table, parse_adopted
from lakehouse.declare.policies import Compaction, LiquidClustering
from lakehouse.declare.table import Table, folders_above, key_of
from lakehouse.delta.protocol import notable_features, unknown_features
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.declared_tables import address_of, checked
from lakehouse.lake.lake import (
    MOST_FOLDERS,
    Found,
    Lake,
    find_tables,
    for_each_table,
    is_table,
    no_table,
    open_lake,
)
from lakehouse.store import DiskStore, real_address, store_at
from lakehouse.watch.command import print_health
from lakehouse.watch.documents import address_field


@frozen
class _Finding:
    """One table, with the declaration that it has, or would get."""

    table: Table
    address: str
    facts: TableFacts
    health: Health
    is_declared: bool

    @property
    def writers(self) -> dict[str, int]:
        """The programs that wrote the newest commits, each with its commit count, largest first."""
        engines = [commit.engine or "unknown" for commit in self.facts.history.commits]
        return dict(Counter(engines).most_common())

    def as_json(self) -> Document:
        """The documented JSON shape."""
        snapshot = self.facts.snapshot
        return {
            "table": self.table.key,
            "uri": self.address,
            "adopted": self.is_declared,
            "writers": self.writers,
            "features": notable_features(snapshot.features),
            "partition_by": list(snapshot.partition_columns),
            "clustered_by": list(snapshot.clustering_columns),
            "health": self.health.as_json(),
            "lines": "" if self.is_declared else adopted_lines(self.table),
        }


@click.command(
    "adopt",
    epilog="Examples: lakehouse adopt s3://warehouse/sales/orders; "
    "lakehouse adopt --prefix s3://warehouse --dry-run",
)
@click.argument("address", required=False, type=click.Path(file_okay=False))
@click.option(
    "--key",
    help="Key of the table, layer/name; the layer gives the defaults of its policy. "
    "Default: derived from ADDRESS.",
)
@click.option(
    "--prefix",
    type=click.Path(file_okay=False),
    help="Adopt every Delta table below this folder or s3://bucket/prefix.",
)
@flag("--dry-run", help="Show the tables, and write nothing.")
@json_option
def adopt_command(
    address: str | None, key: str | None, prefix: str | None, dry_run: bool, as_json: bool
) -> int:
    """Adopt a Delta table that other programs write. Does not start a JVM.

    Describes the table at ADDRESS (a folder, or s3://bucket/folder), and adds an entry to
    adopted.toml. After that, the lake observes, checks, compacts and vacuums the table like its own
    tables, but writes no rows to it. This command itself reads logs and lists storage, but writes
    nothing to the tables.
    """
    if (address is None) == (prefix is None):
        raise Refused(
            "adopt: use either an ADDRESS or --prefix, for example: lakehouse adopt "
            "s3://warehouse/sales/orders"
        )
    if prefix is not None and key is not None:
        raise Refused(
            "adopt --prefix: --key is the key of a single table. Omit it: each table gets a key "
            "that is derived from its address"
        )
    context = open_declared()
    addresses = _addresses_below(prefix or "") if address is None else [resolve_address(address)]
    findings = _inspected(context, addresses, key=key)
    readable = [each.value for each in findings if each.value]
    if address is not None and findings[0].error:
        raise findings[0].error
    if address is not None and readable[0].is_declared:
        declared_key = readable[0].table.key
        raise Refused(
            f"adopt {addresses[0]}: it is already declared as {declared_key}. Use lakehouse health "
            f"{declared_key}"
        )
    new = [each.table for each in readable if not each.is_declared]
    if new and not dry_run:
        write_adopted(context.lake.settings, new, declared=context.tables)
    if as_json:
        write_json([_document(each) for each in findings])
        return print_errors(findings)
    _print(findings)
    if new:
        verb = "would be added" if dry_run else "added"
        show(f"{count_of(len(new), 'table')} {verb} to {context.lake.settings.adopted}")
    if new and not dry_run:
        show("a running lake shows them once you reload its code location (Deployment, Reload)")
    return print_errors(findings)


def _addresses_below(prefix: str) -> Sequence[str]:
    folder = resolve_address(prefix)
    search = find_tables(store_at(folder), folder)
    if search.left_count:
        tell(
            f"{search.left_count:,} folders were not searched, because {folder} has more than "
            f"{MOST_FOLDERS:,} folders. Use --prefix with each of its subfolders"
        )
    if search.passed:
        tell(
            f"{count_of(len(search.passed), 'folder')} skipped, for example {search.passed[0]}: a "
            "name with = is a partition, and a name that begins with _ or . is hidden. To adopt a "
            "table in such a folder, use the table's address"
        )
    if not search.addresses:
        raise no_table(folder)
    return [*dict.fromkeys(map(real_address, search.addresses))]


def _inspected(
    context: LakeContext, addresses: Sequence[str], *, key: str | None
) -> list[Found[_Finding]]:
    """The finding or the error at each address, in order. Declared tables keep their keys."""
    settings = context.lake.settings
    tables = dict(context.tables)
    keys = keys_by_address(tables, settings)
    chosen = list[Table]()
    refused = dict[str, LakehouseError]()
    for address in addresses:
        if address in keys:
            chosen.append(tables[keys[address]])
            continue
        try:
            new_key = choose_key(address, tables, context.lake, given_key=key)
            table = adopted_table(new_key, address)
            refuse_adoption(context.lake, address)
            tables = checked({**tables, table.key: table}, settings)
        except LakehouseError as error:
            # The table is not adopted. Its finding needs a key, so it gets a placeholder.
            table = adopted_table(f"silver/refused_{len(refused)}", quoted_address(address))
            refused[table.key] = error
        chosen.append(table)
    lake = open_lake(settings, tables=tables.values())

    def inspect(table: Table) -> _Finding:
        if table.key in refused:
            raise refused[table.key]
        return _inspect(lake, table, is_declared=table.key in context.tables)

    return for_each_table(chosen, inspect)


def _inspect(lake: Lake, table: Table, *, is_declared: bool) -> _Finding:
    """The finding of a table, which keeps its liquid clustering if it is not declared yet.

    Raises:
        Refused: there is no table, or this program does not know one of its features.
    """
    facts = lake.facts(table.key)
    address = address_of(table, lake.settings)
    if facts is None:
        raise no_table(address)
    unknown = unknown_features(facts.snapshot.features)
    if unknown:
        raise Refused(
            f"table {address} has the feature {', '.join(unknown)}. "
            "This program does not know the feature's rules for rewriting and deleting files. Use "
            "a table without this feature"
        )
    columns = facts.snapshot.clustering_columns
    if columns and not is_declared:
        layout = LiquidClustering(columns=columns)
        table = replace(table, compaction=Compaction(data_layout=layout))
    return _Finding(
        table=table,
        address=address,
        facts=facts,
        health=health_of(lake, table, facts),
        is_declared=is_declared,
    )


def _document(finding: Found[_Finding]) -> Document:
    if finding.value:
        return finding.value.as_json()
    return {
        "table": None,
        "uri": "",
        **address_field(finding.table),
        "adopted": False,
        **attributes(finding, "reason", "sentence"),
    }


def _print(findings: Sequence[Found[_Finding]]) -> None:
    readable = [each.value for each in findings if each.value]
    print_health([Found(table=each.table, value=each.health) for each in readable])
    for each in readable:
        note = " (already declared)" if each.is_declared else ""
        writers = ", ".join(each.writers) or "unknown programs"
        show(f"{each.table.key} is {each.address}, written by {writers}{note}")
        features = notable_features(each.facts.snapshot.features)
        if features:
            show(f"  features: {', '.join(features)}")


_WAIT_SECONDS = 10.0
# Tables are two folders below the lake's root, quarantine tables are three folders below it.
_TABLE_DEPTHS = (2, 3)
_HEAD = (
    "# Tables that other programs write and this lake maintains. lakehouse adopt adds entries; "
    "docs/adopt.md explains them.\n"
)


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
    path = name_below(address, root)
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


def refuse_adoption(lake: Lake, address: str) -> None:
    """Refuses a table of another lake, and a table in the folder of an undeclared table."""
    for depth in _TABLE_DEPTHS:
        root, *below = real_address(address).rsplit("/", depth)
        if len(below) < depth or root in ("", "s3:", "s3:/", real_address(lake.settings.root)):
            continue
        is_lake = False
        # This process may not be allowed to list the folders above a table.
        with suppress(LakehouseError):
            is_lake = bool(store_at(root).folders("_lakehouse"))
        if is_lake:
            raise Refused(
                f"adopt {address}: it belongs to the lake {root}, which may keep versions that a "
                "vacuum by this lake would delete. Either choose a table that is in no lake, or "
                f"maintain this table with LAKEHOUSE_ROOT={root}"
            )
    for folder in folders_above(address):
        if folder == lake.settings.root:
            break
        is_outer_table = False
        with suppress(LakehouseError):  # as above
            is_outer_table = is_table(store_at(folder), "")
        if is_outer_table:
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
        Refused: the file is not a file of adopted tables, or would have a table twice, or one of
            the tables conflicts with another one (`checked`).
        Transient: another process is writing the file.
    """
    store = DiskStore(settings.adopted.parent)
    name = settings.adopted.name
    busy = Transient(f"{settings.adopted} is being written by another process; try again")
    lock = settings.home / "locks" / "adopted.lock"
    with hold_lock(lock, seconds=_WAIT_SECONDS, refusal=busy):
        old_text = _HEAD
        with suppress(FileNotFoundError):
            old_text = store.read(name).decode("utf-8")
        old_tables = parse_adopted(old_text, name=str(settings.adopted))
        new_tables = {table.key: table for table in tables}
        checked({**declared, **old_tables, **new_tables}, settings)
        entries = [adopted_lines(table) for table in new_tables.values()]
        text = "\n".join([old_text.rstrip("\n") + "\n", *entries])
        parse_adopted(text, name=str(settings.adopted))  # refuses a key that is there meanwhile
        store.put(name, text.encode("utf-8"))
