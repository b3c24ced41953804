"""A table's log replayed under another policy: what would have run, when, and what it would have taken and given.

1. The log is told in grains (`lineage`): real compactions are left out, writers' commits stay.
2. After each commit of a writer the table is what that commit leaves of the replay's own files.
3. Whoever compacts under the policy looks at it: the sensor's own decision for the sensor, the plan for the others.
4. A compaction does what its plan says. Where a real one put the same rows together, its file is taken, name and size included;
   elsewhere a bin of live bytes shrinks as the table's real compactions did, or not at all where there were none.

So the replay under the policy that was really in force gives the files that there really are. Where a writer removed a file that the
replay does not have, all files of the replay that hold its rows are removed; what else they hold goes into what that commit wrote, as
copy-on-write does it. That is an estimate, and each is counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

from lakehouse.core.compaction import CompactionPlan, plan_compaction
from lakehouse.core.cost import DEFAULT_RATES, Estimate, Rates, estimate
from lakehouse.core.layout import DataFile
from lakehouse.core.lineage import Deed, Lineage, live_rows, trace
from lakehouse.core.looks import Look, look, look_times, next_look_ms, not_looked_at
from lakehouse.core.policy import CompactionPolicy
from lakehouse.core.reason import Reason
from lakehouse.core.replayed import ReplayedTable, sum_known
from lakehouse.core.story import Story, StoryCommit

# A plan whose outcome is planned anew ends by itself; a policy that never comes to rest shall not keep a terminal busy for ever.
_RUNS_PER_COMMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One compaction, replayed or real; seconds and money are those that the rates give for it, in both cases."""

    at_ms: int
    sentence: str
    removed_paths: tuple[str, ...]
    added_paths: tuple[str, ...]
    bytes_removed: int
    bytes_added: int
    seconds: float
    usd: float

    @property
    def ended_ms(self) -> int:
        """When it was done, by its predicted seconds."""
        return self.at_ms + round(self.seconds * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A version that a writer made, and what upkeep did before the next one; counts are those after it.

    `row_count` is `None` where the log does not tell. `reason` and `sentence` are of the look that led to a run, otherwise of the last
    one; `reason` is `None` for what really happened.
    """

    version: int
    committed_ms: int
    operation: str
    file_count: int
    small_file_count: int
    size_bytes: int
    row_count: int | None
    bytes_ingested: int
    reason: Reason | None = None
    sentence: str = ""
    runs: tuple[PastRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """How far a replay is an estimate: all 0 where it is exact.

    `moved_removals`: files that a writer removed whose rows lie otherwise in the replay; `moved_vectors`: deletion vectors on such files;
    `carried_bytes`: what their writers had to write again for it. `modelled_files`: outputs whose size is modelled by `shrink_ratio`.
    `unclear_compactions`: real ones of which the log does not say which rows went into which file.
    """

    moved_removals: int = 0
    moved_vectors: int = 0
    carried_bytes: int = 0
    modelled_files: int = 0
    unclear_compactions: int = 0
    shrink_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """A table's past under one policy, or as it was."""

    table: str
    first_version: int
    from_the_beginning: bool
    moments: tuple[Moment, ...]
    doubts: Doubts

    @property
    def runs(self) -> tuple[PastRun, ...]:
        """Every compaction, in order."""
        return tuple(run for moment in self.moments for run in moment.runs)

    @property
    def bytes_ingested(self) -> int:
        """Bytes of the files that writers added."""
        return sum(moment.bytes_ingested for moment in self.moments)

    @property
    def bytes_rewritten(self) -> int:
        """Bytes that compactions read and wrote again."""
        return sum(run.bytes_removed for run in self.runs)

    @property
    def write_amplification(self) -> float | None:
        """Bytes rewritten per byte ingested; `None` where nothing was."""
        return self.bytes_rewritten / self.bytes_ingested if self.bytes_ingested else None

    @property
    def mean_file_count(self) -> float:
        """Files after a writer's version and the upkeep that followed it, on average over the versions."""
        return fmean(moment.file_count for moment in self.moments) if self.moments else 0.0

    @property
    def deviation_file_count(self) -> float:
        """Standard deviation of that count."""
        return pstdev(moment.file_count for moment in self.moments) if self.moments else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all compactions."""
        return sum(run.seconds for run in self.runs)

    @property
    def usd(self) -> float:
        """Money of all compactions."""
        return sum(run.usd for run in self.runs)


def replay_story(story: Story, policy: CompactionPolicy, *, rates: Rates = DEFAULT_RATES) -> Backtest:
    """The past of a table as it would have been under `policy`.

    Raises:
        Refused: a strategy that no log can tell about; a table feature that is not planned.
    """
    lineage = trace(story)
    replay = _Replay(ReplayedTable(lineage), policy, rates)
    moments = [replay.live(deed, following) for deed, following in pairwise([*lineage.deeds, None]) if deed]
    return _backtest(story, moments, replay.doubts(lineage))


def real_past(story: Story, policy: CompactionPolicy, *, rates: Rates = DEFAULT_RATES) -> Backtest:
    """What really happened, in the same words; `policy` says which files are small."""
    live = {file.path: file for file in (story.start.files if story.start else ())}
    moments: list[Moment] = []
    for commit in story.commits:
        removed = [live.pop(path) for path in commit.removed_paths if path in live]
        live |= {file.path: file for file in commit.added}
        runs: tuple[PastRun, ...] = ()
        if commit.is_compaction:
            figures = estimate(rates, files_removed=len(removed), bytes_removed=sum(file.size_bytes for file in removed))
            runs = (_past_run(f"{commit.operation} of version {commit.version}", removed, commit.added, commit.committed_ms, figures),)
        if commit.changed_data or (runs and not moments):
            moments.append(_moment(commit, live.values(), policy, runs=runs))
        elif runs:
            last = moments[-1]
            now = _moment(commit, live.values(), policy)
            counts = {name: getattr(now, name) for name in ("file_count", "small_file_count", "size_bytes")}
            moments[-1] = replace(last, runs=(*last.runs, *runs), sentence=last.sentence or runs[0].sentence, **counts)
    return _backtest(story, moments, Doubts())


class _Replay:
    """One policy at work on the table of a replay."""

    def __init__(self, table: ReplayedTable, policy: CompactionPolicy, rates: Rates) -> None:
        self._table, self._policy, self._rates = table, policy, rates
        self._last_run_ms: int | None = None

    def live(self, deed: Deed, following: Deed | None) -> Moment:
        """The time from one commit of a writer to the next: every look at the table, and what it led to."""
        self._table.apply(deed)
        until_ms = following.commit.committed_ms if following else None
        seen, runs = not_looked_at(self._policy), list[PastRun]()
        times = list(look_times(self._policy, deed.commit.committed_ms, until_ms))
        plan = None
        while times and len(runs) < _RUNS_PER_COMMIT:
            now_ms = times.pop(0)
            if plan is None or self._policy.cold_hours:
                plan = plan_compaction(self._table.layout(deed.commit.shape), self._policy, rates=self._rates, now_ms=now_ms)
            found = look(plan, version=deed.commit.version, now_ms=now_ms, last_run_ms=self._last_run_ms)
            seen = seen if runs else found
            if found.runs and plan.bins:
                runs.append(self._run(plan, found, now_ms))
                again_ms = next_look_ms(self._policy, runs[-1].ended_ms)
                later = {time for time in (*times, again_ms) if time is not None and time >= runs[-1].ended_ms}
                times = sorted(time for time in later if until_ms is None or time < until_ms)
                plan = None
        return _moment(deed.commit, self._table.files, self._policy, reason=seen.reason, sentence=seen.sentence, runs=tuple(runs))

    def doubts(self, lineage: Lineage) -> Doubts:
        """What had to be estimated until now."""
        return Doubts(
            moved_removals=self._table.moved_removals,
            moved_vectors=self._table.moved_vectors,
            carried_bytes=self._table.carried_bytes,
            modelled_files=self._table.modelled_files,
            unclear_compactions=lineage.guesses,
            shrink_ratio=lineage.shrink_ratio,
        )

    def _run(self, plan: CompactionPlan, found: Look, now_ms: int) -> PastRun:
        removed = [file for bin_ in plan.bins for file in bin_.files]
        added = [self._table.merge(bin_, now_ms=now_ms) for bin_ in plan.bins]
        sentence = found.sentence if found.sentence == plan.sentence else f"{found.sentence}: {plan.sentence}"
        run = _past_run(sentence, removed, added, now_ms, plan.estimate)
        self._last_run_ms = run.ended_ms
        return run


def _past_run(sentence: str, removed: Sequence[DataFile], added: Sequence[DataFile], at_ms: int, figures: Estimate) -> PastRun:
    return PastRun(
        at_ms=at_ms,
        sentence=sentence,
        removed_paths=tuple(file.path for file in removed),
        added_paths=tuple(file.path for file in added),
        bytes_removed=sum(file.size_bytes for file in removed),
        bytes_added=sum(file.size_bytes for file in added),
        seconds=figures.seconds,
        usd=figures.usd,
    )


def _moment(commit: StoryCommit, files: Iterable[DataFile], policy: CompactionPolicy, **more: Any) -> Moment:
    live = list(files)
    changed = set(commit.removed_paths)
    return Moment(
        version=commit.version,
        committed_ms=commit.committed_ms,
        operation=commit.operation,
        file_count=len(live),
        small_file_count=sum(file.size_bytes < policy.candidate_bytes for file in live),
        size_bytes=sum(file.size_bytes for file in live),
        row_count=sum_known([live_rows(file) for file in live]),
        bytes_ingested=sum(file.size_bytes for file in commit.added if file.path not in changed) if commit.changed_data else 0,
        **more,
    )


def _backtest(story: Story, moments: Iterable[Moment], doubts: Doubts) -> Backtest:
    return Backtest(
        table=story.table,
        first_version=story.first_version,
        from_the_beginning=story.start is None,
        moments=tuple(moments),
        doubts=doubts,
    )
