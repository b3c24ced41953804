"""A table's state, health and plan as Dagster metadata. Only this module defines their keys.

The keys of numbers never change, so that Dagster can plot the numbers over time. Where Dagster
defines a key, that key is used. No value contains credentials, because every user of Dagster sees
the metadata.
"""

from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any

import dagster as dg

from lakehouse.core.check_result import CheckResult
from lakehouse.core.compaction.plan import plan_once_cold
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import LakehouseError
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.journal_records import VacuumRecord
from lakehouse.core.scheduling.circuit_breaker import Rewrites
from lakehouse.core.scheduling.table_state import OnceCold, TableState, state_of
from lakehouse.core.text import count_of, size_text, utc_text
from lakehouse.defs.dagster_records import NewestFacts
from lakehouse.defs.keys import compaction_key, vacuum_key
from lakehouse.defs.metadata.markdown import markdown_table, markdown_value
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import Assessment, last_compaction_ms

Metadata = dict[str, Any]

# Numbers that Dagster plots: fields of `Health`, and of `TableState`.
_HEALTH_NUMBERS = (
    "file_count",
    "small_file_count",
    "mergeable_file_count",
    "size_bytes",
    "average_file_bytes",
    "tombstone_count",
    "tombstone_bytes",
)
_STATE_NUMBERS = (
    "mergeable_bytes",
    "files_after",
    "purged_row_count",
    "deleted_rows_share",
    "estimate_seconds",
    "estimate_usd",
)
_STATE_TIMES = ("oldest_small", "last_compaction")
# Fields of `TableState` that are not recorded, because the sensor gets them from elsewhere.
_NOT_RECORDED = ("table", "prices", "on_s3")


def declared_metadata(table: Table, lake: Lake) -> Metadata:
    """The metadata that follows from the declaration: the table's address, name and policy."""
    policy = policy_for(table.layer, table.compaction)
    knobs = dict[str, int | float | str]()
    for field in fields(policy):
        value = getattr(policy, field.name)
        knobs[field.name] = value if isinstance(value, int | float | str) else repr(value)
    return {
        "dagster/uri": lake.table_uri(table.key),
        "dagster/table_name": f"{table.layer}.{table.name}",
        "dagster/storage_kind": "deltalake",
        "lakehouse/policy": dg.MetadataValue.json(knobs),
    }


def table_metadata(table: Table, assessed: Assessment) -> Metadata:
    """The metadata of a table at one version, for materializations and observations.

    Old events are deleted (`maintenance/records`), so each event repeats the time of the last
    compaction.
    """
    facts = assessed.facts
    snapshot = facts.snapshot
    health = assessed.health
    once_cold = plan_once_cold(table, snapshot, facts.history, now_ms=now_ms())
    state = state_of(snapshot, health.plan, once_cold)
    compacted_ms = last_compaction_ms(facts.history, assessed.failures)
    state = replace(state, last_compaction_ms=compacted_ms, health_score=health.score)
    parts = [
        [part.name, str(part.weight), f"{part.value:.2f}", part.sentence] for part in health.parts
    ]
    metadata: Metadata = {
        "lakehouse/health": health.sentence,
        "lakehouse/plan": health.plan.sentence,
        "lakehouse/version": snapshot.version,
        **{f"lakehouse/{name}": getattr(health, name) for name in _HEALTH_NUMBERS},
        "lakehouse/log_commits": health.log.commit_count,
        "lakehouse/log_bytes": health.log.commit_bytes,
        "lakehouse/health_score": health.score,
        **_known_figures(state),
        "lakehouse/state": state_metadata(state, assessed.rewrites),
        "dagster/uri": snapshot.uri,
        "dagster/column_schema": _column_schema(table, snapshot),
        "lakehouse/health_parts": markdown_value(
            markdown_table(["part", "weight", "value", "why"], parts)
        ),
    }
    if health.row_count is not None:
        metadata["dagster/row_count"] = health.row_count
    if table.source:
        # The last batch in the table. The landing sensor compares the ledger with it.
        last_batch = snapshot.transactions.get(ingest_app_id(table.key), 0)
        metadata["lakehouse/landed_batch"] = last_batch
    return metadata


def _known_figures(state: TableState) -> Metadata:
    """The state's numbers and times that Dagster plots. Unknown figures are omitted."""
    figures: Metadata = {}
    for name in _STATE_NUMBERS:
        number = getattr(state, name)
        if number is not None:
            figures[f"lakehouse/{name}"] = number
    for name in _STATE_TIMES:
        ms = getattr(state, f"{name}_ms")
        if ms is not None:
            figures[f"lakehouse/{name}"] = dg.MetadataValue.timestamp(ms / 1000)
    return figures


def health_result(table: Table, lake: Lake, assessed: Assessment) -> CheckResult:
    """The table's health, files, and last and next upkeep, as a check that never fails."""
    health = assessed.health
    snapshot = assessed.facts.snapshot
    compacted_ms = last_compaction_ms(assessed.facts.history, assessed.failures)
    vacuums = ()
    with suppress(LakehouseError):  # an unreadable journal must not hide what the log shows
        vacuums = vacuum_records(lake.store, table.key)
    last = vacuums[-1] if vacuums else None
    numbers = {name: getattr(health, name) for name in _HEALTH_NUMBERS}
    return CheckResult(
        name="health",
        ok=True,
        sentence=health.sentence,
        numbers={"score": health.score, **numbers},
        details={
            # A check's page shows texts directly, and Markdown only behind a link.
            "last_compaction": _last_compaction(compacted_ms),
            "next_compaction": health.plan.sentence,
            "last_vacuum": "none known" if last is None else _vacuum_text(last),
            "next_vacuum": _next_vacuum(snapshot, 0 if last is None else last.horizon_ms),
            "compaction": dg.MetadataValue.asset(compaction_key(table)),
            "vacuum": dg.MetadataValue.asset(vacuum_key(table)),
        },
    )


def _vacuum_text(record: VacuumRecord) -> str:
    return f"{utc_text(record.ended_ms)}, {count_of(record.deleted_files, 'file')} deleted"


def _next_vacuum(snapshot: Snapshot, horizon_ms: int) -> str:
    """The removed files that are still stored, and when a vacuum can delete the first of them.

    Files that were removed before `horizon_ms` were considered by the last vacuum, and are not
    counted.
    """
    retention_ms = retention_ms_of(snapshot.properties)
    removal_times = list[int]()
    size_bytes = 0
    for tombstone in snapshot.tombstones:
        if tombstone.deleted_ms is not None and tombstone.deleted_ms >= horizon_ms:
            removal_times.append(tombstone.deleted_ms)
            size_bytes += tombstone.size_bytes or 0
    if not removal_times:
        return "no removed files"
    files = f"{count_of(len(removal_times), 'removed file')}, {size_text(size_bytes)}"
    if retention_ms is None:
        return f"{files}; the table's retention cannot be read"
    return f"{files}; the first can be deleted from {utc_text(min(removal_times) + retention_ms)}"


def state_metadata(state: TableState, rewrites: Rewrites) -> dg.MetadataValue:
    """The state by which the compaction sensor decides. `sensed_state` reads this value."""
    recorded = {name: value for name, value in asdict(state).items() if name not in _NOT_RECORDED}
    return dg.MetadataValue.json(recorded | {"rewrites": asdict(rewrites)})


def sensed_state(table: str, facts: NewestFacts | None) -> tuple[TableState, Rewrites]:
    """The state and the pointless rewrites that a table's newest event records.

    Without an event, the state is unknown and the rewrites are 0.
    """
    recorded: dict[str, Any] = {} if facts is None else facts.values.get("lakehouse/state", {})
    values: dict[str, Any] = {
        each.name: recorded.get(each.name)
        for each in fields(TableState)
        if each.name not in _NOT_RECORDED
    }
    once_cold = values["once_cold"]
    if once_cold is not None:
        recorded_once_cold = {each.name: once_cold.get(each.name) for each in fields(OnceCold)}
        values["once_cold"] = OnceCold(**recorded_once_cold)
    rewrites = recorded.get("rewrites", {})
    counts = {each.name: rewrites.get(each.name, 0) for each in fields(Rewrites)}
    return TableState(table=table, **values), Rewrites(**counts)


def _column_schema(table: Table, snapshot: Snapshot) -> dg.TableSchema:
    """The columns for Dagster's Columns page.

    A column's comment in the log takes precedence over its declared description.
    """
    declared = table.column_descriptions
    columns = [
        dg.TableColumn(
            each.name,
            each.type,
            each.comment or declared.get(each.name),
            dg.TableColumnConstraints(nullable=each.nullable),
        )
        for each in snapshot.columns
    ]
    return dg.TableSchema(columns=columns)


def _last_compaction(compacted_ms: int | None) -> str:
    return "none in the log" if compacted_ms is None else utc_text(compacted_ms)
