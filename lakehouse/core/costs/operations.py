"""Finished upkeep operations: compaction, vacuum, archive, restore and ttl, with their cost."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.costs.compaction_history import Entry
from lakehouse.core.costs.predicted_and_actual import Figure
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import ROWS_MOVED, Commit, Commits, moves_rows, written_in
from lakehouse.core.journal_records import CompactionTry, VacuumRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOperation:
    """One finished upkeep operation. `None` means unknown.

    - `operation_id`: identifies the operation among the operations of the same table and kind.
    - `reason`: the name of the plan's reason; empty if unknown.
    - `seconds`, `vcpu_seconds`, `requests` (by method) and `usd` are actual figures.
    """

    table: str
    kind: str
    operation_id: str
    ended_ms: int
    is_ok: bool = True
    reason: str = ""
    seconds: float | None = None
    vcpu_seconds: float | None = None
    requests: Mapping[str, int] | None = None
    usd: float | None = None
    figures: tuple[Figure, ...] = ()


def compactions_of(
    table: str, entries: Iterable[Entry], prices: Prices, *, since_ms: int
) -> list[UpkeepOperation]:
    """The compactions in a log at `since_ms` or later. A compaction counts at its last commit.

    Compactions by other programs have no prediction.
    """
    return [
        _compaction(table, each, prices)
        for each in entries
        if each.compaction.committed_ms >= since_ms
    ]


def failed_compactions(
    table: str, tries: Iterable[CompactionTry], prices: Prices, *, since_ms: int
) -> list[UpkeepOperation]:
    """The compactions since a time that failed, or lost a conflict with another writer."""
    return [
        UpkeepOperation(
            table=table,
            kind="compaction",
            operation_id=f"failed-{each.ended_ms}",
            ended_ms=each.ended_ms,
            is_ok=False,
            seconds=each.seconds,
            vcpu_seconds=each.seconds * prices.vcpus,
            usd=run_price(prices, seconds=each.seconds),
        )
        for each in tries
        if each.result != "succeeded" and each.ended_ms >= since_ms
    ]


def vacuums_of(
    table: str, records: Iterable[VacuumRecord], prices: Prices, *, since_ms: int
) -> list[UpkeepOperation]:
    """The vacuums in the journal since a time."""
    return [_vacuum(table, each, prices) for each in records if each.ended_ms >= since_ms]


def moves_of(
    table: str, history: Commits, prices: Prices, *, since_ms: int
) -> list[UpkeepOperation]:
    """The archive, restore and TTL commits since a time."""
    return [
        _move(table, commit, prices)
        for commit in history.commits
        if moves_rows(commit) and commit.committed_ms >= since_ms
    ]


def _compaction(table: str, entry: Entry, prices: Prices) -> UpkeepOperation:
    run = entry.compaction
    operation = UpkeepOperation(
        table=table,
        kind="compaction",
        operation_id=f"version-{run.version}",
        ended_ms=run.committed_ms,
        seconds=run.seconds,
        vcpu_seconds=None if run.seconds is None else run.seconds * prices.vcpus,
        usd=entry.usd,
    )
    predicted = run.predicted
    if predicted is None:
        return operation
    names = ("files_removed", "files_added", "bytes_removed", "bytes_added", "seconds")
    figures = [Figure(name, getattr(predicted, name), getattr(run, name)) for name in names]
    figures.append(Figure("usd", predicted.usd, entry.usd))
    return replace(operation, reason=predicted.reason, figures=tuple(figures))


def _vacuum(table: str, record: VacuumRecord, prices: Prices) -> UpkeepOperation:
    return UpkeepOperation(
        table=table,
        kind="vacuum",
        operation_id=f"started-{record.started_ms}",
        ended_ms=record.ended_ms,
        is_ok=not record.failed,
        reason="VACUUM_DUE" if record.predicted_files else "NOTHING_PAST",
        seconds=record.seconds,
        vcpu_seconds=record.seconds * prices.vcpus,
        requests=dict(record.requests),
        usd=record.usd,
        figures=(
            Figure("files", record.predicted_files, record.deleted_files),
            Figure("bytes", record.predicted_bytes, record.deleted_bytes),
            Figure("requests", record.predicted_requests, sum(record.requests.values())),
            Figure("seconds", round(record.predicted_seconds, 3), round(record.seconds, 3)),
            Figure("usd", record.predicted_usd, record.usd),
        ),
    )


def _move(table: str, commit: Commit, prices: Prices) -> UpkeepOperation:
    """The operation of an archive, restore or TTL commit, from the commit's metadata."""
    metadata = written_in(commit)
    plan = _mapping_in(metadata, "plan")
    requests = _mapping_in(metadata, "requests")
    started_ms = metadata.get("started_ms")
    operation = UpkeepOperation(
        table=table,
        kind=metadata[ROWS_MOVED],
        operation_id=f"version-{commit.version}",
        ended_ms=commit.committed_ms,
        reason=str(plan.get("reason", "")),
        requests=requests,
    )
    if not isinstance(started_ms, int) or started_ms > commit.committed_ms:
        return operation
    seconds = (commit.committed_ms - started_ms) / 1000
    counts = requests_by_class(requests)
    return replace(
        operation,
        seconds=seconds,
        vcpu_seconds=seconds * prices.vcpus,
        usd=run_price(
            prices, seconds=seconds, get_requests=counts["get"], put_requests=counts["put"]
        ),
    )


def requests_by_class(requests: Mapping[str, int]) -> Counter[str]:
    """The S3 requests by price class: get, put or delete. `put` includes COPY, POST and LIST."""
    counts = Counter[str]()
    for name, count in requests.items():
        if name.startswith(("Get", "Head")):
            price_class = "get"
        elif name.startswith("Delete"):
            price_class = "delete"
        else:
            price_class = "put"
        counts[price_class] += count
    return counts


def _mapping_in(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = metadata.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
