"""`lakehouse plan`: what each compaction would do, and why, without doing it."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.cli.opened import Found, complete_table, look_at_each, open_declared
from lakehouse.cli.output import bytes_text, console, count_text, json_option, print_grid, write_json
from lakehouse.cli.verdict import absent_sentence, exit_code, tell_errors
from lakehouse.core.compaction import CompactionPlan, plan_table
from lakehouse.core.table import Table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake


@click.command("plan", short_help="What each compaction would do, and why; no JVM.", epilog="Example: lakehouse plan bronze/weather --json")
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@click.option("-v", "--verbose", is_flag=True, help="Also the files of every bin.")
@json_option
def plan_command(tables: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Show what a compaction of each TABLE (default: all) would do, and why, or why nothing.

    Nothing is touched and no JVM is started. Tables with the most to gain come first.
    """
    opened = open_declared()
    found = look_at_each(opened.choose(tables), lambda table: plan_of(opened.lake, table))
    if as_json:
        write_json([plan_document(each) for each in found])
    else:
        print_plans(found, verbose=verbose)
    tell_errors(found)
    return exit_code(found)


def plan_of(lake: Lake, table: Table, *, version: int | None = None) -> CompactionPlan | None:
    """The compaction of a table as it is now, or was at `version`; `None` where there is no table."""
    facts = lake.facts(table.key, version=version)
    return plan_table(table, facts.layout, facts.history, now_ms=now_ms()) if facts else None


def plan_document(found: Found[CompactionPlan]) -> dict[str, Any]:
    """The documented shape, also where there is no plan: version null, nothing to remove, and the reason."""
    if found.value:
        return found.value.as_json()
    reason, sentence = absent_sentence(found)
    return {
        "table": found.table.key,
        "version": None,
        "reason": reason,
        "sentence": sentence,
        "statement": None,
        "target_file_bytes": None,
        "files_removed": 0,
        "files_added": 0,
        "bytes_removed": 0,
        "files_left": 0,
        "estimate": None,
        "bins": [],
    }


def print_plans(found: Sequence[Found[CompactionPlan]], *, verbose: bool) -> None:
    """A table, those with the most to gain first; with `verbose`, the bins below it."""
    ordered = sorted(found, key=lambda each: each.value.files_removed - each.value.files_added if each.value else -1, reverse=True)
    heads = ("table", "version", "files", "into", "bytes", "reason", "")
    print_grid(heads, [_row(each) for each in ordered], numbers=heads[1:5])
    for plan in [each.value for each in ordered if each.value and each.value.bins and verbose]:
        console().print(f"{plan.table}: {plan.estimate.sentence}")
        for bin_ in plan.bins:
            where = ", ".join(f"{column}={value}" for column, value in bin_.partition) or "whole table"
            console().print(f"{plan.table}, {where}: {len(bin_.files)} files, {bytes_text(bin_.size_bytes)}")
            for file in bin_.files:
                console().print(f"  {bytes_text(file.size_bytes):>10}  {file.path}", soft_wrap=True)


def _row(found: Found[CompactionPlan]) -> tuple[str, ...]:
    plan = found.value
    if plan is None:
        return (found.table.key, "-", "-", "-", "-", *absent_sentence(found))
    counts = (count_text(plan.files_removed), count_text(plan.files_added), bytes_text(plan.bytes_removed))
    return (plan.table, str(plan.version), *counts, plan.reason.name, plan.sentence)
