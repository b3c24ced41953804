"""`lakehouse history`: the commits of a table, and the cost account of its compactions."""

from collections.abc import Sequence
from typing import Any, cast

import click

from lakehouse.cli.context import complete_table, not_written, open_table
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    tell,
    time_text,
    write_json,
)
from lakehouse.core.costs.compaction_history import Entry
from lakehouse.core.delta.commits import (
    ROWS_MOVED,
    Commit,
    is_compaction,
    keeps_rows,
    moves_rows,
    rebuilt_from,
    written_in,
)
from lakehouse.engine.table_documents import EXACT_FIGURES, history_document
from lakehouse.engine.table_health import account_of


@click.command("history", epilog="Example: lakehouse history silver/flights --limit 10")
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Show only this many of the newest commits."
)
@click.option("--compactions", is_flag=True, help="Show only compactions.")
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
    commits = [(commit, entries.get(commit.version)) for commit in shown]
    if as_json:
        write_json(history_document(table, facts.snapshot.version, shown, account))
    else:
        _print(commits)
        for sentence in account.sentences:
            show(sentence)


def _print(commits: Sequence[tuple[Commit, Entry | None]]) -> None:
    if not commits:
        tell("the options select none of the newest commits")
        return
    heads = ("version", "time", "operation", "files +", "files -", "bytes +", "bytes -", "")
    rows = list[tuple[str, ...]]()
    for commit, entry in commits:
        files = (count_text(len(commit.added_paths)), count_text(len(commit.removed_paths)))
        sizes = (bytes_text(commit.added_bytes), bytes_text(commit.removed_bytes))
        rows.append(
            (
                str(commit.version),
                time_text(commit.committed_ms),
                commit.operation,
                *files,
                *sizes,
                _why(commit, entry),
            )
        )
    compactions = {str(commit.version) for commit, _ in commits if is_compaction(commit)}
    print_grid(
        heads,
        rows,
        numbers=("version", *heads[3:7]),
        style=lambda row: "cyan" if row[0] in compactions else "",
    )


def _why(commit: Commit, entry: Entry | None) -> str:
    """Why upkeep or a rebuild made a commit; for a compaction, also whether it went as predicted.

    For any other commit, empty or a note that no row changed.
    """
    if moves_rows(commit):
        metadata = written_in(commit)
        plan = metadata.get("plan")
        sentence = cast("dict[str, Any]", plan).get("sentence") if isinstance(plan, dict) else None
        return str(sentence or f"rows moved by {metadata[ROWS_MOVED]}")
    if rebuilt_from(commit) is not None:
        return "rebuilt from its own rows" if keeps_rows(commit) else "rebuilt from its inputs"
    if entry is None:
        return "" if commit.changed_data else "no row changed"
    actual = entry.compaction
    predicted = entry.compaction.predicted
    if predicted is None:
        return "not by this program, so there is no prediction"
    wrong = [
        f"{name.replace('_', ' ')} {getattr(predicted, name):,}"
        for name in EXACT_FIGURES
        if getattr(predicted, name) != getattr(actual, name)
    ]
    comparison = f"wrongly predicted: {', '.join(wrong)}" if wrong else "as predicted"
    sentence = f"{predicted.sentence}; {comparison}"
    if actual.seconds is not None and predicted.seconds is not None:
        sentence += f"; {actual.seconds:.1f} s, {predicted.seconds:.1f} predicted"
    return sentence
