"""The ranking of the whole fleet as an asset with a history, though no run ever makes it.

A sensor can materialize nothing without a run, and a run for a table of text would take a slot from a compaction. So the asset is one
that Dagster does not run: the compaction sensor reports a materialization of it, without a run, when the ranking has changed.
"""

from dataclasses import replace
from hashlib import sha256

import dagster as dg

from lakehouse.core.scheduling.ranking import Decision
from lakehouse.core.scheduling.triggers import net_benefit_cells
from lakehouse.defs.metadata.markdown import markdown_table, markdown_value
from lakehouse.defs.upkeep.fleet_from_events import Fleet, SensorCursor

PLAN_KEY = dg.AssetKey(["maintenance", "plan"])
# A busy lake's ranking changes with every write; its history need not be finer than a person looks at.
_LEAST_MS = 60_000
_ROWS = 200


def maintenance_plan() -> dg.AssetSpec:
    """The asset that holds the ranking."""
    return dg.AssetSpec(
        key=PLAN_KEY,
        group_name="maintenance",
        kinds={"table"},
        description="All tables in the order in which they would be compacted, each with its benefit, cost and reason. "
        "Reported by the compaction sensor when the order or a reason changes, at most once a minute.",
    )


def report_ranking(fleet: Fleet, cursor: SensorCursor, *, now_ms: int) -> tuple[SensorCursor, list[dg.AssetMaterialization]]:
    """What the next tick has to know, and the ranking as an event, if it differs from the one that was reported last."""
    order = "\n".join(f"{each.table} {each.reason.name}" for each in fleet.decisions)
    ranking = sha256(order.encode()).hexdigest()[:16]
    waiting = {each.table: each.due_since_ms for each in fleet.decisions if each.due_since_ms is not None and not each.request}
    after = replace(cursor, due_since_ms=waiting)
    if ranking == cursor.ranking or 0 <= now_ms - cursor.reported_ms < _LEAST_MS:
        return after, []
    return replace(after, ranking=ranking, reported_ms=now_ms), [dg.AssetMaterialization(PLAN_KEY, metadata=ranking_metadata(fleet))]


def ranking_metadata(fleet: Fleet) -> dict[str, int | float | dg.MarkdownMetadataValue]:
    """The ranking as a table, best first, and its sums; of very many tables the first."""
    ranked = [each for each in fleet.decisions if each.due_since_ms is not None]
    due = [fleet.states[each.table] for each in ranked]
    heads = ["", "table", "reason", "mergeable", "bytes", "USD a day", "USD", "ratio", "why"]
    rows = [_row(place, each, fleet) for place, each in enumerate(fleet.decisions[:_ROWS], start=1)]
    return {
        "lakehouse/ranking": markdown_value(markdown_table(heads, rows)),
        "lakehouse/tables": len(fleet.decisions),
        "lakehouse/tables_due": len(due),
        "lakehouse/tables_requested": sum(each.request for each in fleet.decisions),
        "lakehouse/mergeable_bytes": sum(state.mergeable_bytes or 0 for state in due),
        "lakehouse/estimate_usd": sum(state.estimate_usd or 0.0 for state in due),
        "lakehouse/benefit_usd_per_day": sum(gain.benefit_usd_per_day for each in ranked if (gain := each.net_benefit)),
    }


def _row(place: int, decision: Decision, fleet: Fleet) -> list[str]:
    state = fleet.states[decision.table]
    counts = ["-" if count is None else f"{count:,}" for count in (state.mergeable_file_count, state.mergeable_bytes)]
    return [str(place), decision.table, decision.reason.name, *counts, *net_benefit_cells(decision.net_benefit), decision.sentence]
