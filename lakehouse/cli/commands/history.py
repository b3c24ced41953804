"""`lakehouse history`: the commits of a table, and the cost account of its compactions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from lakehouse.cli.commands.backtest_text import check_plot, draw_files
from lakehouse.cli.context import complete_table, not_written, open_table
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    tell,
    time_text,
    write_json,
)
from lakehouse.core.costs.compaction_history import Entry, errors_as_json
from lakehouse.core.delta.commits import (
    ROWS_MOVED,
    Commit,
    is_compaction,
    keeps_rows,
    moves_rows,
    rebuilt_from,
    written_in,
)
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.table_health import account_of
from lakehouse.report.chart import Series, text_chart

_IN_TERMINAL = "-"  # the value of --plot without a file
# The figures whose prediction counts as wrong if it is not exact.
_COUNTED = ("files_removed", "files_added", "bytes_removed")


@click.command("history", epilog="Example: lakehouse history silver/flights --limit 10 --plot")
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Show only this many of the newest commits."
)
@click.option("--compactions", is_flag=True, help="Show only compactions.")
@click.option(
    "--plot",
    metavar="[FILE]",
    is_flag=False,
    flag_value=_IN_TERMINAL,
    help="Plot the file count over versions: in the terminal, or into a .png or .svg file.",
)
@json_option
def history_command(
    table: str,
    limit: int | None,
    compactions: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show the commits of TABLE, newest first, and the cost account of its compactions.

    Shows the newest 500 commits at most: when and why each compaction ran, and its predicted and
    actual figures. The account at the end does not depend on the options: the mean error of the
    newest predictions, bytes rewritten per byte ingested, and wasted work. Does not start a JVM.
    """
    if plot is not None and plot != _IN_TERMINAL:
        check_plot(Path(plot))
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
        write_json(
            {
                "table": table,
                "version": facts.snapshot.version,
                "commits": [_document(commit, entry) for commit, entry in commits],
                "account": account.as_json(),
            }
        )
    else:
        _print(commits)
        for sentence in account.sentences:
            show(sentence)
    if plot is not None:
        _plot(facts, plot, as_json=as_json)


def _document(commit: Commit, entry: Entry | None) -> dict[str, Any]:
    return {
        **attributes(commit, "version", "committed_ms", "operation", "changed_data"),
        "files_added": len(commit.added_paths),
        "files_removed": len(commit.removed_paths),
        "bytes_added": commit.added_bytes,
        "bytes_removed": commit.removed_bytes,
        "compaction": _compaction(entry) if entry else None,
    }


def _compaction(entry: Entry) -> dict[str, Any]:
    actual = entry.compaction
    predicted = entry.compaction.predicted
    return {
        "reason": predicted.reason if predicted else None,
        "sentence": predicted.sentence if predicted else None,
        **{
            f"predicted_{name}": getattr(predicted, name, None)
            for name in (*_COUNTED, "bytes_added", "seconds", "usd")
        },
        **{
            f"actual_{name}": getattr(actual, name)
            for name in (*_COUNTED, "bytes_added", "seconds")
        },
        "actual_usd": None if entry.usd is None else round(entry.usd, 9),
        "errors": errors_as_json(entry.errors),
        "mean_errors": errors_as_json(entry.mean_errors),
    }


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
        for name in _COUNTED
        if getattr(predicted, name) != getattr(actual, name)
    ]
    comparison = f"wrongly predicted: {', '.join(wrong)}" if wrong else "as predicted"
    sentence = f"{predicted.sentence}; {comparison}"
    if actual.seconds is not None and predicted.seconds is not None:
        sentence += f"; {actual.seconds:.1f} s, {predicted.seconds:.1f} predicted"
    return sentence


def _plot(facts: TableFacts, where: str, *, as_json: bool) -> None:
    commits = facts.history.commits
    counts = facts.history.file_counts(facts.snapshot.file_count)
    series = [
        Series(
            name="files",
            points=[(commit.version, count) for commit, count in zip(commits, counts, strict=True)],
        )
    ]
    marks = [commit.version for commit in commits if is_compaction(commit)]
    if where == _IN_TERMINAL:
        print_line = tell if as_json else show
        for line in text_chart(series, marks, marked="compaction"):
            print_line(line)
        return
    draw_files(
        Path(where),
        f"{facts.snapshot.table}: files after each version; a tick at each compaction",
        series,
        marks,
    )
