"""Tables, and what runs did, as Dagster metadata. Only this module defines the keys.

The keys of numbers never change, so that Dagster can plot the numbers over time. Where Dagster
defines a key, that key is used. No value contains credentials, because every user of Dagster sees
the metadata.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import islice
from typing import Any, cast

import dagster as dg

from lakehouse.assets.dagster_records import NewestFacts
from lakehouse.assets.keys import compaction_key, table_key, vacuum_key
from lakehouse.base.operation import FIGURE_HEADS, Figure
from lakehouse.base.reasons import CheckResult
from lakehouse.base.text import Document, printable
from lakehouse.compact.assess import Assessment, assess
from lakehouse.compact.plan.decision import TableState
from lakehouse.compact.plan.health import HEALTH_NUMBERS
from lakehouse.compact.plan.history import CompactionOutcome, Rewrites
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ingest_app_id, keeps_rows, moves_rows
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.write.outcome import WriteOutcome

DATA_VERSION = "dagster/data_version"


def table_value(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> dg.TableMetadataValue:
    """A table whose cells show exactly these texts."""
    columns = [dg.TableColumn(head) for head in heads]
    records = [dg.TableRecord(dict(zip(heads, map(printable, row), strict=True))) for row in rows]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


Metadata = dict[str, Any]

# Actual figures of an operation that Dagster plots, apart from the table of all figures.
_PLOTTED = ("files", "files_removed", "rows", "seconds", "usd")
# At most this many entries of a part of a document are recorded.
_ENTRIES = 1_000


def declared_metadata(table: Table, lake: Lake) -> Metadata:
    """The metadata that follows from the declaration: address, name, policy, and the upkeep."""
    return {
        "dagster/uri": lake.table_uri(table.key),
        "dagster/table_name": f"{table.layer}.{table.name}",
        "dagster/storage_kind": "deltalake",
        "lakehouse/policy": repr(table.compaction_policy),
        "lakehouse/compaction": dg.MetadataValue.asset(compaction_key(table)),
        "lakehouse/vacuum": dg.MetadataValue.asset(vacuum_key(table)),
    }


def table_metadata(table: Table, assessed: Assessment) -> Metadata:
    """The metadata of a table at one version, for materializations and observations.

    Old events are deleted (`maintenance/records`), so each event repeats the time of the last
    compaction.
    """
    facts = assessed.facts
    snapshot = facts.snapshot
    health = assessed.health
    parts = [
        [part.name, str(part.weight), f"{part.value:.2f}", part.sentence] for part in health.parts
    ]
    metadata: Metadata = {
        "lakehouse/health": health.sentence,
        "lakehouse/plan": health.plan.sentence,
        "lakehouse/version": snapshot.version,
        **{f"lakehouse/{name}": getattr(health, name) for name in HEALTH_NUMBERS},
        "lakehouse/log_commits": health.log.commit_count,
        "lakehouse/log_bytes": health.log.commit_bytes,
        "lakehouse/health_score": health.score,
        "lakehouse/state": state_metadata(assessed.state),
        "dagster/uri": snapshot.uri,
        "dagster/column_schema": _column_schema(table, snapshot),
        "lakehouse/health_parts": table_value(["part", "weight", "value", "why"], parts),
    }
    compacted_ms = assessed.state.last_compaction_ms
    if compacted_ms is not None:
        metadata["lakehouse/last_compaction"] = dg.MetadataValue.timestamp(compacted_ms / 1000)
    if health.row_count is not None:
        metadata["dagster/row_count"] = health.row_count
    if table.source:
        # The last batch in the table. The landing sensor compares the ledger with it.
        last_batch = snapshot.transactions.get(ingest_app_id(table.key), 0)
        metadata["lakehouse/landed_batch"] = last_batch
    return metadata


def health_result(table: Table, assessed: Assessment) -> CheckResult:
    """The table's health, files and next compaction, as a check that never fails."""
    health = assessed.health
    numbers = {name: getattr(health, name) for name in HEALTH_NUMBERS}
    return CheckResult(
        name="health",
        ok=True,
        sentence=health.sentence,
        numbers={"score": health.score, **numbers},
        details={
            "next_compaction": health.plan.sentence,
            "compaction": dg.MetadataValue.asset(compaction_key(table)),
            "vacuum": dg.MetadataValue.asset(vacuum_key(table)),
        },
    )


def state_metadata(state: TableState) -> dg.MetadataValue:
    """The state by which the compaction sensor decides. `sensed_state` reads this value."""
    return dg.MetadataValue.json(asdict(state))


def sensed_state(table: str, facts: NewestFacts | None) -> TableState:
    """The state that a table's newest event records; unknown without an event."""
    recorded: Document = {} if facts is None else facts.values.get("lakehouse/state", {})
    values: dict[str, Any] = {each.name: recorded.get(each.name) for each in fields(TableState)}
    rewrites = recorded.get("rewrites", {})
    counts = {each.name: rewrites.get(each.name, 0) for each in fields(Rewrites)}
    return TableState(**{**values, "table": table, "rewrites": Rewrites(**counts)})


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


def operation_metadata(operation: str, outcome: Any) -> Metadata:
    """The outcome of an upkeep operation: its figures as a table, its sentence, and its document.

    Parts of the document with more than 1,000 entries are cut. If the bins name more files than
    that, they are omitted. Unknown figures are not plotted, because zero would mislead.
    """
    document: Document = outcome.as_json()
    if sum(map(len, document.get("bins", ()))) > _ENTRIES:
        del document["bins"]
    for name, value in document.items():
        if isinstance(value, Mapping):
            document[name] = dict(islice(cast("Mapping[str, Any]", value).items(), _ENTRIES))
        elif isinstance(value, list):
            document[name] = value[:_ENTRIES]
    sentences = [*document.get("notes", ()), *document.get("sentences", ())]
    figures: Sequence[Figure] = outcome.figures
    plotted = [each for each in figures if each.name in _PLOTTED]
    notes = table_value(["note"], [[each] for each in sentences]) if sentences else None
    metadata = {
        "lakehouse/account": table_value(FIGURE_HEADS, [each.cells for each in figures]),
        "lakehouse/outcome": outcome.plan.sentence,
        "lakehouse/notes": notes,
        "lakehouse/reason": outcome.plan.reason.name,
        **{f"lakehouse/actual_{each.name}": each.actual for each in plotted},
        f"lakehouse/{operation}": dg.MetadataValue.json(document),
    }
    return {name: value for name, value in metadata.items() if value is not None}


def compaction_metadata(outcome: CompactionOutcome) -> Metadata:
    """As `operation_metadata`. The outcome of a plan that merged nothing says why."""
    metadata = operation_metadata("compaction", outcome)
    if outcome.version_after is None and outcome.sentences:
        metadata["lakehouse/outcome"] = " ".join(outcome.sentences)
    return metadata


def write_metadata(outcome: WriteOutcome) -> Metadata:
    """The outcome of one run that writes a table."""
    if_any = {
        "lakehouse/rows_superseded": outcome.rows_superseded,
        "lakehouse/rows_rescued": outcome.rows_rescued,
        "lakehouse/columns_added": ", ".join(outcome.columns_added),
    }
    since = outcome.code_changed_since
    return {
        "lakehouse/outcome": outcome.sentence,
        **({} if since is None else {"lakehouse/code_changed_since_version": since}),
        "lakehouse/rows_written": outcome.rows_written,
        "lakehouse/rows_quarantined": outcome.rows_quarantined,
        **{name: value for name, value in if_any.items() if value},
        "lakehouse/files_read": outcome.files_read,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/files_set_aside": len(outcome.set_aside),
    }


def data_version(facts: TableFacts) -> str:
    """The last commit that changed a row, like `7@1763722800000`.

    Compactions, rebuilds from a table's own rows, and moves of rows to the archive do not change
    the data version. The time distinguishes a table that was deleted and created again. If none of
    the newest commits, which `facts` hold, changed a row, the table's id is used. The oldest of
    these commits would not do, because each new commit replaces it.
    """
    changes = [
        each
        for each in facts.history.commits
        if each.changed_data and not keeps_rows(each) and not moves_rows(each)
    ]
    if not changes:
        return facts.snapshot.table_id
    return f"{changes[-1].version}@{changes[-1].committed_ms}"


def change_event(
    table: Table, lake: Lake, sentence: str, *, has_new_rows: bool
) -> dg.AssetMaterialization | dg.AssetObservation:
    """A materialization, which updates downstream tables; without new rows, an observation."""
    facts = lake.existing_facts(table.key)
    metadata = {
        **table_metadata(table, assess(lake, table, facts)),
        "lakehouse/outcome": sentence,
    }
    if not has_new_rows:
        return dg.AssetObservation(table_key(table), metadata=metadata)
    tags = {DATA_VERSION: data_version(facts)}
    return dg.AssetMaterialization(table_key(table), metadata=metadata, tags=tags)
