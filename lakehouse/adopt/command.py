"""`lakehouse adopt`: describes Delta tables that other programs write, and adopts them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from lakehouse.adopt.maintain import (
    choose_key,
    refuse_adoption,
    refuse_unknown_features,
    with_clustering,
    write_adopted,
)
from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.paths import quoted_address
from lakehouse.base.text import count_of, usd_text
from lakehouse.cli.context import (
    LakeContext,
    cell_of,
    keys_by_address,
    open_declared,
    print_errors,
    resolve_address,
)
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    tell,
    write_json,
)
from lakehouse.compact.assess import health_of
from lakehouse.compact.plan.health import Health
from lakehouse.declare.adopted_file import adopted_lines, adopted_table
from lakehouse.declare.table import Table
from lakehouse.delta.protocol import notable_features
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.declared_tables import address_of
from lakehouse.lake.find_tables import MOST_FOLDERS, Found, find_tables, for_each_table, no_table
from lakehouse.lake.lake import open_lake
from lakehouse.store import real_address
from lakehouse.watch.documents import address_field


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        snapshot = self.facts.snapshot
        plan = self.health.plan
        return {
            "table": self.table.key,
            "uri": self.address,
            "adopted": self.is_declared,
            "writers": self.writers,
            "features": notable_features(snapshot.features),
            "partition_by": list(snapshot.partition_columns),
            "clustered_by": list(snapshot.clustering_columns),
            "health": self.health.as_json(),
            "compaction": {
                "reason": plan.reason.name,
                "sentence": plan.sentence,
                "files_removed": plan.files_removed,
                "files_added": plan.files_added,
                "seconds": round(plan.estimate.seconds, 3),
                "usd": round(plan.estimate.usd, 9),
            },
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
@click.option("--dry-run", is_flag=True, help="Show the tables, and write nothing.")
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
    if address is not None:
        _refuse_single(addresses[0], findings[0])
    readable = [each.value for each in findings if each.value]
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


def _refuse_single(address: str, finding: Found[_Finding]) -> None:
    """Refuses a table that cannot be adopted, or is declared already."""
    if finding.error:
        raise finding.error
    if finding.value is not None and finding.value.is_declared:
        key = finding.value.table.key
        raise Refused(
            f"adopt {address}: it is already declared as {key}. Use lakehouse health {key}"
        )


def _addresses_below(prefix: str) -> Sequence[str]:
    folder = resolve_address(prefix)
    search = find_tables(folder)
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
            refuse_adoption(context.lake, address, tables.values())
            tables[table.key] = table
        except LakehouseError as error:
            # The table is not adopted. Its finding needs a key, so it gets a placeholder.
            table = adopted_table(f"silver/refused_{len(refused)}", quoted_address(address))
            refused[table.key] = error
        chosen.append(table)
    lake = open_lake(settings, tables=tables.values())

    def inspect(table: Table) -> _Finding:
        if table.key in refused:
            raise refused[table.key]
        facts = lake.facts(table.key)
        address = address_of(table, settings)
        if facts is None:
            raise no_table(address)
        refuse_unknown_features(address, facts)
        is_declared = table.key in context.tables
        if not is_declared:
            table = with_clustering(table, facts)
        return _Finding(
            table=table,
            address=address,
            facts=facts,
            health=health_of(lake, table, facts),
            is_declared=is_declared,
        )

    return for_each_table(chosen, inspect)


def _document(finding: Found[_Finding]) -> dict[str, Any]:
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
    # The highest score is 100, so tables without a score come last.
    ordered = sorted(findings, key=lambda each: each.value.health.score if each.value else 101)
    heads = ("score", "table", "files", "small", "into", "bytes", "USD", "")
    print_grid(heads, [_row(each) for each in ordered], numbers=("score", *heads[2:7]))
    for each in ordered:
        if each.value:
            note = " (already declared)" if each.value.is_declared else ""
            writers = ", ".join(each.value.writers) or "unknown programs"
            show(f"{each.value.table.key} is {each.value.address}, written by {writers}{note}")
            features = notable_features(each.value.facts.snapshot.features)
            if features:
                show(f"  features: {', '.join(features)}")


def _row(finding: Found[_Finding]) -> tuple[str, ...]:
    if finding.value is None:
        name = address_field(finding.table).get("uri", finding.table.key)
        return ("-", name, *("-",) * 5, cell_of(finding))
    health = finding.value.health
    plan = health.plan
    files_after = health.file_count - plan.files_removed + plan.files_added
    return (
        f"{health.score:.1f}",
        plan.table,
        *map(count_text, (health.file_count, health.small_file_count, files_after)),
        bytes_text(health.size_bytes),
        usd_text(plan.estimate.usd) if plan.bins else "-",
        plan.sentence,
    )
