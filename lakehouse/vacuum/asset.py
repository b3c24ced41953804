"""One vacuum asset per table, downstream of the inventory.

A new inventory requests the vacuums of all tables in one run, except those that opt out. With
`Vacuum(after_compaction=True)`, a compaction also requests the vacuum of its table. A vacuum asset
depends only on the inventory (`maintain` has none, and uses a cron) and, with `after_compaction`,
on the compaction. A dependency on the table would make Dagster show "Unsynced" after each write
(`assets/keys.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import dagster as dg

from lakehouse.assets.events import Event
from lakehouse.assets.keys import (
    by_clock,
    compaction_key,
    inventory_key,
    upkeep_options,
    vacuum_key,
)
from lakehouse.assets.metadata import operation_metadata
from lakehouse.assets.runs import AUTOMATION_TAG, errors_for_dagster
from lakehouse.base.errors import Refused
from lakehouse.base.text import count_of
from lakehouse.compact.assess import refuse_held
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import vacuum_records

if TYPE_CHECKING:
    from lakehouse.vacuum.facts import LakeFacts
    from lakehouse.vacuum.plan.vacuum import VacuumOutcome

DELETED = "deleted"
_CHECKED = "No deletion of the last vacuum failed."
# The facts that the vacuums of a run share, by run id and root of the lake.
_FACTS: dict[tuple[str, str], "LakeFacts"] = {}


class VacuumConfig(dg.Config):
    """Options of one run.

    `anyway`: vacuum even if the table is paused or opted out. `mode`: use this mode instead of the
    cheapest one.
    """

    anyway: bool = False
    mode: str = ""


def vacuum_asset(
    table: Table,
    lake: Lake,
    load_lake: Callable[[], tuple[Lake, Sequence[Table]]],
    *,
    cron: str = "",
    resource: str = "spark",
) -> dg.AssetsDefinition:
    """The asset that vacuums a table.

    Unless the table opts out, it runs after each inventory or, if `cron` is given, at these times
    (UTC). `resource` is the key of the resource that opens its Spark session. `load_lake` returns
    the lake and all its tables, because other tables may read files of this table (shallow clones).
    It is called in a run, never while definitions are loaded.
    """
    triggers = [] if cron else [inventory_key(lake)]
    if table.vacuum.after_compaction:
        triggers.append(compaction_key(table))

    @dg.asset(
        **{
            **upkeep_options("vacuum", table, resource=resource),
            "op_tags": {"dagster/priority": "-2"},  # after the compactions of the same run
        },
        deps=triggers,
        automation_condition=_when(triggers, cron) if table.vacuum.mode == "automatic" else None,
        description=f"Deletes the files that no version of {table.key} within its retention needs. "
        "Does not change any rows.",
        check_specs=[dg.AssetCheckSpec(DELETED, asset=vacuum_key(table), description=_CHECKED)],
    )
    def vacuum(context: dg.AssetExecutionContext, config: VacuumConfig) -> Iterator[Event]:
        with errors_for_dagster(context):
            facts = _facts_of_run(context, lake, load_lake)
            outcome = _vacuum_unless_skipped(context, config, facts, table, resource)
        if outcome is None:
            records = vacuum_records(lake, table.key)
            yield _deleted(table, records[-1].failed if records else {})
        else:
            yield from vacuum_events(table, outcome)

    return cast("dg.AssetsDefinition", vacuum)


def _vacuum_unless_skipped(
    context: dg.AssetExecutionContext,
    config: VacuumConfig,
    facts: "LakeFacts",
    table: Table,
    resource: str,
) -> "VacuumOutcome | None":
    """Vacuums a table in a run of its asset; `None` if there is a reason to skip it."""
    from lakehouse.assets.resources import open_session
    from lakehouse.vacuum.run import vacuum as run_vacuum

    reason = ""
    if facts.log(table.key) is None:
        reason = f"vacuum of {table.key}: skipped, because the table has not been written yet"
    elif not config.anyway:
        reason = skip_reason(context, facts.lake, table, "vacuum")
    if reason:
        context.log.info(reason)
        return None
    outcome = run_vacuum(
        facts,
        partial(open_session, context, getattr(context.resources, resource)),
        table,
        mode=config.mode or None,  # type: ignore[arg-type]  # unknown modes are refused
        owner=f"run {context.run.run_id}",
    )
    context.log.info(f"{table.key}: {outcome.plan.sentence}")
    return outcome


def vacuum_events(table: Table, outcome: "VacuumOutcome") -> Iterator[Event]:
    """What a vacuum reports: its figures, and whether every deletion succeeded."""
    metadata = operation_metadata("vacuum", outcome)
    yield dg.MaterializeResult(asset_key=vacuum_key(table), metadata=metadata)
    yield _deleted(table, outcome.failed)


def _facts_of_run(
    context: dg.AssetExecutionContext,
    lake: Lake,
    load_lake: Callable[[], tuple[Lake, Sequence[Table]]],
) -> "LakeFacts":
    """The lake's facts, which the vacuums of one run share. Facts of other runs are dropped."""
    from lakehouse.vacuum.facts import LakeFacts

    key = (context.run.run_id, lake.settings.root)
    if key not in _FACTS:
        whole_lake, declared = load_lake()
        selection = context.run.asset_selection
        wanted = {
            table.key for table in declared if selection is None or vacuum_key(table) in selection
        }
        for old_key in [each for each in _FACTS if each[0] != context.run.run_id]:
            del _FACTS[old_key]
        _FACTS[key] = LakeFacts(whole_lake, declared, wanted=wanted)
    return _FACTS[key]


def skip_reason(context: dg.AssetExecutionContext, lake: Lake, table: Table, command: str) -> str:
    """The reason to skip an automated run, or an empty string.

    A table is skipped if it is paused or, for a vacuum, if it declares `Vacuum(mode="off")`.

    Raises:
        Refused: there is such a reason, but a person (no automation condition) requested the run.
    """
    try:
        refuse_held(lake, table, command)
    except Refused as refused:
        if AUTOMATION_TAG in context.run.tags:
            return str(refused)
        raise
    return ""


def _when(triggers: Sequence[dg.AssetKey], cron: str) -> dg.AutomationCondition[dg.AssetKey]:
    """Requests a run after an update of any trigger, and at the times of `cron`, if given.

    This is Dagster's `eager`, limited to the triggers. A write to the table is not a trigger: the
    files it replaces cannot be deleted before the retention ends. A trigger that was never
    materialized does not block the vacuum, for example the compaction asset of a table that has
    never needed a compaction.
    """
    eager = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
    follows = eager.allow(dg.AssetSelection.assets(*triggers)).with_label("follows_triggers")
    if not cron:
        return follows
    return by_clock(cron) | follows if triggers else by_clock(cron)


def _deleted(table: Table, errors: Mapping[str, str]) -> dg.AssetCheckResult:
    """The result of the check: it passes if no deletion of the last vacuum failed."""
    description = "no deletion failed"
    if errors:
        name, error = next(iter(errors.items()))
        description = (
            f"{count_of(len(errors), 'file')} could not be deleted, for example {name}: {error}"
        )
    return dg.AssetCheckResult(
        asset_key=vacuum_key(table),
        check_name=DELETED,
        passed=not errors,
        description=description,
        metadata={"failed": len(errors)},
    )
