"""The checks of a table. They run after a write, after upkeep that changed it, and on request.

The result of `health` is made in `assets.metadata`, next to the metadata with the same facts.
"""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from lakehouse.assets.dagster_records import runs_in_flight
from lakehouse.assets.events import Reporter
from lakehouse.assets.keys import table_key
from lakehouse.assets.metadata import health_result
from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.installation import load_capability
from lakehouse.base.reasons import CheckResult
from lakehouse.base.text import count_of, first_names
from lakehouse.compact.assess import Assessment, assess, recent_compactions
from lakehouse.compact.plan.health import assess_log_debt, assess_small_files
from lakehouse.compact.plan.history import assess_breaker
from lakehouse.declare.adopted import is_maintained
from lakehouse.declare.table import Table
from lakehouse.delta.log.read_log import unreadable_files
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.evolve.plan.changes import Kind
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.plan import restore_advice

_DESCRIPTIONS = {
    "health": "The score, the files, the last and next upkeep. Fails only without a readable log.",
    "readable": "The log can be read, and every file that the table needs is stored and readable.",
    "small_files": "Compaction keeps up with the small files.",
    "log_debt": "The log is checkpointed often enough.",
    "breaker": "The table's circuit breaker is closed, so that another compaction may run.",
    "declaration": "The next write is not refused, and the present code computed all rows.",
    "quarantine": "The quarantine holds no refused lines.",
    "lifecycle": "No lifecycle rule of the bucket deletes or archives files that the table needs.",
}
# The assessments that writes pass to the checks of the same run, by run id and table.
_write_assessments: dict[tuple[str, str], Assessment] = {}


def health_check(table: Table, lake: Lake) -> dg.AssetChecksDefinition:
    """All checks of a table. Each can be run alone."""
    key = table_key(table)

    @dg.multi_asset_check(
        name=f"{table.layer}_{table.name}_checks",
        specs=[
            dg.AssetCheckSpec(name, asset=key, description=_DESCRIPTIONS[name])
            for name in check_names(table, lake)
        ],
        can_subset=True,
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected_names = {key.name for key in context.selected_asset_check_keys}
        with errors_for_dagster(context):
            assessed = _write_assessments.pop((context.run.run_id, table.key), None)
            results = judge(table, lake, assessed)
        for result in results:
            if result.name in selected_names:
                yield dg.AssetCheckResult(asset_key=key, **check_fields(result))

    return check


def check_names(table: Table, lake: Lake) -> tuple[str, ...]:
    """The names of a table's checks.

    Only tables on S3 have `lifecycle`, and only landed tables have `quarantine`. Adopted tables
    lack `declaration`, because other programs change their columns. Only tables of `maintain` have
    `health`: their own code materializes them, so their pages do not show our observations.
    """
    has_check = {
        "lifecycle": lake.on_s3(table.key),
        "quarantine": table.source is not None,
        "declaration": not table.adopted,
        "health": is_maintained(table),
    }
    return tuple(name for name in _DESCRIPTIONS if has_check.get(name, True))


def judge(table: Table, lake: Lake, assessed: Assessment | None = None) -> tuple[CheckResult, ...]:
    """The results for a table, one per name in `check_names`.

    Without `assessed`, the table's log is read now. All checks fail with the same error if the log
    cannot be read or names files elsewhere (a shallow clone). All pass if there is no table yet.

    Raises:
        Transient: storage did not answer.
    """
    names = check_names(table, lake)
    try:
        facts = lake.facts(table.key) if assessed is None else assessed.facts
        if facts is None:
            sentence = "there is no table yet"
            return tuple(CheckResult(name=name, ok=True, sentence=sentence) for name in names)
        known = assessed or assess(lake, table, facts)
        missing, archived = unreadable_files(lake.store, facts.snapshot)
    except (Broken, Refused) as error:
        return tuple(unreadable(name, error) for name in names)
    judges: dict[str, Callable[[], CheckResult]] = {
        "health": lambda: health_result(table, known),
        "readable": lambda: _readable(known.facts.snapshot, missing, archived),
        "small_files": lambda: assess_small_files(known.health),
        "log_debt": lambda: assess_log_debt(known.health),
        "breaker": lambda: _breaker(table, lake, known),
        "declaration": lambda: _declaration(table, lake, known.facts),
        "quarantine": lambda: _quarantine(table, lake),
        "lifecycle": lambda: load_capability("retain.run.tiers").check_lifecycle(
            lake, known.facts.snapshot
        ),
    }
    return tuple(judges[name]() for name in names)


def hand_on(run_id: str, table: Table, assessed: Assessment) -> None:
    """Keeps a write's assessment for the checks of the same run; drops those of other runs."""
    for key in [key for key in _write_assessments if key[0] != run_id]:
        del _write_assessments[key]
    _write_assessments[run_id, table.key] = assessed


def check_events(
    reporter: Reporter, table: Table, lake: Lake, assessed: Assessment | None = None
) -> Iterator[dg.AssetCheckEvaluation]:
    """The check results as events, as if the checks had run.

    While another run that writes the table is queued or running, there are none, because that run
    checks the table itself. Dagster shows the check that was planned last. That run's checks were
    planned when it was created, so results from here would hide them.
    """
    results = judge(table, lake, assessed)
    writers = [
        run.name for run in runs_in_flight(reporter.instance, [table]) if not run.is_compaction
    ]
    if any(name != reporter.run_id[:8] for name in writers):
        reporter.tell(
            f"{table.key} will be checked by the run that writes it next: {', '.join(writers)}"
        )
        return
    for result in results:
        yield evaluation_of(table, result)


def check_fields(result: CheckResult) -> dict[str, Any]:
    """The fields that Dagster's check result and its check event share."""
    return {
        "check_name": result.name,
        "passed": result.ok,
        "severity": dg.AssetCheckSeverity.ERROR if result.is_error else dg.AssetCheckSeverity.WARN,
        "description": result.sentence,
        "metadata": {**result.details, **result.numbers},
    }


def evaluation_of(table: Table, result: CheckResult) -> dg.AssetCheckEvaluation:
    """A result as an event on the table's asset."""
    return dg.AssetCheckEvaluation(
        asset_key=table_key(table), blocking=False, **check_fields(result)
    )


def _readable(snapshot: Snapshot, missing: list[str], archived: list[str]) -> CheckResult:
    sentences = list[str]()
    if missing:
        sentences.append(
            f"storage lacks {count_of(len(missing), 'file')} of version {snapshot.version}:"
            f" {first_names(missing)}"
        )
    if archived:
        sentences.append(
            f"version {snapshot.version} has {count_of(len(archived), 'archived file')}:"
            f" {first_names(archived)}"
        )
        address = snapshot.uri.replace("s3a://", "s3://", 1)
        sentences.append(
            "no scan and no compaction can read archived files, unless they are restored."
            f" {restore_advice(f'{address}/{archived[0]}')}"
        )
    if not sentences:
        sentences.append(
            f"version {snapshot.version} has {count_of(snapshot.file_count, 'file')} of"
            f" {snapshot.size_bytes} bytes, all in storage"
        )
    return CheckResult(
        name="readable",
        ok=not missing and not archived,
        sentence="; ".join(sentences),
        is_error=True,
        numbers={"missing_files": len(missing), "archived_files": len(archived)},
    )


def _declaration(table: Table, lake: Lake, facts: TableFacts) -> CheckResult:
    """Fails if the next write would be refused, or if older code computed some of the rows."""
    from lakehouse.evolve.compare import compare_without_spark

    plan = compare_without_spark(lake, table, facts)
    sentences = [plan.sentence, plan.advice]
    is_changed_code = bool(plan.of(Kind.CODE_CHANGED))
    if is_changed_code and not plan.blocking:
        sentences.append(f"Use `lakehouse rebuild {table.key}` to compute its rows again.")
    return CheckResult(
        name="declaration",
        ok=not plan.blocking and not is_changed_code,
        sentence=". ".join(each.rstrip(".") for each in sentences if each),
        is_error=bool(plan.blocking),
        numbers={"changes": len(plan.changes)},
    )


def _breaker(table: Table, lake: Lake, assessed: Assessment) -> CheckResult:
    compactions = assessed.compactions
    if compactions is None:
        compactions = recent_compactions(lake, table.key)
    rewrites = assessed.state.rewrites
    state = assess_breaker(compactions, rewrites, now_ms())
    numbers: dict[str, float] = {
        "rewrites_in_a_row": rewrites.times,
        "rewritten_bytes": rewrites.bytes_rewritten,
    }
    sentence = f"the breaker is closed: {count_of(rewrites.times, 'pointless rewrite')} in a row"
    if state is not None:
        numbers["retry_at_ms"] = state.retry_at_ms
        sentence = state.sentence
    return CheckResult(name="breaker", ok=state is None, sentence=sentence, numbers=numbers)


def _quarantine(table: Table, lake: Lake) -> CheckResult:
    from lakehouse.land.ledger import quarantine_key, quarantined_count

    key = quarantine_key(table.key)
    try:
        rows = quarantined_count(lake, table.key)
    except (Broken, Refused) as error:
        return unreadable("quarantine", error)
    sentence = "no refused lines"
    if rows is None:
        sentence = f"{key} contains refused lines, but its log does not record how many"
    elif rows:
        sentence = (
            f"{count_of(rows, 'refused line')} in {key}, each with its file, line number, reason "
            f"and text. Use lakehouse quarantine show {table.key}, then retry or drop"
        )
    numbers = {} if rows is None else {"lines": rows}
    return CheckResult(name="quarantine", ok=rows == 0, sentence=sentence, numbers=numbers)


def unreadable(name: str, error: LakehouseError) -> CheckResult:
    """The result of a check that fails with this error."""
    return CheckResult(name=name, ok=False, sentence=str(error), is_error=True)
