"""`lakehouse compact`: one table compacted through Dagster, predicted beside actual."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.driver import driver_for_command
from lakehouse.cli.opened import Found, Opened, complete_table, open_declared
from lakehouse.cli.output import bytes_text, count_text, json_option, print_grid, write_json
from lakehouse.cli.plan import plan_document, print_plans
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.outcome import CompactionOutcome
from lakehouse.core.table import Table
from lakehouse.engine import compaction
from lakehouse.engine.account import with_account
from lakehouse.engine.hands import refuse_hands_off


@click.command(
    "compact",
    short_help="Merge a table's small files; predicted beside actual.",
    epilog="Example: lakehouse compact silver/flights --dry-run",
)
@click.argument("table", shell_complete=complete_table)
@click.option("--dry-run", is_flag=True, help="Only the plan; no JVM is started.")
@click.option("--anyway", is_flag=True, help="Also a table that is paused, or whose declaration opts out.")
@click.option("--probe", is_flag=True, help="Also scan the table as it was and as it is, up to 30 s, and tell what was gained.")
@json_option
def compact_command(table: str, dry_run: bool, anyway: bool, probe: bool, as_json: bool) -> None:
    """Merge the small files of TABLE, through Dagster, and show what was predicted beside what happened.

    A table that is paused, or whose declaration opts out, is refused unless --anyway says that it is meant. A table with nothing worth
    merging is left alone, no JVM is started for it, and the reason is told. No row changes, so nothing
    downstream follows.
    """
    opened = open_declared()
    [wanted] = opened.choose([table])
    plan = compaction.plan(opened.lake, wanted)
    if plan is None:
        raise Refused(f"compact {table}: the table is declared and does not exist yet; write it first: lakehouse materialize {table}")
    if dry_run:
        found = Found(table=wanted, value=plan)
        write_json(plan_document(found)) if as_json else print_plans([found], verbose=True)
        return
    if not anyway:
        refuse_hands_off(opened.lake, wanted)
    config = {"anyway": anyway, "probe": probe}
    outcome = _compact(opened, wanted, config) if plan.bins else CompactionOutcome(plan=plan, version_after=None)
    write_json(outcome.as_json()) if as_json else _print(outcome)


def _compact(opened: Opened, table: Table, config: Mapping[str, bool]) -> CompactionOutcome:
    from lakehouse.cli.recorder import open_recorder

    with open_recorder(opened.lake.settings) as recorder, driver_for_command(opened.lake.settings):
        [run] = recorder.materialize([f"compaction/{table.key}"], config=config)
    if run.error:
        raise run.error
    if run.state != "done":
        raise Broken(f"compact {table.key}: run {run.run_id} ended without an outcome; the page shows it under Runs")
    return _outcome(opened, table, run.metadata)


def _outcome(opened: Opened, table: Table, metadata: Mapping[str, Any]) -> CompactionOutcome:
    """The outcome as Dagster recorded it. Its plan is made again: at the version that it was made at, it can only be the same."""
    plan = compaction.plan(opened.lake, table, version=metadata["lakehouse/version_before"])
    if plan is None:
        raise Broken(f"compact {table.key}: it ran, but the log no longer goes back to version {metadata['lakehouse/version_before']}")
    from lakehouse.engine.probe import probes

    version_after = metadata.get("lakehouse/version_after")
    outcome = CompactionOutcome(
        plan=plan,
        version_after=version_after,
        files_removed=metadata["lakehouse/actual_files_removed"],
        files_added=metadata["lakehouse/actual_files_added"],
        bytes_removed=metadata["lakehouse/actual_bytes_removed"],
        bytes_added=metadata["lakehouse/bytes_added"],
        rows_verified=metadata.get("lakehouse/rows_verified"),
        seconds_optimize=metadata["lakehouse/optimize_seconds"],
        seconds_verify=metadata["lakehouse/verify_seconds"],
        conflicts=metadata["lakehouse/conflicts"],
        wasted_bytes=metadata["lakehouse/wasted_bytes"],
        wasted_seconds=metadata["lakehouse/wasted_seconds"],
        seconds_waited=metadata["lakehouse/waited_seconds"],
        probe=next((each for each in reversed(probes(opened.lake, table.key)) if each.version_after == version_after), None),
    )
    return with_account(opened.lake, table, outcome)


def _print(outcome: CompactionOutcome) -> None:
    plan = outcome.plan
    if outcome.version_after is None:
        why = "its files were merged or gone when OPTIMIZE looked; planned was" if plan.bins else "nothing to do"
        click.echo(f"{plan.table}: {why} at version {plan.version}: {plan.sentence}")
        return
    entry = outcome.entry
    rows = [
        ("files removed", count_text(plan.files_removed), count_text(outcome.files_removed)),
        ("files added", count_text(plan.files_added), count_text(outcome.files_added)),
        ("bytes removed", bytes_text(plan.bytes_removed), bytes_text(outcome.bytes_removed)),
        ("bytes added", bytes_text(plan.estimate.bytes_written), bytes_text(outcome.bytes_added)),
        ("seconds", f"{plan.estimate.seconds:.2f}", _number(entry and entry.compaction.seconds, 2)),
        ("USD", f"{plan.estimate.usd:.6f}", _number(entry and entry.usd, 6)),
    ]
    click.echo(f"{plan.table}: version {plan.version} -> {outcome.version_after}, {plan.reason.name}: {plan.sentence}")
    print_grid(("", "predicted", "actual"), rows, numbers=("predicted", "actual"))
    verified = "" if outcome.rows_verified is None else f", {outcome.rows_verified:,} rows verified in {outcome.seconds_verify:.1f} s"
    click.echo(f"predicted by {plan.estimate.basis}")
    click.echo(f"OPTIMIZE {outcome.seconds_optimize:.1f} s{verified}")
    if outcome.probe:
        click.echo(f"probe: {outcome.probe.sentence}")
    for sentence in outcome.account.sentences if outcome.account else ():
        click.echo(sentence)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
