"""`lakehouse adopt`: describes Delta tables that other programs write, and adopts them."""

import shlex
from collections.abc import Sequence
from typing import Any, get_args

import click

from lakehouse.cli.context import (
    LakeContext,
    address_field,
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
from lakehouse.core.adoption.adopted_file import adopted_lines, adopted_table
from lakehouse.core.adoption.inspection_report import TableFinding, totals_sentence
from lakehouse.core.declaration.adopted import Writers, quoted_address
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.text import count_of
from lakehouse.engine.adoption.adopt import (
    choose_key,
    inspect_table,
    refuse_adoption,
    write_adopted,
)
from lakehouse.engine.adoption.find_tables import MOST_FOLDERS, find_tables, no_table
from lakehouse.engine.declared_tables import address_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import open_lake
from lakehouse.engine.read_each_table import Found, for_each_table
from lakehouse.engine.store import real_address
from lakehouse.engine.vacuum.lake_facts import LakeFacts

FoundTable = Found[TableFinding]


@click.command(
    "adopt",
    epilog="Examples: lakehouse adopt s3://warehouse/sales/orders; "
    "lakehouse adopt --prefix s3://warehouse --dry-run",
)
@click.argument("address", required=False)
@click.option(
    "--key",
    help="Key of the table, layer/name; the layer gives the defaults of its policy. "
    "Default: derived from ADDRESS.",
)
@click.option("--prefix", help="Adopt every Delta table below this folder or s3://bucket/prefix.")
@click.option(
    "--writers",
    type=click.Choice(get_args(Writers)),
    default="unknown",
    show_default=True,
    help="How other programs commit: none during a compaction, all conditionally, or unknown.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="With --prefix: show only the N tables with the lowest scores. All are adopted.",
)
@click.option("--dry-run", is_flag=True, help="Show the tables, and write nothing.")
@json_option
def adopt_command(
    address: str | None,
    key: str | None,
    prefix: str | None,
    writers: str,
    top: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Adopt a Delta table that other programs write. Does not start a JVM.

    Describes the table at ADDRESS (a folder, or s3://bucket/folder), and adds an entry to
    adopted.toml. After that, the lake observes, checks, compacts and vacuums the table like its own
    tables, but writes no rows to it. With --writers unknown, no compaction runs that could
    overwrite a commit of another program. This command itself reads logs and lists storage, but
    writes nothing to the tables.
    """
    _check_options(address, key, prefix, top)
    context = open_declared()
    addresses = _addresses_below(prefix or "") if address is None else [resolve_address(address)]
    findings = _inspected(context, addresses, key=key, writers=writers)
    single = findings[0].value if address is not None else None
    if address is not None and findings[0].error:
        raise findings[0].error
    if single and single.known_as:
        raise Refused(
            f"adopt {addresses[0]}: it is already declared as {single.known_as}. Use lakehouse "
            f"health {single.known_as}"
        )
    readable = [each.value for each in findings if each.value]
    new = [each.table for each in readable if not each.known_as]
    if new and not dry_run:
        write_adopted(context.lake.settings, new, declared=context.tables)
    if as_json:
        write_json([_document(each) for each in findings])
        return print_errors(findings)
    if single:
        show(f"{single.table.key} is {single.address}", style="bold")
        for name, sentence in single.rows():
            show(f"  {name:<11} {sentence}")
    else:
        _print_fleet(findings, top=top)
    if new:
        _print_outcome(context, new, shows_entry=single is not None, dry_run=dry_run)
    if prefix is not None and readable:
        _print_next(context, readable, prefix, dry_run=dry_run)
    return print_errors(findings)


def _check_options(
    address: str | None, key: str | None, prefix: str | None, top: int | None
) -> None:
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
    if prefix is None and top is not None:
        raise Refused("adopt: --top needs --prefix. Omit --top: ADDRESS is a single table")


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
    context: LakeContext, addresses: Sequence[str], *, key: str | None, writers: str
) -> list[FoundTable]:
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
            table = adopted_table(new_key, address, writers=writers)
            refuse_adoption(context.lake, address, tables.values())
            tables[table.key] = table
        except LakehouseError as error:
            # The table is not adopted. Its finding needs a key, so it gets a placeholder.
            table = adopted_table(f"silver/refused_{len(refused)}", quoted_address(address))
            refused[table.key] = error
        chosen.append(table)
    lake = open_lake(settings, tables=tables.values())

    def read(table: Table) -> TableFacts:
        if table.key in refused:
            raise refused[table.key]
        if facts := lake.facts(table.key):
            return facts
        raise no_table(address_of(table, settings))

    logs = {each.table.key: each for each in for_each_table(chosen, read)}
    # A new table with an unreadable log is not adopted: it could block vacuums of other tables.
    unread = {key for key, each in logs.items() if each.error and key not in context.tables}
    readable = [table for key, table in tables.items() if key not in unread]
    run = LakeFacts(lake, readable, wanted=logs.keys())

    def inspect(table: Table) -> TableFinding:
        log = logs[table.key]
        if log.error:
            raise log.error
        assert log.value is not None
        known_as = table.key if table.key in context.tables else ""
        return inspect_table(run, table, log.value, known_as=known_as)

    return for_each_table(chosen, inspect)


def _document(finding: FoundTable) -> dict[str, Any]:
    if finding.value:
        return finding.value.as_json()
    return {
        "table": None,
        "uri": "",
        **address_field(finding.table),
        "adopted": False,
        **attributes(finding, "reason", "sentence"),
    }


def _print_fleet(findings: Sequence[FoundTable], *, top: int | None) -> None:
    # The highest score is 100, so tables without a score come last.
    ordered = sorted(findings, key=lambda each: each.value.health.score if each.value else 101)
    shown = ordered[:top]
    heads = ("score", "table", "files", "small", "into", "bytes", "past retention", "USD", "")
    print_grid(heads, [_row(each) for each in shown], numbers=("score", *heads[2:8]))
    if left := len(ordered) - len(shown):
        show(f"and {count_of(left, 'more table')}")
    for each in shown:
        if each.value:
            note = " (already declared)" if each.value.known_as else ""
            show(f"{each.value.table.key} is {each.value.address}{note}")
    show()
    show(totals_sentence([each.value for each in findings if each.value]))


def _print_next(
    context: LakeContext, findings: Sequence[TableFinding], prefix: str, *, dry_run: bool
) -> None:
    """Prints how to allow compactions, if `writers` is unknown and this holds some of them back."""
    held_back = [each for each in findings if each.risk]
    if not held_back:
        show("Adopted tables are compacted and vacuumed when due; nothing else is needed.")
        return
    file = context.lake.settings.adopted
    if dry_run and all(not each.known_as for each in held_back):
        command = f"lakehouse adopt --prefix {shlex.quote(prefix)} --writers none"
    else:
        command = f"""sed -i 's/^writers = "unknown"/writers = "none"/' {shlex.quote(str(file))}"""
    show(
        f"not compacted while writers is unknown: {count_of(len(held_back), 'table')}. If no other "
        f"program commits to them during a compaction, use: {command}"
    )


def _row(finding: FoundTable) -> tuple[str, ...]:
    if finding.value is None:
        return (
            "-",
            address_field(finding.table).get("uri", finding.table.key),
            *("-",) * 6,
            cell_of(finding),
        )
    health = finding.value.health
    plan = health.plan
    vacuum = finding.value.vacuum
    files_after = health.file_count - finding.value.openings_saved
    counts = (health.file_count, health.small_file_count, files_after)
    expired_text = "-" if isinstance(vacuum, str) else bytes_text(vacuum.size_bytes)
    sentence = f"{plan.sentence}; {vacuum}" if isinstance(vacuum, str) else plan.sentence
    return (
        f"{health.score:.1f}",
        plan.table,
        *map(count_text, counts),
        bytes_text(health.size_bytes),
        expired_text,
        f"{plan.estimate.usd:.3g}" if plan.bins else "-",
        sentence,
    )


def _print_outcome(
    context: LakeContext, new: Sequence[Table], *, shows_entry: bool, dry_run: bool
) -> None:
    verb = "would be added" if dry_run else "added"
    show()
    show(f"{count_of(len(new), 'table')} {verb} to {context.lake.settings.adopted}")
    if shows_entry:
        for line in adopted_lines(new[0]).splitlines():
            show(line)
    if not dry_run:
        show()
        show(
            "a running lake shows the table once you reload its code location (Deployment, Reload)"
        )
