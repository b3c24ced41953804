"""A table's log simulated under another policy: each compaction that would have run, with its price and its gain.

1. The log is told in grains (`row_lineage`): real compactions are left out, writers' commits stay.
2. Each commit of a writer is applied to the simulation's own files.
3. Whoever compacts under the policy looks at it: the sensor's own decision for the sensor, the plan for the others.
4. A compaction does what its plan says. Where a real one put the same rows together, its file is taken, name and size included;
   elsewhere a bin of live bytes shrinks as the table's real compactions did, or not at all where there were none.

So the simulation under the policy that was really in force gives the files that there really are. Where a writer removed a file that
the simulation does not have, all files of the simulation that hold its rows are removed; the other rows in them go into the files of that
commit, as copy-on-write does it. Each such estimate is counted.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any, assert_never

from lakehouse.core.backtest.result import Backtest, SimulatedCompaction, SimulatedStep, Uncertainty
from lakehouse.core.backtest.row_lineage import CommitEffect, Lineage, live_rows
from lakehouse.core.backtest.simulated_table import SimulatedTable, sum_known
from lakehouse.core.compaction.bins import Clustering, ZOrdering, files_added
from lakehouse.core.compaction.plan import CompactionPlan, plan_compaction
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.estimate import Estimate, estimate
from lakehouse.core.costs.rates import DEFAULT_RATES, MergeWork, Rates
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.cron import cron_times
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    AutoCompaction,
    BySensor,
    Chosen,
    OptimizedWrite,
    Scheduled,
)
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained, Reason
from lakehouse.core.scheduling.holds import closed_window, persons_hold, recommend_only
from lakehouse.core.scheduling.ranking import (
    Bounds,
    CompactionCandidate,
    RunState,
    choose_compactions,
)
from lakehouse.core.scheduling.read_losses import OpeningSteps, is_made_anew
from lakehouse.core.scheduling.read_rates import Readers, with_readers
from lakehouse.core.scheduling.table_state import TableState, state_of
from lakehouse.core.units import DAY_MS, HOUR_MS, MINUTE_MS

# As many as a real plan is given (`read_facts`).
_COMMITS_REMEMBERED = 500
# A plan whose outcome is planned anew ends by itself; a policy that never comes to rest shall not keep a terminal busy for ever.
_RUNS_PER_COMMIT = 100
# The sensor looks every few seconds; between two commits only time passes, and a table waits for hours: a day for
# the age of files, a week for a window. A table that waits longer is looked at again at the next commit.
_HOURS_LOOKED_AT = 8 * 24
# No table waits so long for its readers; of fewer reads, the time is beyond what a number holds.
_DAYS_AHEAD = 365_000


def simulate_history(
    file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES
) -> Backtest:
    """The past of a table as it would have been under `policy`.

    Raises:
        Refused: a strategy that no log can tell about; a table feature that is not planned.
    """
    lineage = Lineage(file_history)
    table = SimulatedTable(lineage)
    simulation = _Simulation(table, policy, rates)
    steps = [
        simulation.live(deed, following)
        for deed, following in pairwise([*lineage.deeds, None])
        if deed
    ]
    return Backtest(history=file_history, steps=tuple(steps), uncertainty=table.uncertainty)


def real_result(
    file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES
) -> Backtest:
    """The real past of the table in the same shape; `policy` says which files are small, and how compactions were compared."""
    live = {file.path: file for file in (file_history.start.files if file_history.start else ())}
    steps: list[SimulatedStep] = []
    for commit in file_history.commits:
        removed = [live.pop(path) for path in commit.removed_paths if path in live]
        live |= {file.path: file for file in commit.added}
        if not (commit.is_compaction or commit.changed_data):
            continue
        step = _simulated_step(commit, live.values(), policy)
        if commit.is_compaction:
            removed_bytes = sum(file.size_bytes for file in removed)
            compared = policy.verify == "content"
            sizes = {
                "files_removed": len(removed),
                "bytes_removed": removed_bytes,
                "files_added": len(commit.added),
            }
            figures = estimate(
                rates, MergeWork(**sizes), on_s3=commit.shape.on_s3, compared=compared
            )
            sentence = f"{commit.operation} of version {commit.version}"
            run = _simulated_compaction(
                sentence, removed, commit.added, commit.committed_ms, figures
            )
            last = steps.pop() if steps else step
            counts = {
                name: getattr(step, name)
                for name in ("file_count", "small_file_count", "size_bytes")
            }
            steps.append(replace(last, runs=(*last.runs, run), **counts))
        else:
            steps.append(step)
    return Backtest(history=file_history, steps=tuple(steps), uncertainty=Uncertainty())


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Explained):
    """The decision of one look at a table, and why; by `again_ms` its readers will have lost a compaction's price, if nobody writes."""

    runs: bool
    again_ms: int | None = None


def look_times(policy: Compaction, committed_ms: int, until_ms: int | None) -> Iterator[int]:
    """The times of looks at a table after a commit of `committed_ms` and before the next one of `until_ms` (`None`: nobody wrote again).

    Raises:
        Refused: a strategy under which the writers would have written other files, or which is none before it is chosen.
    """
    match policy.strategy:
        case BySensor():
            yield committed_ms
            waits_for_time = (
                policy.windows
                or policy.max_small_file_age_hours
                or policy.cooldown_minutes
                or policy.cold_hours
            )
            if until_ms is not None and waits_for_time:
                hours = range(committed_ms + HOUR_MS, until_ms, HOUR_MS)
                yield from hours[:_HOURS_LOOKED_AT]
        case Scheduled(cron=cron):
            yield from cron_times(cron, committed_ms, until_ms) if until_ms is not None else ()
        case AfterWrite():
            yield committed_ms
        case OptimizedWrite():
            raise Refused(
                "strategy optimized_write changes what writers write, which no log of other writes tells; accepted: the others"
            )
        case AutoCompaction():
            raise Refused(
                "strategy auto_compaction goes by counts that live in Delta's own process, not in the log; accepted: the others"
            )
        case Chosen():
            raise Refused(
                "strategy chosen is one of the others once it is chosen; accepted: that one"
            )
        case _:
            assert_never(policy.strategy)


def look(state: TableState, plan: CompactionPlan, *, now_ms: int) -> Look:
    """The decision at `now_ms`: by the sensor's rules, or for other strategies by the plan alone."""
    if not isinstance(plan.policy.strategy, BySensor):
        return Look(runs=bool(plan.bins), explanation=plan.explanation)
    state = with_readers(state, Readers(reads_per_day=0), plan.policy, now_ms=now_ms)
    [decision] = choose_compactions(
        [CompactionCandidate(state=state, policy=plan.policy)],
        RunState(),
        bounds=Bounds(slots=1),
        now_ms=now_ms,
    )
    return Look(
        runs=decision.request and bool(plan.bins),
        explanation=decision.explanation,
        again_ms=_enough_lost_ms(state, now_ms=now_ms),
    )


class _Simulation:
    """One policy at work on the table of a simulation."""

    def __init__(self, table: SimulatedTable, policy: Compaction, rates: Rates) -> None:
        self._table, self._policy, self._rates = table, policy, rates
        self._logged_compactions: deque[Commit] = deque(maxlen=_COMMITS_REMEMBERED)
        self._version = 0
        self._last_run_ms: int | None = None
        self._cooled_ms = 0
        self._openings: list[tuple[int, int]] | None = None if policy.reads_per_day is None else []

    def live(self, deed: CommitEffect, following: CommitEffect | None) -> SimulatedStep:
        """The time from one commit of a writer to the next: every look at the table, and each compaction that followed."""
        self._table.apply(deed)
        commit = deed.commit
        added = [file.path for file in commit.added]
        self._remember(commit.committed_ms, added=added)
        if self._openings and is_made_anew(
            commit.operation, added, commit.removed_paths, len(self._table.files)
        ):
            self._openings = []
        until_ms = following.commit.committed_ms if following else None
        cron = self._policy.strategy.cron if isinstance(self._policy.strategy, Scheduled) else ""
        seen, runs, plan = (
            Look(runs=False, explanation=Reason.SCHEDULE_NOT_YET.explain(cron=cron)),
            list[SimulatedCompaction](),
            None,
        )
        # The next commit may have the same time, or an earlier one, of another clock; the first look stays.
        cooled = _in_order([self._cooled_ms], commit.committed_ms, until_ms)
        times = sorted({*look_times(self._policy, commit.committed_ms, until_ms), *cooled})
        while times and len(runs) < _RUNS_PER_COMMIT:
            now_ms = times.pop(0)
            held = (
                persons_hold(self._policy, None, now_ms)
                or recommend_only(commit.shape.table, self._policy)
                or closed_window(self._policy, now_ms)
            )
            found = Look(runs=False, explanation=held) if held else None
            if found is None or self._openings is not None:
                snapshot = replace(commit.shape, files=self._table.files)
                plan = (
                    self._plan(snapshot, now_ms)
                    if plan is None or self._policy.cold_hours
                    else plan
                )
                state = replace(
                    state_of(snapshot, plan),
                    last_compaction_ms=self._last_run_ms,
                    openings=self._openings_with(plan, now_ms),
                    prices=self._rates.prices,
                )
                found = found or look(state, plan, now_ms=now_ms)
                if found.again_ms and until_ms:
                    times = _in_order((*times, found.again_ms), now_ms, until_ms)
            seen = seen if runs else found
            if plan is not None and found.runs:
                runs.append(self._run(plan, found, now_ms))
                times, plan = (
                    _in_order((*times, self._cooled_ms), runs[-1].ended_ms, until_ms),
                    None,
                )
        return _simulated_step(
            commit, self._table.files, self._policy, explanation=seen.explanation, runs=tuple(runs)
        )

    def _openings_with(self, plan: CompactionPlan, now_ms: int) -> OpeningSteps | None:
        """The openings that another compaction would have saved each full read; `None` where nobody tells how often the table is read."""
        if self._openings is None:
            return None
        saved = max(0, plan.files_removed - plan.files_added)
        if not self._openings or self._openings[-1][1] != saved:
            self._openings.append((now_ms, saved))
        return tuple(self._openings)

    def _plan(self, snapshot: Snapshot, now_ms: int) -> CompactionPlan:
        history = Commits(table=snapshot.table, commits=tuple(self._logged_compactions))
        return plan_compaction(
            snapshot, self._policy, rates=self._rates, now_ms=now_ms, history=history
        )

    def _remember(
        self, time_ms: int, *, added: Sequence[str], plan: CompactionPlan | None = None
    ) -> None:
        """A commit of the simulation is remembered, for the plans that go by earlier writes and compactions."""
        self._version += 1
        figures = plan.as_json() if plan else {}
        # A later plan reads the columns alike, whether ZORDER BY or clustering laid out the rows by them.
        columns = (
            plan.statement.columns
            if plan and isinstance(plan.statement, ZOrdering | Clustering)
            else ()
        )
        logged_commit = Commit(
            version=self._version,
            committed_ms=time_ms,
            operation="OPTIMIZE" if plan else "WRITE",
            changed_data=plan is None,
            added_paths=tuple(added),
            user_metadata=json.dumps(
                {"plan": {name: value for name, value in figures.items() if name != "bins"}}
            )
            if plan
            else None,
            parameters={"zOrderBy": json.dumps(columns)},
        )
        self._logged_compactions.append(logged_commit)

    def _run(self, plan: CompactionPlan, found: Look, now_ms: int) -> SimulatedCompaction:
        removed = [file for bin_ in plan.bins for file in bin_.files]
        added = [
            file
            for bin_ in plan.bins
            for file in self._table.merge(
                bin_, into=files_added(plan.statement, [bin_]), now_ms=now_ms
            )
        ]
        sentence = (
            found.sentence
            if found.sentence == plan.sentence
            else f"{found.sentence}: {plan.sentence}"
        )
        run = _simulated_compaction(sentence, removed, added, now_ms, plan.estimate)
        self._last_run_ms, self._openings = run.ended_ms, None if self._openings is None else []
        if isinstance(self._policy.strategy, BySensor):
            self._cooled_ms = run.ended_ms + round(self._policy.cooldown_minutes * MINUTE_MS)
        self._remember(run.ended_ms, added=run.added_paths, plan=plan)
        return run


def _in_order(times: Iterable[int], since_ms: int, until_ms: int | None) -> list[int]:
    return sorted(
        {time for time in times if since_ms <= time and (until_ms is None or time < until_ms)}
    )


def _simulated_compaction(
    sentence: str,
    removed: Sequence[DataFile],
    added: Sequence[DataFile],
    at_ms: int,
    figures: Estimate,
) -> SimulatedCompaction:
    return SimulatedCompaction(
        at_ms=at_ms,
        sentence=sentence,
        removed_paths=tuple(file.path for file in removed),
        added_paths=tuple(file.path for file in added),
        bytes_removed=sum(file.size_bytes for file in removed),
        bytes_added=sum(file.size_bytes for file in added),
        seconds=figures.seconds,
        usd=figures.usd,
    )


def _simulated_step(
    commit: FileCommit, files: Iterable[DataFile], policy: Compaction, **more: Any
) -> SimulatedStep:
    live = list(files)
    size_bytes = sum(file.size_bytes for file in live)
    in_force = replace(
        policy, target_file_bytes=target_in_force(size_bytes, policy, WriteHistory())
    )
    changed = set(commit.removed_paths)
    return SimulatedStep(
        version=commit.version,
        committed_ms=commit.committed_ms,
        operation=commit.operation,
        file_count=len(live),
        small_file_count=sum(file.size_bytes < in_force.candidate_bytes for file in live),
        size_bytes=size_bytes,
        row_count=sum_known([live_rows(file) for file in live]),
        bytes_ingested=sum(file.size_bytes for file in commit.added if file.path not in changed)
        if commit.changed_data
        else 0,
        **more,
    )


def _enough_lost_ms(state: TableState, *, now_ms: int) -> int | None:
    balance = state.balance
    a_day = replace(
        state, lost_openings=(state.reads_per_day or 0) * (state.openings_saved or 0)
    ).balance
    if balance is None or a_day is None or balance.is_due or not a_day.lost_and_cost[0]:
        return None
    lost, cost = balance.lost_and_cost
    days = (cost - lost) / a_day.lost_and_cost[0]
    return now_ms + ceil(days * DAY_MS) + 1 if days < _DAYS_AHEAD else None
