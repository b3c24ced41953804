"""`lakehouse compact`: one table compacted through Dagster, predicted beside actual."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.commands.plan import plan_document, print_plans
from lakehouse.cli.context import Found, complete_table, open_table
from lakehouse.cli.output import json_option, print_figures, show, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.errors import Refused
from lakehouse.engine.compaction import run, unverified_commits
from lakehouse.engine.compaction.holds import refuse_held


@click.command("compact", epilog="Example: lakehouse compact silver/flights --dry-run")
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Only the plan; no JVM is started.")
@click.option(
    "--anyway", is_flag=True, help="Also a table that is paused, or whose declaration opts out."
)
@click.option(
    "--probe",
    is_flag=True,
    help="Measure the same scan before and after, for up to 30 s, and record it.",
)
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, probe: bool, as_json: bool) -> None:
    """Merge the small files of TABLE; predicted beside actual. The run goes through Dagster.

    A table that is paused, or whose declaration opts out, is refused without --anyway. A table with nothing to merge is left alone: the
    command prints the reason and starts no JVM. If an earlier run ended before it compared its rows, the command compares them first. No
    row changes, so nothing downstream follows.
    """
    opened, wanted = open_table(table)
    plan = run.plan(opened.lake, wanted)
    if plan is None:
        raise Refused(
            f"compact {table}: the table is declared and does not exist yet; write it first: lakehouse materialize {table}"
        )
    if dry_run:
        found = Found(table=wanted, value=plan)
        write_json(plan_document(found)) if as_json else print_plans([found], verbose=True)
        return
    if not anyway:
        refuse_held(opened.lake, wanted)
    document: Mapping[str, Any] = CompactionOutcome(plan=plan, version_after=None).as_json()
    if plan.bins or unverified_commits.expected(opened.lake, table) is not None:
        from lakehouse.cli.dagster_runs import open_recorder

        with (
            open_recorder(opened.lake.settings) as recorder,
            driver_for_command(opened.lake.settings),
        ):
            [done] = recorder.materialize(
                [f"compaction/{table}"], config={"anyway": anyway, "probe": probe}
            )
        document = done.outcome()["lakehouse/compaction"]
    write_json(document) if as_json else _print(document)


def _print(document: Mapping[str, Any]) -> None:
    if document["version_after"] is None:
        done = "the plan" if document["files_removed"] else "nothing to do"
        show(
            f"{document['table']}: {done} at version {document['version']}: {document['sentence']}"
        )
        for sentence in document["sentences"]:
            show(sentence)
        return
    versions = f"version {document['version']} -> {document['version_after']}"
    show(f"{document['table']}: {versions}, {document['reason']}: {document['sentence']}")
    print_figures(document)
    for sentence in document["sentences"]:
        show(sentence)
