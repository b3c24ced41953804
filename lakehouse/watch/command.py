"""`lakehouse health`, `plan` and `history`: the state of tables, what is due, and what was done."""

from collections.abc import Mapping, Sequence

import click

from lakehouse.base.operation import PRICE_HEADS, price_cells
from lakehouse.base.text import count_of, object_of
from lakehouse.cli.context import (
    cell_of,
    not_written,
    open_table,
    open_tables,
    print_errors,
    table_argument,
    tables_argument,
)
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    flag,
    json_option,
    print_grid,
    show,
    tell,
    time_text,
    write_json,
)
from lakehouse.compact.assess import account_of, health_of
from lakehouse.compact.plan.health import Health
from lakehouse.compact.plan.history import Entry
from lakehouse.declare.table import Table
from lakehouse.delta.commits import (
    ROWS_MOVED,
    Commit,
    is_compaction,
    keeps_rows,
    moves_rows,
    rebuilt_from,
    written_in,
)
from lakehouse.lake.lake import Found, facts_of, for_each_table
from lakehouse.watch.documents import health_document, history_document
from lakehouse.watch.due import plan_operations


@click.command("health", epilog="Example: lakehouse health silver/flights --verbose")
@tables_argument
@flag("-v", "--verbose", help="Also show the parts of each score and the file sizes.")
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
    if as_json:
        write_json([health_document(each) for each in readings])
    else:
        print_health(readings, verbose=verbose)
    return print_errors(readings)


def print_health(readings: Sequence[Found[Health]], *, verbose: bool = False) -> None:
    """Prints a table of health, the lowest score first; with `verbose`, also its parts."""
    # The highest score is 100, so tables without a score come last.
    ordered = sorted(readings, key=lambda each: each.value.score if each.value else 101)
    heads = ("score", "table", "files", "small", "mergeable", "bytes", "average", "rows", "")
    print_grid(heads, [_row(each) for each in ordered], numbers=("score", *heads[2:8]))
    if not verbose:
        return
    for health in [each.value for each in ordered if each.value]:
        title = f"{health.plan.table} at version {health.plan.version}: {health.sentence}"
        show(title, style="bold")
        for part in health.parts:
            show(f"  {part.name:<13} {part.value:4.2f} of weight {part.weight:<3} {part.sentence}")
        show()


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


@click.command("plan", epilog="Example: lakehouse plan bronze/weather")
@tables_argument
@flag("-v", "--verbose", help="Also show what is not due, and why, of all tables.")
@json_option
def plan_command(tables: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show what is due: compactions, vacuums, archives, TTLs and changed declarations.

    A changed declaration that stops writes comes first. Then operations are ranked by their benefit
    per day, divided by their cost; those without a price come last, by size. With TABLE, all of its
    operations are shown, and why each is due or not. Nothing is changed, and no JVM starts.

    A vacuum is planned from the log alone: lakehouse vacuum --dry-run also searches for orphans. A
    table's reads are estimated: one for each commit of a downstream table. This command does not
    know which runs are in progress. TABLE may also be the ADDRESS of a Delta table that is not
    declared: a folder (/data/orders, ./orders) or s3://bucket/orders.
    """
    context, chosen = open_tables(tables)
    reading = plan_operations(context.lake, context.tables, chosen)
    if as_json:
        ranks = enumerate(reading.operations, start=1)
        write_json([{"rank": rank, **each.as_json()} for rank, each in ranks])
        return print_errors(reading.errors)
    shows_all = verbose or bool(tables)
    due = [each for each in reading.operations if each.is_due]
    heads = ("operation", "table", "bytes", *PRICE_HEADS, "reason", "")
    rows = list[tuple[str, ...]]()
    for each in reading.operations if shows_all else due:
        size = bytes_text(each.size_bytes)
        price = price_cells(each.net_benefit)
        rows.append((each.operation, each.table, size, *price, each.reason, each.sentence))
    end = len(heads) if shows_all else -1  # the sentence is the last column
    if rows:
        print_grid(heads[:end], [row[:end] for row in rows], numbers=heads[2:5])
    not_due_count = len(reading.operations) - len(due)
    show(f"{count_of(len(due), 'operation')} due, {not_due_count} not due")
    return print_errors(reading.errors)


@click.command("history", epilog="Example: lakehouse history silver/flights --limit 10")
@table_argument
@click.option(
    "--limit", type=click.IntRange(min=1), help="Show only this many of the newest commits."
)
@flag("--compactions", help="Show only compactions.")
@json_option
def history_command(
    table: str,
    limit: int | None,
    compactions: bool,
    as_json: bool,
) -> None:
    """Show the commits of TABLE, newest first, and the cost account of its compactions.

    Shows the newest 500 commits at most: when and why each compaction ran, and its predicted and
    actual figures. The account at the end does not depend on the options: the mean error of the
    newest predictions, bytes rewritten per byte ingested, and wasted work. Does not start a JVM.
    """
    context, declared_table = open_table(table)
    table = declared_table.key
    facts = context.lake.facts(table)
    if facts is None:
        raise not_written(declared_table, operation=f"history {table}")
    account = account_of(context.lake, declared_table, facts)
    entries = {entry.compaction.version: entry for entry in account.entries}
    shown = [
        commit
        for commit in reversed(facts.history.commits)
        if not compactions or is_compaction(commit)
    ][:limit]
    if as_json:
        write_json(history_document(table, facts.snapshot.version, shown, account))
    else:
        _print_commits(shown, entries)
        for sentence in account.sentences:
            show(sentence)


def _print_commits(commits: Sequence[Commit], entries: Mapping[int, Entry]) -> None:
    if not commits:
        tell("the options select none of the newest commits")
        return
    heads = ("version", "time", "operation", "files +", "files -", "bytes +", "bytes -", "")
    rows = list[tuple[str, ...]]()
    for commit in commits:
        files = (count_text(len(commit.added_paths)), count_text(len(commit.removed_paths)))
        sizes = (bytes_text(commit.added_bytes), bytes_text(commit.removed_bytes))
        rows.append(
            (
                str(commit.version),
                time_text(commit.committed_ms),
                commit.operation,
                *files,
                *sizes,
                _why(commit, entries.get(commit.version)),
            )
        )
    print_grid(heads, rows, numbers=("version", *heads[3:7]))


def _why(commit: Commit, entry: Entry | None) -> str:
    """Why upkeep or a rebuild made a commit; for a compaction, also whether it went as predicted.

    For any other commit, empty or a note that no row changed.
    """
    if moves_rows(commit):
        metadata = written_in(commit)
        sentence = object_of(metadata.get("plan")).get("sentence")
        return str(sentence or f"rows moved by {metadata[ROWS_MOVED]}")
    if rebuilt_from(commit) is not None:
        return "rebuilt from its own rows" if keeps_rows(commit) else "rebuilt from its inputs"
    if entry is None:
        return "" if commit.changed_data else "no row changed"
    actual = entry.compaction
    predicted = actual.predicted
    if predicted is None:
        return "not by this program, so there is no prediction"
    wrong = [f"{each.name.replace('_', ' ')} {each.predicted:,}" for each in entry.wrong_figures]
    comparison = f"wrongly predicted: {', '.join(wrong)}" if wrong else "as predicted"
    sentence = f"{predicted.sentence}; {comparison}"
    if actual.seconds is not None and predicted.seconds is not None:
        sentence += f"; {actual.seconds:.1f} s, {predicted.seconds:.1f} predicted"
    return sentence
