"""Finished upkeep operations: predicted and actual figures, cost, and sums by kind.

The kinds are compaction, vacuum, archive, restore and ttl.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, cast

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.costs.compaction_history import Entry
from lakehouse.core.costs.predicted_and_actual import Figure
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import ROWS_MOVED, Commit, Commits, moves_rows, written_in
from lakehouse.core.journal_records import CompactionTry, VacuumRecord
from lakehouse.core.text import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOperation:
    """One finished upkeep operation. `None` means unknown.

    - `operation_id`: identifies the operation among the operations of the same table and kind.
    - `reason`: the name of the plan's reason; empty if unknown.
    - `why`: the plan's sentence, if it is known; for a vacuum, its outcome; for a failed
      compaction, its error.
    - `seconds`, `vcpu_seconds`, `requests` (by method) and `usd` are actual figures.
    - `run_id`: the Dagster run.
    """

    table: str
    kind: str
    operation_id: str
    ended_ms: int
    is_ok: bool
    why: str
    reason: str = ""
    seconds: float | None = None
    vcpu_seconds: float | None = None
    requests: Mapping[str, int] | None = None
    usd: float | None = None
    figures: tuple[Figure, ...] = ()
    run_id: str = ""

    @property
    def started_ms(self) -> int | None:
        """When the operation began."""
        return None if self.seconds is None else self.ended_ms - round(self.seconds * 1000)

    @property
    def wrong_figures(self) -> list[Figure]:
        """The figures whose actual value differs from the prediction."""
        return [each for each in self.figures if each.predicted != each.actual]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSum:
    """The sums of all operations of one kind.

    Unknown values are not summed. `unknown_count` is the number of operations without a known
    price. `errors` lists each figure with its mean prediction error, as a share of the actual
    figure.
    """

    kind: str
    count: int
    failed_count: int
    seconds: float
    usd: float
    unknown_count: int
    errors: tuple[tuple[str, float], ...]


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
        _failed_compaction(table, each, prices)
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


def sums_by_kind(operations: Sequence[UpkeepOperation]) -> list[UpkeepSum]:
    """The sums of each kind, the most expensive kind first."""
    by_kind = dict[str, list[UpkeepOperation]]()
    for each in operations:
        by_kind.setdefault(each.kind, []).append(each)
    return sorted((_sum(kind, group) for kind, group in by_kind.items()), key=_by_price)


def _sum(kind: str, operations: Sequence[UpkeepOperation]) -> UpkeepSum:
    errors = dict[str, list[float]]()
    for operation in operations:
        for figure in operation.figures:
            if figure.error is not None:
                errors.setdefault(figure.name, []).append(figure.error)
    return UpkeepSum(
        kind=kind,
        count=len(operations),
        failed_count=sum(not each.is_ok for each in operations),
        seconds=sum(each.seconds or 0.0 for each in operations),
        usd=sum(each.usd or 0.0 for each in operations),
        unknown_count=sum(each.usd is None for each in operations),
        errors=tuple((name, fmean(shares)) for name, shares in errors.items()),
    )


def _by_price(total: UpkeepSum) -> tuple[float, int]:
    return -total.usd, -total.count


def _compaction(table: str, entry: Entry, prices: Prices) -> UpkeepOperation:
    run = entry.compaction
    operation = UpkeepOperation(
        table=table,
        kind="compaction",
        operation_id=f"version-{run.version}",
        ended_ms=run.committed_ms,
        is_ok=True,
        why="by another program",
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
    return replace(
        operation, why=predicted.sentence, reason=predicted.reason, figures=tuple(figures)
    )


def _failed_compaction(table: str, attempt: CompactionTry, prices: Prices) -> UpkeepOperation:
    first_line = attempt.why.strip().partition("\n")[0]
    return UpkeepOperation(
        table=table,
        kind="compaction",
        operation_id=f"failed-{attempt.ended_ms}",
        ended_ms=attempt.ended_ms,
        is_ok=False,
        why=f"{attempt.result}: {first_line}",
        seconds=attempt.seconds,
        vcpu_seconds=attempt.seconds * prices.vcpus,
        usd=run_price(prices, seconds=attempt.seconds),
        run_id=attempt.run,
    )


def _vacuum(table: str, record: VacuumRecord, prices: Prices) -> UpkeepOperation:
    failed = count_of(len(record.failed), "file")
    failure = f"; not deleted: {failed}" if record.failed else ""
    return UpkeepOperation(
        table=table,
        kind="vacuum",
        operation_id=f"started-{record.started_ms}",
        ended_ms=record.ended_ms,
        is_ok=not record.failed,
        why=f"{count_of(record.deleted_files, 'file')} deleted, mode {record.mode}{failure}",
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
        run_id=record.run,
    )


def _move(table: str, commit: Commit, prices: Prices) -> UpkeepOperation:
    """The operation of an archive, restore or TTL commit, from the commit's metadata.

    Only an archive run has figures: it has a single commit, so its plan can be compared with it.
    """
    metadata = written_in(commit)
    kind = metadata[ROWS_MOVED]
    plan = _mapping_in(metadata, "plan") or {}
    requests = _mapping_in(metadata, "requests")
    started_ms = metadata.get("started_ms")
    seconds = None
    usd = None
    if isinstance(started_ms, int) and started_ms <= commit.committed_ms:
        seconds = (commit.committed_ms - started_ms) / 1000
        counts = requests_by_class(requests or {})
        usd = run_price(
            prices, seconds=seconds, get_requests=counts["get"], put_requests=counts["put"]
        )
    figures = (
        Figure("files", plan.get("files"), len(commit.removed_paths)),
        Figure("rows", plan.get("rows"), metadata.get("rows")),
        Figure("requests", _total(_mapping_in(plan, "requests")), _total(requests)),
        Figure("seconds", plan.get("seconds"), seconds),
        Figure("usd", plan.get("usd"), usd),
    )
    return UpkeepOperation(
        table=table,
        kind=kind,
        operation_id=f"version-{commit.version}",
        ended_ms=commit.committed_ms,
        is_ok=True,
        why=str(plan.get("sentence", f"{kind} by version {commit.version}")),
        reason=str(plan.get("reason", "")),
        seconds=seconds,
        vcpu_seconds=None if seconds is None else seconds * prices.vcpus,
        requests=requests,
        usd=usd,
        figures=figures if kind == "archive" and plan else (),
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


def _mapping_in(metadata: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = metadata.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _total(requests: Mapping[str, int] | None) -> int | None:
    return None if requests is None else sum(requests.values())
