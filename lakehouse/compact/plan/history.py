"""A table's compactions over time, each compared with its plan, and the table's circuit breaker.

The breaker stops compactions after too many failures in a row. A breaker opens after three failures
in a row and stays open for six hours. Then it is half open and allows one attempt. If this attempt
succeeds, the breaker closes; if it fails, the breaker opens again for twice the time (at most four
days). Two kinds of failures are counted separately:

- An automatic compaction failed, or lost its commit to another writer. Any later compaction that
  succeeds resets this count, even if a person started it.
- A commit, usually of another program, rewrote the same bytes pointlessly (`find_rewrites`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

from lakehouse.base.frozen import frozen
from lakehouse.base.operation import Figure, UpkeepOperation, figures_as_json
from lakehouse.base.reasons import Explained, Reason
from lakehouse.base.text import HOUR_MS, count_of, size_text
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.estimate import requests
from lakehouse.declare.prices import DEFAULT_PRICES, Prices
from lakehouse.delta.commits import Commit, Commits, LoggedCompaction, is_news, written_in
from lakehouse.delta.snapshot import TableFacts

# Mean errors cover this many of the newest runs, so that an old cold start no longer counts.
_MEAN_OF = 10

_COUNTS = ("files_removed", "files_added", "bytes_removed", "bytes_added")


@frozen
class Entry:
    """One compaction, with its price in USD (`None`: unknown)."""

    compaction: LoggedCompaction
    usd: float | None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Predicted and actual figures."""
        run = self.compaction
        predicted = run.predicted
        figures = [
            Figure(each, getattr(predicted, each, None), getattr(run, each))
            for each in (*_COUNTS, "seconds")
        ]
        usd = None if self.usd is None else round(self.usd, 9)
        return (*figures, Figure("usd", getattr(predicted, "usd", None), usd))

    @property
    def wrong_figures(self) -> Sequence[Figure]:
        """The figures that a plan knows in advance, and that turned out to be others."""
        return [each for each in self.figures[:3] if each.predicted != each.actual]


@frozen
class Account:
    """What a table's compactions cost since the oldest commit in the history.

    - `entries`: the compactions by any program, oldest first.
    - `bytes_ingested`: bytes of the files that commits with changed rows added (`is_news`).
    - `bytes_rewritten`: bytes of the files that replaced others without a change of rows.
    - `wasted_…`: runs of the last month that failed or lost a conflict with another writer.
    """

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
    def mean_errors(self) -> Mapping[str, float | None]:
        """The mean error of each figure in the newest ten runs; `None` if unknown."""
        figures = [figure for each in self.entries[-_MEAN_OF:] for figure in each.figures]
        means = dict[str, float | None]()
        for name in (*_COUNTS, "seconds", "usd"):
            errors = [each.error for each in figures if each.name == name]
            known = [error for error in errors if error is not None]
            means[name] = fmean(known) if known else None
        return means

    @property
    def sentences(self) -> tuple[str, ...]:
        """The account as two or three sentences."""
        ratio = "unknown" if self.write_amplification is None else f"{self.write_amplification:.2f}"
        amplification = (
            f"write amplification {ratio}: {size_text(self.bytes_rewritten)} rewritten for "
            f"{size_text(self.bytes_ingested)} ingested"
        )
        wasted = (
            f"wasted in 30 days: {count_of(self.wasted_runs, 'run')}, {self.wasted_seconds:.1f} s, "
            f"{size_text(self.wasted_bytes)}"
        )
        if not self.entries:
            return (amplification, wasted)
        means = self.mean_errors
        run_count = min(len(self.entries), _MEAN_OF)
        errors = (
            f"{count_of(len(self.entries), 'compaction')}; mean error of the newest {run_count}: "
            f"files removed {_share(means['files_removed'])}, files added "
            f"{_share(means['files_added'])}, bytes added {_share(means['bytes_added'])}, seconds "
            f"{_share(means['seconds'])}"
        )
        return (errors, amplification, wasted)

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse history --json`."""
        amplification = self.write_amplification
        return {
            "compaction_count": len(self.entries),
            "mean_errors": {
                name: None if share is None else round(share, 4)
                for name, share in self.mean_errors.items()
            },
            "bytes_ingested": self.bytes_ingested,
            "bytes_rewritten": self.bytes_rewritten,
            "write_amplification": None if amplification is None else round(amplification, 4),
            "wasted_runs": self.wasted_runs,
            "wasted_seconds": round(self.wasted_seconds, 3),
            "wasted_bytes": self.wasted_bytes,
        }


def account_for(
    history: Commits,
    compactions: Iterable[UpkeepOperation] = (),
    *,
    prices: Prices = DEFAULT_PRICES,
    on_s3: bool = False,
) -> Account:
    """The account of a table, from its commits and its recorded compactions.

    Requests are priced only if the table is `on_s3`.
    """
    wasted = failed_of(compactions)
    entries = list[Entry]()
    for run in history.compactions():
        gets, puts = requests(run, run.bytes_added) if on_s3 else (0, 0)
        usd = None
        if run.seconds is not None:
            usd = prices.run_usd(seconds=run.seconds, get_requests=gets, put_requests=puts)
        entries.append(Entry(compaction=run, usd=usd))
    return Account(
        entries=tuple(entries),
        bytes_ingested=sum(commit.added_bytes for commit in history.commits if is_news(commit)),
        bytes_rewritten=sum(each.added_bytes for each in history.commits if each.is_rewrite),
        wasted_runs=len(wasted),
        wasted_seconds=sum(each.seconds or 0.0 for each in wasted),
        wasted_bytes=sum(each.wasted_bytes for each in wasted),
    )


def operation_of(table_key: str, entry: Entry, prices: Prices) -> UpkeepOperation:
    """Our compaction in a table's log as an operation of the lake."""
    run = entry.compaction
    assert run.predicted is not None
    return UpkeepOperation(
        table=table_key,
        kind="compaction",
        operation_id=f"version-{run.version}",
        started_ms=run.predicted.started_ms,
        ended_ms=run.committed_ms,
        reason=run.predicted.reason,
        seconds=run.seconds,
        vcpu_seconds=None if run.seconds is None else run.seconds * prices.vcpus,
        usd=entry.usd,
        figures=entry.figures,
    )


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


_COMPARED = {
    "rows": "row counts and statistics in the log",
    "counts": "row counts in the log",
    "content": "each row",
}


@frozen
class Comparison:
    """A comparison of the rows before and after a compaction. It found no difference.

    `by` is `content` if every row was compared, `rows` if the row counts and column statistics in
    the log were compared, and `counts` if only the row counts were.
    """

    by: Literal["rows", "counts", "content"]
    row_count: int


@frozen
class CompactionOutcome:
    """The plan of a compaction, and its outcome.

    - `entry`: the compaction in the table's log; `None` if nothing was committed.
    - `seconds_optimize`: the duration of the statement alone.
    - `conflicts`: the number of attempts that lost a conflict with another writer. `wasted_bytes`
      and `wasted_seconds` measure the work of these attempts.
    - `account`: the table's compactions, including this one.
    - `facts`: the table after the statement, even if nothing was committed.
    """

    plan: CompactionPlan
    entry: Entry | None = None
    compared: Comparison | None = None
    seconds_optimize: float = 0.0
    seconds_verify: float = 0.0
    conflicts: int = 0
    wasted_bytes: int = 0
    wasted_seconds: float = 0.0
    account: Account | None = None
    facts: TableFacts

    @property
    def rows_verified(self) -> int | None:
        """The number of rows that were verified; `None` if rows were not compared."""
        return self.compared.row_count if self.compared else None

    @property
    def version_after(self) -> int | None:
        """The version of the last commit; `None` if nothing was committed."""
        return self.entry.compaction.version if self.entry else None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Predicted and actual figures; seconds and USD are unknown if nothing was committed."""
        if self.entry:
            return self.entry.figures
        predicted = self.plan.predicted.items()
        return tuple(
            Figure(name, figure, 0 if name in _COUNTS else None) for name, figure in predicted
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The lines to print below the figures.

        If nothing was committed, the only line says why. Without a planned merge, there is no line.
        """
        if self.version_after is None:
            return (self._why_nothing_was_merged,) if self.plan.bins else ()
        duration = f"OPTIMIZE {self.seconds_optimize:.1f} s"
        if self.compared:
            duration += (
                f"; {self.compared.row_count:,} rows verified in {self.seconds_verify:.1f} s by "
                f"comparing {_COMPARED[self.compared.by]}"
            )
        lines = [f"predicted from {self.plan.estimate.basis}", duration]
        if self.account:
            lines += self.account.sentences
        return tuple(lines)

    @property
    def _why_nothing_was_merged(self) -> str:
        """Why OPTIMIZE did not commit, although files were planned."""
        planned_version = self.plan.version
        newest_version = self.facts.snapshot.version
        planned_files = count_of(self.plan.files_removed, "planned file")
        not_merged = f"OPTIMIZE did not merge the {planned_files}"
        if newest_version > planned_version:
            return (
                f"{not_merged}: other writers have committed up to version {newest_version} since"
                f" the planned version {planned_version}. The next plan will use the newest version"
            )
        return (
            f"{not_merged}, although no other writer committed: Delta's selection differs from the"
            f" plan of version {planned_version}. The sensor will not request this version again."
            f" Compare the plan (lakehouse compact {self.plan.table} --dry-run) with the table's"
            " partition values"
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON shape of the plan, plus the actual figures with the prefix `actual_`."""
        return {
            **self.plan.as_json(),
            "version_after": self.version_after,
            **{f"actual_{each.name}": each.actual for each in self.figures},
            "figures": figures_as_json(self.figures),
            "optimize_seconds": round(self.seconds_optimize, 3),
            "verify_seconds": round(self.seconds_verify, 3),
            "rows_verified": self.rows_verified,
            "verified_by": self.compared.by if self.compared else None,
            "conflicts": self.conflicts,
            "wasted_bytes": self.wasted_bytes,
            "wasted_seconds": round(self.wasted_seconds, 3),
            "sentences": list(self.sentences),
        }


# A table is skipped after this many failed attempts at one version, or failures in a row.
TRIES_ALLOWED = 3
# The breaker first opens for this many hours, so that the table gets another attempt on the same
# day.
_HOURS = 6
# The six hours double with each further failure, up to four days. So a table that keeps failing is
# still tried every few days.
_MOST_DOUBLINGS = 4
# The last error is shown up to this length.
_ERROR_LETTERS = 200


@frozen
class Rewrites:
    """A series of pointless rewrites of the same bytes.

    `times` is its length. `version` and `last_ms` are the version and time of its last commit.
    """

    times: int = 0
    bytes_rewritten: int = 0
    version: int = 0
    last_ms: int = 0


NO_REWRITES = Rewrites()
_SEVERITY = attrgetter("times", "last_ms")


@frozen
class BreakerState(Explained):
    """A breaker that is not closed. `retry_at_ms` is the time from which one attempt is allowed."""

    position: Literal["open", "half open"]
    retry_at_ms: int


def assess_breaker(
    compactions: Iterable[UpkeepOperation], rewrites: Rewrites, now_ms: int
) -> BreakerState | None:
    """The breaker of a table at `now_ms`, or `None` if it is closed.

    `compactions` are the table's attempts in the order of their end. Of the attempts of one run,
    the last one counts. Failures of a person's compactions do not count. Times after `now_ms` were
    recorded before a clock was set back, and are ignored.
    """
    ended = [each for each in compactions if each.ended_ms <= now_ms]
    closed_ms = max((each.ended_ms for each in ended if each.result == "succeeded"), default=0)
    failures = [
        each for each in failed_of(ended) if each.ended_ms >= closed_ms and not each.by_person
    ]
    failed = {each.run: each for each in failures}.values()
    causes = list[BreakerState]()
    if len(failed) >= TRIES_ALLOWED:
        newest = failures[-1]
        error = newest.why.strip().partition("\n")[0]
        if len(error) > _ERROR_LETTERS:
            error = f"{error[:_ERROR_LETTERS]}…"
        numbers = {
            "conflicts": sum(each.result == "conflict" for each in failed),
            "bytes": sum(each.wasted_bytes for each in failed),
            "seconds": f"{sum(each.seconds or 0.0 for each in failed):.1f}",
            "why": error,
        }
        causes.append(_open_breaker(Reason.BREAKER_OPEN, len(failed), newest.ended_ms, **numbers))
    if rewrites.times >= TRIES_ALLOWED and closed_ms <= rewrites.last_ms <= now_ms:
        numbers = {"bytes": rewrites.bytes_rewritten, "version": rewrites.version}
        causes.append(
            _open_breaker(Reason.REWRITE_LOOP, rewrites.times, rewrites.last_ms, **numbers)
        )
    if not causes:
        return None
    breaker = max(causes, key=attrgetter("retry_at_ms"))
    if now_ms < breaker.retry_at_ms:
        return breaker
    half = Reason.HALF_OPEN.explain(retry_at=breaker.retry_at_ms, why=breaker.sentence)
    return replace(breaker, position="half open", explanation=half)


def pause_hours(count: int) -> int:
    """How long a table is skipped after `count` failures in a row; `count` >= `TRIES_ALLOWED`."""
    return _HOURS * 2 ** min(count - TRIES_ALLOWED, _MOST_DOUBLINGS)


def last_compaction_ms(history: Commits) -> int | None:
    """The time of our newest compaction, even if it was undone; `None` if the log has none."""
    times = (commit.committed_ms for commit in history.commits if _is_ours(commit))
    return max(times, default=None)


def failed_of(compactions: Iterable[UpkeepOperation]) -> list[UpkeepOperation]:
    """The compactions that failed, or lost a conflict with another writer."""
    return [each for each in compactions if each.result != "succeeded"]


def find_rewrites(history: Commits) -> Rewrites:
    """The longest series of pointless rewrites that has not ended, or `NO_REWRITES`.

    Files are tracked through rewrites (commits without data change), folder by folder, because a
    partition is a folder. A rewrite is pointless if it rewrites outputs of an earlier rewrite,
    merges fewer than two new files from writers, and does not halve the number of these outputs.
    Our own plans are never pointless: they merge two new files, or halve the number of earlier
    outputs. REORG has another purpose, so it neither continues nor ends a series. A useful rewrite,
    an update or a delete of the files ends a series. A useful rewrite of ours ends all series of
    the table.
    """
    series: dict[str, Rewrites] = {}  # by the path of a file that a rewrite added
    for commit in history.commits:
        ends_series = False
        for added, removed in _by_folder(commit):
            earlier = [series.pop(path) for path in removed if path in series]
            after = None  # the series of the added files; `None`: they have none
            if not commit.changed_data:
                new_count = len(removed) - len(earlier)
                after = _series_after(commit, earlier, added=len(added), new_count=new_count)
            if after == NO_REWRITES:
                ends_series = True  # the rewrite was useful
            for path in added:
                if after is not None:
                    series[path] = after
                elif commit.changed_data:
                    # The file may be an earlier one with a new deletion vector: its rows changed.
                    series.pop(path, None)
        if ends_series and _is_ours(commit):
            series = dict.fromkeys(series, NO_REWRITES)
    return max(series.values(), key=_SEVERITY, default=NO_REWRITES)


def _open_breaker(reason: Reason, count: int, last_ms: int, **numbers: object) -> BreakerState:
    """The breaker after `count` failures in a row, of which the last one was at `last_ms`."""
    hours = pause_hours(count)
    retry_at_ms = last_ms + hours * HOUR_MS
    explanation = reason.explain(
        count=count, limit=TRIES_ALLOWED, hours=hours, until=retry_at_ms, **numbers
    )
    return BreakerState(position="open", explanation=explanation, retry_at_ms=retry_at_ms)


def _by_folder(commit: Commit) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The paths that a commit added and removed, by folder."""
    folders: dict[str, tuple[list[str], list[str]]] = {}
    for place, paths in enumerate((commit.added_paths, commit.removed_paths)):
        for path in paths:
            folder, _, _ = path.rpartition("/")
            folders.setdefault(folder, ([], []))[place].append(path)
    yield from folders.values()


def _series_after(
    commit: Commit, earlier: Sequence[Rewrites], *, added: int, new_count: int
) -> Rewrites | None:
    """The series of rewrites to which the added files of one folder belong.

    `earlier` are the series of the removed files that rewrites had added; `new_count` other files
    were removed. `None` if the commit removed no file of the folder. For example, a commit that
    computes statistics only adds the same files again.
    """
    if not earlier and not new_count:
        return None
    worst = max(earlier, key=_SEVERITY, default=NO_REWRITES)
    if commit.operation == "REORG":
        return worst
    if not earlier or new_count >= 2 or len(earlier) >= 2 * added:
        return NO_REWRITES
    return Rewrites(
        times=worst.times + 1,
        bytes_rewritten=worst.bytes_rewritten + commit.removed_bytes,
        version=commit.version,
        last_ms=commit.committed_ms,
    )


def _is_ours(commit: Commit) -> bool:
    """Whether the commit's metadata marks it as a compaction by this program."""
    return not commit.changed_data and "compaction" in written_in(commit)
