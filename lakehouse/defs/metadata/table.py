"""Layout, health, plan and outcome as Dagster metadata: the one place that knows the keys.

Numbers stand under keys that never change, so that Dagster plots them over time; what Dagster has a key for uses
Dagster's. No value comes from the environment: metadata is shown to everybody.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import dagster as dg

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.compaction.plan import plan_once_cold
from lakehouse.core.costs.figures import FIGURE_HEADS, Figure
from lakehouse.core.costs.measured_benefit import Probe
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.scheduling.health import Health
from lakehouse.core.scheduling.rewrite_loops import Rewrites
from lakehouse.core.scheduling.triggers import OnceCold, TableState, state_of
from lakehouse.core.text import count_of, size_text, utc_text
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.defs.dagster_records import COMMITTED, NewestFacts
from lakehouse.defs.metadata.markdown import Markdown, markdown_table, markdown_text, markdown_value
from lakehouse.defs.metadata.pictures import histogram_picture
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.table_properties import strategy_in_force
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import Assessment

type_of_metadata = dict[str, Any]

# The fields of a TableState that are plotted; the health has the others.
_STATE_NUMBERS = (
    *("mergeable_bytes", "files_after", "purged_row_count"),
    *("deleted_rows_share", "estimate_seconds", "estimate_usd"),
)
_STATE_TIMES = ("oldest_small", "last_compaction")
# What the sensor knows by itself.
_DECLARED = ("table", "prices", "readers", "lost_openings", "opening_seconds", "on_s3")
# A page of them says enough; the terminal's dry run has all.
_PATHS = 1_000


def declared_metadata(table: Table, lake: Lake) -> type_of_metadata:
    """What is known of a table before it exists: where it lies, what it is called, its policy."""
    policy = policy_for(table.layer, table.compaction)
    knobs = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return {
        "dagster/uri": lake.table_uri(table.key),
        "dagster/table_name": f"{table.layer}.{table.name}",
        "dagster/storage_kind": "deltalake",
        "lakehouse/policy": dg.MetadataValue.json(
            {name: value if isinstance(value, int | float | str) else repr(value) for name, value in knobs.items()}
        ),
    }


def table_metadata(table: Table, assessed: Assessment) -> type_of_metadata:
    """What a table is made of at one version, for its materializations and observations alike.

    When it was last compacted stands here, too, so that whoever lost Dagster's older records knows it after the next event.
    """
    facts, snapshot, health = assessed.facts, assessed.facts.snapshot, assessed.health
    strategy = strategy_in_force(table, facts).strategy
    once_cold = plan_once_cold(table, snapshot, facts.history, now_ms=now_ms())
    in_force = {"sensor_driven": isinstance(strategy, BySensor), "chosen": type(strategy).__name__}
    state = state_of(snapshot, health, once_cold, history=facts.history)
    state = replace(state, last_compaction_ms=assessed.last_compaction_ms, **in_force)
    numbers = {name: number for name in _STATE_NUMBERS if (number := getattr(state, name)) is not None}
    times = {name: _timestamp(ms) for name in _STATE_TIMES if (ms := getattr(state, f"{name}_ms")) is not None}
    return {
        "lakehouse/summary": markdown_value(_summary_table(health, state)),
        "lakehouse/sizes": markdown_value(*_picture(health)),
        "lakehouse/version": snapshot.version,
        **health_numbers(health),
        **{f"lakehouse/{name}": value for name, value in (numbers | times).items()},
        "lakehouse/strategy_in_force": type(strategy).__name__,
        "lakehouse/state": dg.MetadataValue.json(
            {name: value for name, value in asdict(state).items() if name not in _DECLARED} | {"rewrites": asdict(assessed.rewrites)}
        ),
        **({} if health.row_count is None else {"dagster/row_count": health.row_count}),
        **_landed_batch(table, snapshot),
        "dagster/uri": snapshot.uri,
        "dagster/column_schema": column_schema(table, snapshot),
        "lakehouse/health": health.sentence,
        "lakehouse/health_parts": markdown_value(_parts_table(health)),
        "lakehouse/plan": health.plan.sentence,
    }


def health_numbers(health: Health) -> dict[str, int | float]:
    """The numbers that are plotted and that the sensor decides by."""
    return {
        "lakehouse/file_count": health.file_count,
        "lakehouse/small_file_count": health.small_file_count,
        "lakehouse/mergeable_file_count": health.mergeable_file_count,
        "lakehouse/size_bytes": health.size_bytes,
        "lakehouse/average_file_bytes": health.average_file_bytes,
        "lakehouse/tombstone_count": health.tombstone_count,
        "lakehouse/tombstone_bytes": health.tombstone_bytes,
        "lakehouse/log_commits": health.log.commit_count,
        "lakehouse/log_bytes": health.log.commit_bytes,
        "lakehouse/health_score": health.score,
    }


def sensed_state(table: str, facts: NewestFacts | None) -> tuple[TableState, Rewrites]:
    """What the compaction sensor decides by, as the newest event of a table tells it, and the bytes that were rewritten for nothing."""
    told = {} if facts is None else facts.state or _state_of_older_program(facts)
    cold, driven, rewrites = told.get("once_cold"), told.get("sensor_driven"), told.get("rewrites", {})
    openings = told.get("openings")
    known: dict[str, Any] = {each.name: told.get(each.name) for each in fields(TableState) if each.name not in _DECLARED} | {
        "once_cold": OnceCold(**{each.name: cold.get(each.name) for each in fields(OnceCold)}) if cold else None,
        "sensor_driven": None if driven is None else bool(driven),
        "openings": None if openings is None else tuple((since_ms, count) for since_ms, count in openings),
    }
    return TableState(table=table, **known), Rewrites(**{each.name: rewrites.get(each.name, 0) for each in fields(Rewrites)})


def _state_of_older_program(facts: NewestFacts) -> dict[str, Any]:
    """The state of an event that tells each of its numbers under a key of its own."""
    told: dict[str, Any] = {name.removeprefix("lakehouse/"): number for name, number in facts.numbers.items()}
    nested = {
        kind: {name.removeprefix(f"{kind}_"): number for name, number in told.items() if name.startswith(f"{kind}_")}
        for kind in ("once_cold", "rewrites")
    }
    return {**told, **nested, "chosen": facts.texts.get("lakehouse/strategy_in_force")}


def column_schema(table: Table, snapshot: Snapshot) -> dg.TableSchema:
    """The columns for Dagster's Columns page; a column's own comment comes before what the declaration says of it."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=column.name,
                type=column.type,
                description=column.comment or table.column_descriptions.get(column.name),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in snapshot.columns
        ]
    )


def vacuum_metadata(outcome: VacuumOutcome, prices: Prices) -> type_of_metadata:
    """What one vacuum was to do and did; at most a thousand files of each kind are named."""
    plan, record, document = outcome.plan, outcome.record, outcome.as_json()
    named = {"paths": document["paths"][:_PATHS]}
    named |= {kind: dict(islice(document[kind].items(), _PATHS)) for kind in ("spared", "failed")}
    return {
        "lakehouse/outcome": plan.sentence,
        "lakehouse/mode": plan.mode,
        "lakehouse/files": plan.file_count,
        "lakehouse/actual_files": record.deleted_files,
        "lakehouse/bytes": plan.size_bytes,
        "lakehouse/actual_bytes": record.deleted_bytes,
        "lakehouse/predicted_seconds": round(plan.seconds, 3),
        "lakehouse/seconds": round(record.seconds, 3),
        "lakehouse/predicted_usd": round(plan.usd, 9),
        "lakehouse/actual_usd": round(record.usd, 9),
        "lakehouse/requests": sum(record.requests.values()),
        "lakehouse/list_requests_saved": record.lists_saved,
        "lakehouse/list_seconds_saved": round(record.list_seconds_saved, 3),
        "lakehouse/list_usd_saved": round(record.lists_saved * prices.usd_per_1000_puts / 1_000, 9),
        "lakehouse/prices": f"list prices of {prices.region}, {prices.as_of}",
        "lakehouse/account": _figures_table(outcome.figures),
        "lakehouse/spared": record.spared,
        "lakehouse/failed": len(outcome.failed),
        "lakehouse/vacuum": dg.MetadataValue.json(document | named),
        **({"lakehouse/notes": "\n".join(plan.notes)} if plan.notes else {}),
    }


def write_metadata(outcome: WriteOutcome) -> type_of_metadata:
    """What one run of a table's write did."""
    return {
        "lakehouse/outcome": outcome.sentence,
        "lakehouse/rows_written": outcome.rows_written,
        "lakehouse/rows_quarantined": outcome.rows_quarantined,
        **({"lakehouse/rows_superseded": outcome.rows_superseded} if outcome.rows_superseded else {}),
        **({"lakehouse/rows_rescued": outcome.rows_rescued} if outcome.rows_rescued else {}),
        **({"lakehouse/columns_added": ", ".join(outcome.columns_added)} if outcome.columns_added else {}),
        "lakehouse/files_read": outcome.files_read,
        "lakehouse/seconds": round(outcome.seconds, 3),
        **({} if outcome.strategy is None else {"lakehouse/strategy": outcome.strategy.sentence}),
        **_set_aside(outcome),
    }


def compaction_metadata(outcome: CompactionOutcome) -> type_of_metadata:
    """Predicted beside actual, and where the seconds went; at most a thousand files are named."""
    plan, entry, document = outcome.plan, outcome.entry, outcome.as_json()
    named = islice(((place, path) for place, paths in enumerate(document["bins"]) for path in paths), _PATHS)
    document["bins"] = [[path for _, path in paths] for _, paths in groupby(named, key=itemgetter(0))]
    return {
        "lakehouse/plan": plan.sentence,
        "lakehouse/reason": plan.reason.name,
        "lakehouse/version_before": plan.version,
        **({} if outcome.version_after is None else {"lakehouse/version_after": outcome.version_after}),
        **({} if entry is None else {COMMITTED: _timestamp(entry.compaction.committed_ms)}),
        **{f"lakehouse/predicted_{each.name}": each.predicted for each in outcome.figures},
        **{f"lakehouse/actual_{each.name}": each.actual for each in outcome.figures if each.actual is not None},
        "lakehouse/predicted_by": plan.estimate.basis,
        "lakehouse/bytes_added": outcome.bytes_added,
        "lakehouse/optimize_seconds": round(outcome.seconds_optimize, 3),
        "lakehouse/verify_seconds": round(outcome.seconds_verify, 3),
        "lakehouse/waited_seconds": round(outcome.seconds_waited, 3),
        "lakehouse/conflicts": outcome.conflicts,
        "lakehouse/wasted_bytes": outcome.wasted_bytes,
        "lakehouse/wasted_seconds": round(outcome.wasted_seconds, 3),
        **({} if outcome.rows_verified is None else {"lakehouse/rows_verified": outcome.rows_verified}),
        **({} if outcome.compared is None else {"lakehouse/verified_by": outcome.compared.by}),
        "lakehouse/account": _figures_table(outcome.figures),
        "lakehouse/compaction": dg.MetadataValue.json(document),
        **_account_numbers(outcome),
        **_probe_numbers(outcome.probe),
    }


def _account_numbers(outcome: CompactionOutcome) -> type_of_metadata:
    """The means of the errors, write amplification and wasted work; what is unknown is left out, for a plot of zeros would lie."""
    if outcome.account is None:
        return {}
    told = outcome.account.as_json()
    means = {f"mean_error_{name}": share for name, share in told["mean_errors"].items()}
    wasted = {f"total_{name}": told[name] for name in ("wasted_runs", "wasted_seconds", "wasted_bytes")}
    figures = {**means, "write_amplification": told["write_amplification"], **wasted}
    return {f"lakehouse/{name}": figure for name, figure in figures.items() if figure is not None}


def _probe_numbers(probe: Probe | None) -> type_of_metadata:
    if probe is None:
        return {}
    told = probe.as_json()
    names = ("before_seconds", "after_seconds", "gained_share", "low_share", "high_share", "spent_seconds")
    figures = {f"lakehouse/probe_{name}": told[name] for name in names if told[name] is not None}
    return {"lakehouse/probe": probe.sentence, **figures}


def _landed_batch(table: Table, snapshot: Snapshot) -> type_of_metadata:
    """The last batch that is in the table; the landing sensor holds the ledger against it."""
    return {} if table.source is None else {"lakehouse/landed_batch": snapshot.transactions.get(ingest_app_id(table.key), 0)}


def _set_aside(outcome: WriteOutcome) -> type_of_metadata:
    if not outcome.set_aside:
        return {"lakehouse/files_set_aside": 0}
    # A landing area may be full of foreign files; the journal names all of them, the page the first.
    named = markdown_table(["file", "bytes", "why"], [[each.name, str(each.size_bytes), each.why] for each in outcome.set_aside[:20]])
    return {"lakehouse/files_set_aside": len(outcome.set_aside), "lakehouse/set_aside": markdown_value(named)}


def _picture(health: Health) -> tuple[Markdown, ...]:
    counts = [size.file_count for size in health.histogram]
    filled = [place for place, count in enumerate(counts) if count]
    if not filled:
        return (markdown_text("no files"),)
    shown = health.histogram[filled[0] : filled[-1] + 1]
    candidate = health.plan.policy.candidate_bytes
    bars = [(size.label, size.file_count, size.below_bytes is not None and size.below_bytes <= candidate) for size in shown]
    return (histogram_picture(bars), markdown_table(["size", "files"], [[label, str(count)] for label, count, _ in bars]))


def _summary_table(health: Health, state: TableState) -> Markdown:
    """What a person wants to know first: how the table is, what lies in it, and what happens to it next."""
    after = "" if state.files_after is None else f", {state.files_after} after a compaction"
    compacted = "the log remembers none" if state.last_compaction_ms is None else utc_text(state.last_compaction_ms)
    rows = [
        ["health", health.sentence],
        ["now", f"{count_of(health.file_count, 'file')}, {size_text(health.size_bytes)}{after}"],
        ["last compaction", compacted],
        ["next", health.plan.sentence],
    ]
    return markdown_table(["table", f"{health.score:.0f} of 100"], rows)


def _parts_table(health: Health) -> Markdown:
    rows = [[part.name, str(part.weight), f"{part.value:.2f}", part.sentence] for part in health.parts]
    return markdown_table(["part", "weight", "value", "why"], rows)


def _figures_table(figures: Iterable[Figure]) -> dg.MarkdownMetadataValue:
    return markdown_value(markdown_table(FIGURE_HEADS, [each.cells for each in figures]))


def _timestamp(ms: int) -> dg.TimestampMetadataValue:
    return dg.MetadataValue.timestamp(ms / 1000)
