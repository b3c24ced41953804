"""A table's compactions over time: prediction errors, write amplification and wasted work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lakehouse.base.predicted_and_actual import Figure, share_off
from lakehouse.base.text import count_of, size_text
from lakehouse.compact.plan.estimate import requests, run_price
from lakehouse.declare.journal_records import FAILURES_KEPT, CompactionTry
from lakehouse.declare.prices import DEFAULT_PRICES, Prices
from lakehouse.delta.commits import Commits, LoggedCompaction, is_news

# Mean errors cover this many of the newest runs, so that an old cold start no longer counts.
_MEAN_OF = 10


# Prediction errors as shares of the actual figures; `None` if not predicted or not measured.
# - files: the files removed and added.
# - bytes: the bytes added. The bytes removed are known in advance.
# - seconds: the time up to the commit.
PredictionErrors = Mapping[str, float | None]
NO_ERRORS: PredictionErrors = dict.fromkeys(("files", "bytes", "seconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One compaction, with its prediction errors and price; `None` means unknown."""

    compaction: LoggedCompaction
    errors: PredictionErrors
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a table's compactions cost since `first_version`, the oldest commit in the history.

    - `entries`: the compactions by any program, oldest first.
    - `bytes_ingested`: bytes of the files that commits with changed rows added (`is_news`).
    - `bytes_rewritten`: bytes of the files that replaced others without a change of rows.
    - `wasted_…`: recorded runs that failed or lost a conflict with another writer.
    """

    table: str
    first_version: int
    entries: tuple[Entry, ...]
    bytes_ingested: int
    bytes_rewritten: int
    wasted_runs: int
    wasted_seconds: float
    wasted_bytes: int

    @property
    def write_amplification(self) -> float | None:
        """Bytes rewritten per byte ingested; `None` if the log has no ingested bytes."""
        return self.bytes_rewritten / self.bytes_ingested if self.bytes_ingested else None

    @property
    def mean_errors(self) -> PredictionErrors:
        """The mean errors of the newest ten runs."""
        return _means([each.errors for each in self.entries[-_MEAN_OF:]])

    @property
    def sentences(self) -> tuple[str, ...]:
        """The account as two or three sentences."""
        ratio = "unknown" if self.write_amplification is None else f"{self.write_amplification:.2f}"
        amplification = (
            f"write amplification {ratio}: {size_text(self.bytes_rewritten)} rewritten for "
            f"{size_text(self.bytes_ingested)} ingested"
        )
        limit = "; older runs are no longer recorded" if self.wasted_runs >= FAILURES_KEPT else ""
        wasted = (
            f"wasted: {count_of(self.wasted_runs, 'run')}, {self.wasted_seconds:.1f} s, "
            f"{size_text(self.wasted_bytes)}{limit}"
        )
        if not self.entries:
            return (amplification, wasted)
        means = self.mean_errors
        run_count = min(len(self.entries), _MEAN_OF)
        errors = (
            f"{count_of(len(self.entries), 'compaction')}; mean error of the newest {run_count}: "
            f"files {_share(means['files'])}, bytes added {_share(means['bytes'])}, "
            f"seconds {_share(means['seconds'])}"
        )
        return (errors, amplification, wasted)

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse history --json`."""
        amplification = self.write_amplification
        return {
            "compaction_count": len(self.entries),
            "mean_errors": errors_as_json(self.mean_errors),
            "bytes_ingested": self.bytes_ingested,
            "bytes_rewritten": self.bytes_rewritten,
            "write_amplification": None if amplification is None else round(amplification, 4),
            "wasted_runs": self.wasted_runs,
            "wasted_seconds": round(self.wasted_seconds, 3),
            "wasted_bytes": self.wasted_bytes,
        }


def account_for(
    history: Commits,
    wasted: Sequence[CompactionTry] = (),
    *,
    prices: Prices = DEFAULT_PRICES,
    on_s3: bool = False,
) -> Account:
    """The account of a table, from its commits and the `wasted` runs in the journal.

    Requests are priced only if `on_s3`.
    """
    entries = tuple(
        Entry(
            compaction=compaction,
            errors=_errors(compaction),
            usd=_usd(compaction, prices, on_s3=on_s3),
        )
        for compaction in history.compactions()
    )
    # A commit that only adds existing files again (a backfill of row ids) rewrites nothing.
    rewrites = [each for each in history.commits if not each.changed_data and each.removed_paths]
    return Account(
        table=history.table,
        first_version=history.commits[0].version if history.commits else 0,
        entries=entries,
        bytes_ingested=sum(commit.added_bytes for commit in history.commits if is_news(commit)),
        bytes_rewritten=sum(commit.added_bytes for commit in rewrites),
        wasted_runs=len(wasted),
        wasted_seconds=sum(each.seconds for each in wasted),
        wasted_bytes=sum(each.bytes_rewritten for each in wasted),
    )


def errors_as_json(errors: PredictionErrors) -> dict[str, float | None]:
    """The documented JSON shape of prediction errors."""
    return {name: None if share is None else round(share, 4) for name, share in errors.items()}


def _usd(run: LoggedCompaction, prices: Prices, *, on_s3: bool) -> float | None:
    if run.seconds is None:
        return None
    if not on_s3:
        return run_price(prices, seconds=run.seconds)
    sizes = (run.files_removed, run.files_added, run.bytes_removed, run.bytes_added)
    gets, puts = requests(*sizes)
    return run_price(prices, seconds=run.seconds, get_requests=gets, put_requests=puts)


def _errors(run: LoggedCompaction) -> PredictionErrors:
    predicted = run.predicted
    if predicted is None:
        return NO_ERRORS
    removed_error = abs(predicted.files_removed - run.files_removed)
    added_error = abs(predicted.files_added - run.files_added)
    return {
        "files": share_off(removed_error + added_error, run.files_removed + run.files_added),
        "bytes": Figure("bytes", predicted.bytes_added, run.bytes_added).error,
        "seconds": Figure("seconds", predicted.seconds, run.seconds).error,
    }


def _means(errors: Sequence[PredictionErrors]) -> PredictionErrors:
    means = dict[str, float | None]()
    for name in NO_ERRORS:
        shares = [each[name] for each in errors]
        known = [share for share in shares if share is not None]
        means[name] = fmean(known) if known else None
    return means


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"
