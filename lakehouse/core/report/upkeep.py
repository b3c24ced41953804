"""The upkeep that ran: each operation with its predicted and actual figures, and sums by kind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from lakehouse.core.costs.compaction_history import Entry
from lakehouse.core.costs.figures import Figure
from lakehouse.core.journal_records import CompactionTry
from lakehouse.core.vacuum.facts import VacuumRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRun:
    """One operation that ended. `why` is the plan's sentence, or the error of a failure.

    `seconds` and `usd` are actual figures.
    """

    table: str
    kind: str
    ended_ms: int
    is_ok: bool
    why: str
    seconds: float | None = None
    usd: float | None = None
    figures: tuple[Figure, ...] = ()

    @property
    def wrong_figures(self) -> list[Figure]:
        """The figures that were not as predicted."""
        return [each for each in self.figures if each.predicted != each.actual]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSum:
    """All operations of one kind. Sums count what is known; `unknown_count` have no price.

    `errors` are the mean errors of predictions as shares of the actual figures, by figure.
    """

    kind: str
    count: int
    failed_count: int
    seconds: float
    usd: float
    unknown_count: int
    errors: tuple[tuple[str, float], ...]


def compaction_runs(table: str, entries: Iterable[Entry], *, since_ms: int) -> list[UpkeepRun]:
    """The compactions in a table's log since a time; those of others have no prediction."""
    return [
        _compaction(table, each) for each in entries if each.compaction.committed_ms >= since_ms
    ]


def failed_runs(table: str, tries: Iterable[CompactionTry], *, since_ms: int) -> list[UpkeepRun]:
    """The compactions that failed, or lost to another writer, since a time."""
    return [
        UpkeepRun(
            table=table,
            kind="compaction",
            ended_ms=each.ended_ms,
            is_ok=False,
            why=f"{each.result}: {each.why.strip().partition(chr(10))[0]}",
            seconds=each.seconds,
        )
        for each in tries
        if each.result != "succeeded" and each.ended_ms >= since_ms
    ]


def vacuum_runs(table: str, records: Iterable[VacuumRecord], *, since_ms: int) -> list[UpkeepRun]:
    """The vacuums in the journal since a time."""
    return [_vacuum(table, each) for each in records if each.ended_ms >= since_ms]


def sums_by_kind(runs: Sequence[UpkeepRun]) -> list[UpkeepSum]:
    """The sums of each kind, the most expensive kind first."""
    kinds = dict[str, list[UpkeepRun]]()
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    return sorted((_sum(kind, of_kind) for kind, of_kind in kinds.items()), key=_by_price)


def _sum(kind: str, runs: Sequence[UpkeepRun]) -> UpkeepSum:
    errors = dict[str, list[float]]()
    for figure in (figure for run in runs for figure in run.figures):
        if figure.error is not None:
            errors.setdefault(figure.name, []).append(figure.error)
    return UpkeepSum(
        kind=kind,
        count=len(runs),
        failed_count=sum(not run.is_ok for run in runs),
        seconds=sum(run.seconds or 0.0 for run in runs),
        usd=sum(run.usd or 0.0 for run in runs),
        unknown_count=sum(run.usd is None for run in runs),
        errors=tuple((name, fmean(shares)) for name, shares in errors.items()),
    )


def _by_price(total: UpkeepSum) -> tuple[float, int]:
    return -total.usd, -total.count


def _compaction(table: str, entry: Entry) -> UpkeepRun:
    run, predicted = entry.compaction, entry.compaction.predicted
    figures = [
        Figure(name, getattr(predicted, name, None), getattr(run, name))
        for name in ("files_removed", "files_added", "bytes_added", "seconds")
    ]
    figures.append(Figure("usd", None if predicted is None else predicted.usd, entry.usd))
    return UpkeepRun(
        table=table,
        kind="compaction",
        ended_ms=run.committed_ms,
        is_ok=True,
        why="by another program" if predicted is None else predicted.sentence,
        seconds=run.seconds,
        usd=entry.usd,
        figures=() if predicted is None else tuple(figures),
    )


def _vacuum(table: str, record: VacuumRecord) -> UpkeepRun:
    requests = sum(record.requests.values())
    failed = f"; {len(record.failed)} could not be deleted" if record.failed else ""
    return UpkeepRun(
        table=table,
        kind="vacuum",
        ended_ms=record.ended_ms,
        is_ok=not record.failed,
        why=f"{record.deleted_files} files that no version needs, mode {record.mode}{failed}",
        seconds=record.seconds,
        usd=record.usd,
        figures=(
            Figure("files", record.predicted_files, record.deleted_files),
            Figure("bytes", record.predicted_bytes, record.deleted_bytes),
            Figure("requests", record.predicted_requests, requests),
            Figure("seconds", round(record.predicted_seconds, 3), round(record.seconds, 3)),
            Figure("usd", record.predicted_usd, record.usd),
        ),
    )
