"""`lakehouse compact`: one table compacted through Dagster, predicted beside actual."""

from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.commands.plan import plan_document, print_plans
from lakehouse.cli.context import Found, Opened, complete_table, open_declared
from lakehouse.cli.output import bytes_text, count_text, json_option, print_grid, show, write_json
from lakehouse.cli.spark_server import driver_for_command
from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Prediction
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.compaction import run
from lakehouse.engine.compaction.hold_back import refuse_hands_off
from lakehouse.engine.compaction.ledger import with_account
from lakehouse.engine.compaction.unverified import unverified


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
    merging is left alone, no JVM is started for it, and the reason is told, unless a run before was ended before it compared the rows: that
    is done first. No row changes, so nothing downstream follows.
    """
    opened = open_declared()
    [wanted] = opened.choose([table])
    plan = run.plan(opened.lake, wanted)
    if plan is None:
        raise Refused(f"compact {table}: the table is declared and does not exist yet; write it first: lakehouse materialize {table}")
    if dry_run:
        found = Found(table=wanted, value=plan)
        write_json(plan_document(found)) if as_json else print_plans([found], verbose=True)
        return
    if not anyway:
        refuse_hands_off(opened.lake, wanted)
    config = {"anyway": anyway, "probe": probe}
    is_due = bool(plan.bins) or unverified(opened.lake, wanted.key) is not None
    outcome, told = _compact(opened, wanted, config) if is_due else (CompactionOutcome(plan=plan, version_after=None), _predicted(plan))
    write_json(_document(outcome, told)) if as_json else _print(outcome, told)


def _compact(opened: Opened, table: Table, config: Mapping[str, bool]) -> tuple[CompactionOutcome, Prediction]:
    from lakehouse.cli.dagster_runs import open_recorder

    with open_recorder(opened.lake.settings) as recorder, driver_for_command(opened.lake.settings):
        [run] = recorder.materialize([f"compaction/{table.key}"], config=config)
    if run.error:
        raise run.error
    if run.state != "done":
        raise Broken(f"compact {table.key}: run {run.run_id} ended without an outcome; the page shows it under Runs")
    outcome = _outcome(opened, table, run.metadata)
    return outcome, _recorded(outcome.plan, run.metadata)


def _recorded(plan: CompactionPlan, metadata: Mapping[str, Any]) -> Prediction:
    """What was predicted of the statement that ran; after a conflict that is not what a plan of the whole table would do."""
    figures = {name: metadata[f"lakehouse/predicted_{name}"] for name in plan.predicted}
    reason, sentence, source = (metadata[f"lakehouse/{name}"] for name in ("reason", "plan", "predicted_by"))
    return Prediction(mark="", reason=reason, sentence=sentence, source=source, **figures)


def _predicted(plan: CompactionPlan) -> Prediction:
    """What a plan predicts, as it would be recorded."""
    return Prediction(mark="", reason=plan.reason.name, sentence=plan.sentence, source=plan.estimate.basis, **plan.predicted)


def _document(outcome: CompactionOutcome, told: Prediction) -> dict[str, Any]:
    """The outcome's shape; where another plan ran than the one made again, its recorded figures, and null for what is not recorded."""
    document = outcome.as_json()
    if told == _predicted(outcome.plan):
        return document
    figures = {name: getattr(told, name) for name in ("reason", "sentence", "files_removed", "files_added", "bytes_removed")}
    estimated = {"seconds": told.seconds, "usd": told.usd, "bytes_read": told.bytes_removed, "bytes_written": told.bytes_added}
    unknown = dict.fromkeys(("vcpu_hours", "get_requests", "put_requests"))
    return {**document, **figures, "estimate": {**document["estimate"], **unknown, **estimated}, "files_left": None, "bins": None}


def _outcome(opened: Opened, table: Table, metadata: Mapping[str, Any]) -> CompactionOutcome:
    """The outcome as Dagster recorded it. Its plan is made again: at the version that it was made at, the same unless a race was lost."""
    plan = run.plan(opened.lake, table, version=metadata["lakehouse/version_before"])
    if plan is None:
        raise Broken(f"compact {table.key}: it ran, but the log no longer goes back to version {metadata['lakehouse/version_before']}")
    from lakehouse.engine.compaction.probe import probes

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


def _print(outcome: CompactionOutcome, told: Prediction) -> None:
    plan = outcome.plan
    if outcome.version_after is None:
        why = "its files were merged or gone when OPTIMIZE looked; planned was" if told.files_removed else "nothing to do"
        show(f"{plan.table}: {why} at version {plan.version}: {told.sentence}")
        return
    entry = outcome.entry
    rows = [
        ("files removed", count_text(told.files_removed), count_text(outcome.files_removed)),
        ("files added", count_text(told.files_added), count_text(outcome.files_added)),
        ("bytes removed", bytes_text(told.bytes_removed), bytes_text(outcome.bytes_removed)),
        ("bytes added", bytes_text(told.bytes_added or 0), bytes_text(outcome.bytes_added)),
        ("seconds", _number(told.seconds, 2), _number(entry and entry.compaction.seconds, 2)),
        ("USD", _number(told.usd, 6), _number(entry and entry.usd, 6)),
    ]
    show(f"{plan.table}: version {plan.version} -> {outcome.version_after}, {told.reason}: {told.sentence}")
    print_grid(("", "predicted", "actual"), rows, numbers=("predicted", "actual"))
    verified = "" if outcome.rows_verified is None else f", {outcome.rows_verified:,} rows verified in {outcome.seconds_verify:.1f} s"
    show(f"predicted by {told.source}")
    show(f"OPTIMIZE {outcome.seconds_optimize:.1f} s{verified}")
    if outcome.probe:
        show(f"probe: {outcome.probe.sentence}")
    for sentence in outcome.account.sentences if outcome.account else ():
        show(sentence)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
