"""Layout, health, plan and outcome as Dagster metadata: the one place that knows the keys.

Numbers stand under keys that never change, so that Dagster plots them over time; what Dagster has a key for uses
Dagster's. No value comes from the environment: metadata is shown to everybody.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import Any

import dagster as dg

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.compaction.plan import plan_once_cold
from lakehouse.core.costs.figures import FIGURE_HEADS, Figure
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.declaration.strategies import BySensor
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.scheduling.circuit_breaker import Rewrites
from lakehouse.core.scheduling.health import HISTOGRAM_BYTES, Health
from lakehouse.core.scheduling.table_state import OnceCold, TableState, state_of
from lakehouse.core.text import count_of, size_text, utc_text
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.defs.dagster_records import COMMITTED, NewestFacts
from lakehouse.defs.metadata.markdown import (
    Markdown,
    histogram_picture,
    markdown_table,
    markdown_text,
    markdown_value,
)
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.table_strategy import strategy_in_force
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import Assessment, last_compaction_ms

type_of_metadata = dict[str, Any]

# Numbers that Dagster plots: fields of the health, and of the TableState.
_HEALTH_NUMBERS = (
    *("file_count", "small_file_count", "mergeable_file_count", "size_bytes", "average_file_bytes"),
    *("tombstone_count", "tombstone_bytes"),
)
_STATE_NUMBERS = (
    "mergeable_bytes",
    "files_after",
    "purged_row_count",
    "deleted_rows_share",
    "estimate_seconds",
    "estimate_usd",
)
_COMPACTION_NUMBERS = (
    *(
        "version_after",
        "optimize_seconds",
        "verify_seconds",
        "conflicts",
        "wasted_bytes",
        "wasted_seconds",
    ),
    *("rows_verified", "verified_by"),
)
_VACUUM_NUMBERS = (
    "mode",
    "files",
    "actual_files",
    "bytes",
    "actual_bytes",
    "actual_usd",
    "list_requests_saved",
    "list_seconds_saved",
)
_STATE_TIMES = ("oldest_small", "last_compaction")
# The fields that the sensor knows by itself.
_DECLARED = ("table", "prices", "readers", "lost_openings", "on_s3")
# A page of them says enough; the terminal's dry run has all.
_PATHS = 1_000


def declared_metadata(table: Table, lake: Lake) -> type_of_metadata:
    """The facts of a table before it exists: its address, its name, its policy."""
    policy = policy_for(table.layer, table.compaction)
    knobs = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return {
        "dagster/uri": lake.table_uri(table.key),
        "dagster/table_name": f"{table.layer}.{table.name}",
        "dagster/storage_kind": "deltalake",
        "lakehouse/policy": dg.MetadataValue.json(
            {
                name: value if isinstance(value, int | float | str) else repr(value)
                for name, value in knobs.items()
            }
        ),
    }


def table_metadata(table: Table, assessed: Assessment) -> type_of_metadata:
    """The facts of a table at one version, for its materializations and observations alike.

    The time of its last compaction stands here, too, so that whoever lost Dagster's older records knows it after the next event.
    """
    facts, snapshot, health = assessed.facts, assessed.facts.snapshot, assessed.health
    strategy = strategy_in_force(table, facts).strategy
    once_cold = plan_once_cold(table, snapshot, facts.history, now_ms=now_ms())
    in_force = {"sensor_driven": isinstance(strategy, BySensor), "chosen": type(strategy).__name__}
    state = state_of(snapshot, health.plan, once_cold, history=facts.history)
    compacted_ms = last_compaction_ms(facts.history, assessed.failures)
    state = replace(state, last_compaction_ms=compacted_ms, health_score=health.score, **in_force)
    numbers = {
        name: number for name in _STATE_NUMBERS if (number := getattr(state, name)) is not None
    }
    parts = [
        [part.name, str(part.weight), f"{part.value:.2f}", part.sentence] for part in health.parts
    ]
    times = {
        name: dg.MetadataValue.timestamp(ms / 1000)
        for name in _STATE_TIMES
        if (ms := getattr(state, f"{name}_ms")) is not None
    }
    return {
        "lakehouse/summary": markdown_value(_summary_table(health, state)),
        "lakehouse/sizes": markdown_value(*_picture(health)),
        "lakehouse/version": snapshot.version,
        **{f"lakehouse/{name}": getattr(health, name) for name in _HEALTH_NUMBERS},
        "lakehouse/log_commits": health.log.commit_count,
        "lakehouse/log_bytes": health.log.commit_bytes,
        "lakehouse/health_score": health.score,
        **{f"lakehouse/{name}": value for name, value in (numbers | times).items()},
        "lakehouse/strategy_in_force": type(strategy).__name__,
        "lakehouse/state": state_metadata(state, assessed.rewrites),
        **({} if health.row_count is None else {"dagster/row_count": health.row_count}),
        # The last batch that is in the table; the landing sensor holds the ledger against it.
        **(
            {"lakehouse/landed_batch": snapshot.transactions.get(ingest_app_id(table.key), 0)}
            if table.source
            else {}
        ),
        "dagster/uri": snapshot.uri,
        "dagster/column_schema": _column_schema(table, snapshot),
        "lakehouse/health": health.sentence,
        "lakehouse/health_parts": markdown_value(
            markdown_table(["part", "weight", "value", "why"], parts)
        ),
        "lakehouse/plan": health.plan.sentence,
    }


def state_metadata(state: TableState, rewrites: Rewrites) -> dg.MetadataValue:
    """The state by which the compaction sensor will decide; `sensed_state` reads it."""
    told = {name: value for name, value in asdict(state).items() if name not in _DECLARED}
    return dg.MetadataValue.json(told | {"rewrites": asdict(rewrites)})


def sensed_state(table: str, facts: NewestFacts | None) -> tuple[TableState, Rewrites]:
    """The state that the compaction sensor decides by, as a table's newest event tells it, and the bytes rewritten for nothing."""
    told: dict[str, Any] = (
        {}
        if facts is None
        else facts.values.get("lakehouse/state") or _state_of_older_program(facts)
    )
    cold, driven, rewrites = (
        told.get("once_cold"),
        told.get("sensor_driven"),
        told.get("rewrites", {}),
    )
    openings = told.get("openings")
    known: dict[str, Any] = {
        each.name: told.get(each.name) for each in fields(TableState) if each.name not in _DECLARED
    } | {
        "once_cold": OnceCold(**{each.name: cold.get(each.name) for each in fields(OnceCold)})
        if cold
        else None,
        "sensor_driven": None if driven is None else bool(driven),
        "openings": None
        if openings is None
        else tuple((since_ms, count) for since_ms, count in openings),
    }
    return TableState(table=table, **known), Rewrites(
        **{each.name: rewrites.get(each.name, 0) for each in fields(Rewrites)}
    )


def _state_of_older_program(facts: NewestFacts) -> dict[str, Any]:
    """The state of an event that tells each of its numbers under a key of its own."""
    told: dict[str, Any] = {
        name.removeprefix("lakehouse/"): number for name, number in facts.values.items()
    }
    nested = {
        kind: {
            name.removeprefix(f"{kind}_"): number
            for name, number in told.items()
            if name.startswith(f"{kind}_")
        }
        for kind in ("once_cold", "rewrites")
    }
    return {**told, **nested, "chosen": facts.values.get("lakehouse/strategy_in_force")}


def _column_schema(table: Table, snapshot: Snapshot) -> dg.TableSchema:
    """The columns for Dagster's Columns page; a column's own comment comes before what the declaration says of it."""
    said = table.column_descriptions
    columns = [
        dg.TableColumn(
            each.name,
            each.type,
            each.comment or said.get(each.name),
            dg.TableColumnConstraints(nullable=each.nullable),
        )
        for each in snapshot.columns
    ]
    return dg.TableSchema(columns=columns)


def vacuum_metadata(outcome: VacuumOutcome, prices: Prices) -> type_of_metadata:
    """The plan and the work of one vacuum; at most a thousand files of each kind are named."""
    plan, record, document = outcome.plan, outcome.record, outcome.as_json()
    named = {"paths": document["paths"][:_PATHS]}
    named |= {kind: dict(islice(document[kind].items(), _PATHS)) for kind in ("spared", "failed")}
    return {
        "lakehouse/outcome": plan.sentence,
        **{f"lakehouse/{name}": document[name] for name in _VACUUM_NUMBERS},
        "lakehouse/predicted_seconds": document["seconds"],
        "lakehouse/seconds": document["actual_seconds"],
        "lakehouse/predicted_usd": document["usd"],
        "lakehouse/requests": sum(record.requests.values()),
        "lakehouse/list_usd_saved": round(record.lists_saved * prices.usd_per_1000_puts / 1_000, 9),
        "lakehouse/prices": f"list prices of {prices.region}, {prices.as_of}",
        "lakehouse/account": _figures_table(outcome.figures),
        "lakehouse/spared": record.spared,
        "lakehouse/failed": len(outcome.failed),
        "lakehouse/vacuum": dg.MetadataValue.json(document | named),
        **({"lakehouse/notes": "\n".join(plan.notes)} if plan.notes else {}),
    }


def write_metadata(outcome: WriteOutcome) -> type_of_metadata:
    """The outcome of one run of a table's write."""
    # A landing area may be full of foreign files; the journal names all of them, the page the first.
    named = markdown_table(
        ["file", "bytes", "why"],
        [[each.name, str(each.size_bytes), each.why] for each in outcome.set_aside[:20]],
    )
    rare = {
        "lakehouse/rows_superseded": outcome.rows_superseded,
        "lakehouse/rows_rescued": outcome.rows_rescued,
        "lakehouse/columns_added": ", ".join(outcome.columns_added),
        "lakehouse/strategy": outcome.strategy and outcome.strategy.sentence,
        "lakehouse/set_aside": outcome.set_aside and markdown_value(named),
    }
    return {
        "lakehouse/outcome": outcome.sentence,
        "lakehouse/rows_written": outcome.rows_written,
        "lakehouse/rows_quarantined": outcome.rows_quarantined,
        **{name: value for name, value in rare.items() if value},
        "lakehouse/files_read": outcome.files_read,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/files_set_aside": len(outcome.set_aside),
    }


def compaction_metadata(outcome: CompactionOutcome) -> type_of_metadata:
    """Predicted beside actual, and where the seconds went; at most a thousand files are named."""
    plan, entry, document = outcome.plan, outcome.entry, outcome.as_json()
    named = islice(
        ((place, path) for place, paths in enumerate(document["bins"]) for path in paths), _PATHS
    )
    document["bins"] = [
        [path for _, path in paths] for _, paths in groupby(named, key=itemgetter(0))
    ]
    found = {
        "lakehouse/plan": plan.sentence,
        "lakehouse/outcome": None if outcome.version_after else " ".join(outcome.sentences) or None,
        "lakehouse/reason": plan.reason.name,
        "lakehouse/version_before": plan.version,
        COMMITTED: entry and dg.MetadataValue.timestamp(entry.compaction.committed_ms / 1000),
        **{f"lakehouse/predicted_{each.name}": each.predicted for each in outcome.figures},
        **{f"lakehouse/actual_{each.name}": each.actual for each in outcome.figures},
        "lakehouse/predicted_by": plan.estimate.basis,
        "lakehouse/bytes_added": outcome.bytes_added,
        **{f"lakehouse/{name}": document[name] for name in _COMPACTION_NUMBERS},
        "lakehouse/account": _figures_table(outcome.figures),
        "lakehouse/compaction": dg.MetadataValue.json(document),
    }
    if outcome.account is not None:
        told = outcome.account.as_json()
        found |= {
            f"lakehouse/mean_error_{name}": share for name, share in told["mean_errors"].items()
        }
        found |= {
            f"lakehouse/total_{name}": told[name]
            for name in ("wasted_runs", "wasted_seconds", "wasted_bytes")
        }
        found["lakehouse/write_amplification"] = told["write_amplification"]
    if outcome.probe is not None:
        told = outcome.probe.as_json()
        names = ("before_seconds", "after_seconds", "gained_share", "spent_seconds")
        found |= {
            "lakehouse/probe": outcome.probe.sentence,
            **{f"lakehouse/probe_{name}": told[name] for name in names},
        }
    return {
        name: value for name, value in found.items() if value is not None
    }  # a plot of zeros would lie


def _picture(health: Health) -> tuple[Markdown, ...]:
    filled = [place for place, count in enumerate(health.histogram.values()) if count]
    if not filled:
        return (markdown_text("no files"),)
    candidate = health.plan.policy.candidate_bytes
    bins = zip(health.histogram.items(), (*HISTOGRAM_BYTES, inf), strict=True)
    bars = [(label, count, below_bytes <= candidate) for (label, count), below_bytes in bins][
        filled[0] : filled[-1] + 1
    ]
    return (
        histogram_picture(bars),
        markdown_table(["size", "files"], [[label, str(count)] for label, count, _ in bars]),
    )


def _summary_table(health: Health, state: TableState) -> Markdown:
    """The facts that a person wants first: how the table is, what lies in it, and what happens to it next."""
    after = "" if state.files_after is None else f", {state.files_after} after a compaction"
    compacted = (
        "the log remembers none"
        if state.last_compaction_ms is None
        else utc_text(state.last_compaction_ms)
    )
    rows = [
        ["health", health.sentence],
        ["now", f"{count_of(health.file_count, 'file')}, {size_text(health.size_bytes)}{after}"],
        ["last compaction", compacted],
        ["next", health.plan.sentence],
    ]
    return markdown_table(["table", f"{health.score:.0f} of 100"], rows)


def _figures_table(figures: Iterable[Figure]) -> dg.MarkdownMetadataValue:
    return markdown_value(markdown_table(FIGURE_HEADS, [each.cells for each in figures]))
