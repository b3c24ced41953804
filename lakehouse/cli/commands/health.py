"""`lakehouse health`: file counts and health scores of tables."""

from collections.abc import Sequence

import click

from lakehouse.cli.context import (
    cell_of,
    complete_table,
    open_tables,
    print_errors,
)
from lakehouse.cli.output import bytes_text, count_text, json_option, print_grid, show, write_json
from lakehouse.core.declaration.table import Table
from lakehouse.core.ingest.outcome import quarantine_sentence
from lakehouse.core.scheduling.health import Health
from lakehouse.engine.adoption.find_tables import facts_of
from lakehouse.engine.ingest.quarantine.entries import quarantined_count
from lakehouse.engine.read_each_table import Found, for_each_table
from lakehouse.engine.table_documents import health_document
from lakehouse.engine.table_health import health_of


@click.command("health", epilog="Example: lakehouse health silver/flights --verbose")
@click.argument("tables", metavar="[TABLE|ADDRESS]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "-v", "--verbose", is_flag=True, help="Also show the parts of each score and the file sizes."
)
@json_option
def health_command(tables: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show file counts and health scores. Does not start a JVM.

    The table with the lowest score comes first, except with --json. The score of each TABLE
    (default: all) is a number from 0 to 100, and 100 is the best. Small files are smaller than
    three quarters of the target size. Mergeable files are the files that a compaction would merge.
    TABLE may also be the ADDRESS of a Delta table that is not declared: a folder (/data/orders,
    ./orders) or s3://bucket/orders.
    """
    context, chosen = open_tables(tables)

    def read(table: Table) -> Health | None:
        facts = facts_of(context.lake, table)
        return None if facts is None else health_of(context.lake, table, facts)

    readings = for_each_table(chosen, read)
    landed = [each.table for each in readings if each.table.source and not each.error]
    quarantines = for_each_table(landed, lambda table: quarantined_count(context.lake, table.key))
    quarantine_rows = _quarantine_rows(readings, quarantines)
    if as_json:
        write_json(
            [
                {
                    **health_document(each),
                    "declared": each.table.key not in context.by_address,
                    "quarantine_rows": quarantine_rows[each.table.key],
                }
                for each in readings
            ]
        )
    else:
        _print(readings, verbose=verbose)
        for key, rows in quarantine_rows.items():
            if rows:
                show(f"{key}: {quarantine_sentence(key, lines=rows)}")
    return print_errors([*readings, *quarantines])


def _quarantine_rows(
    readings: Sequence[Found[Health]], quarantines: Sequence[Found[int]]
) -> dict[str, int | None]:
    """The number of lines in quarantine, by table; `None` if unknown.

    It is unknown if the table's health or the quarantine cannot be read, or if the quarantine's log
    has no row counts. Other tables that are not loaded from landed files have 0.
    """
    rows = dict[str, int | None]()
    for reading in readings:
        rows[reading.table.key] = None if reading.error else 0
    for quarantine in quarantines:
        rows[quarantine.table.key] = quarantine.value
    return rows


def _print(readings: Sequence[Found[Health]], *, verbose: bool) -> None:
    # The highest score is 100, so tables without a score come last.
    ordered = sorted(readings, key=lambda each: each.value.score if each.value else 101)
    heads = ("score", "table", "files", "small", "mergeable", "bytes", "average", "rows", "")
    print_grid(
        heads, [_row(each) for each in ordered], numbers=("score", *heads[2:8]), style=_style
    )
    for each in ordered:
        if each.value and each.value.log.note:
            show(f"{each.table.key}: {each.value.log.note}", style="yellow")
    if not verbose:
        return
    for each in ordered:
        if each.value:
            _print_details(each.value)


def _row(reading: Found[Health]) -> tuple[str, ...]:
    health = reading.value
    if health is None:
        return ("-", reading.table.key, *("-",) * 6, cell_of(reading))
    files = (health.file_count, health.small_file_count, health.mergeable_file_count)
    sizes = (
        bytes_text(health.size_bytes),
        bytes_text(health.average_file_bytes),
        count_text(health.row_count),
    )
    return (
        f"{health.score:.1f}",
        health.plan.table,
        *map(count_text, files),
        *sizes,
        health.plan.sentence,
    )


def _style(row: Sequence[str]) -> str:
    if row[0] == "-":
        return "dim"
    score = float(row[0])
    if score < 50:
        return "red"
    return "yellow" if score < 75 else "green"


def _print_details(health: Health) -> None:
    show(f"{health.plan.table} at version {health.plan.version}: {health.sentence}", style="bold")
    for part in health.parts:
        show(f"  {part.name:<13} {part.value:4.2f} of weight {part.weight:<3} {part.sentence}")
    for label, count in health.histogram.items():
        if count:
            show(f"  {label:>12} {count:,}")
    show()
