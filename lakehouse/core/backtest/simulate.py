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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, assert_never

from lakehouse.core.backtest.result import Backtest, SimulatedCompaction, SimulatedStep, Uncertainty
from lakehouse.core.backtest.row_lineage import CommitEffect, live_rows, trace
from lakehouse.core.backtest.schedule import Look, look, look_times, next_look_ms
from lakehouse.core.backtest.simulated_table import SimulatedTable, sum_known
from lakehouse.core.compaction.bins import Clustering, Packing, Purge, ZOrdering, files_added, type_of_statement
from lakehouse.core.compaction.comparison import choose_comparison
from lakehouse.core.compaction.plan import CompactionPlan, plan_compaction
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.estimate import DEFAULT_RATES, Estimate, Rates, estimate
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import Scheduled
from lakehouse.core.delta.commit_files import FileCommit, FileHistory
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.circuit_breaker import hold_back
from lakehouse.core.scheduling.read_losses import is_made_anew, type_of_steps

# As many as a real plan is given (`read_facts`).
_COMMITS_REMEMBERED = 500
# A plan whose outcome is planned anew ends by itself; a policy that never comes to rest shall not keep a terminal busy for ever.
_RUNS_PER_COMMIT = 100


def simulate_history(file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES) -> Backtest:
    """The past of a table as it would have been under `policy`.

    Raises:
        Refused: a strategy that no log can tell about; a table feature that is not planned.
    """
    lineage = trace(file_history)
    table = SimulatedTable(lineage)
    simulation = _Simulation(table, policy, rates)
    steps = [simulation.live(deed, following) for deed, following in pairwise([*lineage.deeds, None]) if deed]
    return _backtest(file_history, steps, table.uncertainty)


def real_result(file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES) -> Backtest:
    """The real past of the table in the same shape; `policy` says which files are small, and how compactions were compared."""
    live = {file.path: file for file in (file_history.start.files if file_history.start else ())}
    steps: list[SimulatedStep] = []
    for commit in file_history.commits:
        removed = [live.pop(path) for path in commit.removed_paths if path in live]
        live |= {file.path: file for file in commit.added}
        runs: tuple[SimulatedCompaction, ...] = ()
        if commit.is_compaction:
            removed_bytes = sum(file.size_bytes for file in removed)
            figures = estimate(
                rates,
                files_removed=len(removed),
                bytes_removed=removed_bytes,
                files_added=len(commit.added),
                on_s3=commit.shape.on_s3,
                compared=choose_comparison(policy, removed_bytes) == "content",
            )
            runs = (
                _simulated_compaction(
                    f"{commit.operation} of version {commit.version}", removed, commit.added, commit.committed_ms, figures
                ),
            )
        if commit.changed_data or (runs and not steps):
            steps.append(_simulated_step(commit, live.values(), policy, runs=runs))
        elif runs:
            last = steps[-1]
            now = _simulated_step(commit, live.values(), policy)
            counts = {name: getattr(now, name) for name in ("file_count", "small_file_count", "size_bytes")}
            steps[-1] = replace(last, runs=(*last.runs, *runs), **counts)
    return _backtest(file_history, steps, Uncertainty())


class _Simulation:
    """One policy at work on the table of a simulation."""

    def __init__(self, table: SimulatedTable, policy: Compaction, rates: Rates) -> None:
        self._table, self._policy, self._rates = table, policy, rates
        self._logged_compactions: deque[Commit] = deque(maxlen=_COMMITS_REMEMBERED)
        self._version = 0
        self._last_run_ms: int | None = None
        self._openings: list[tuple[int, int]] | None = None if policy.reads_per_day is None else []

    def live(self, deed: CommitEffect, following: CommitEffect | None) -> SimulatedStep:
        """The time from one commit of a writer to the next: every look at the table, and each compaction that followed."""
        self._table.apply(deed)
        commit = deed.commit
        added = [file.path for file in commit.added]
        self._remember(commit.committed_ms, added=added)
        if self._openings and is_made_anew(commit.operation, added, commit.removed_paths, len(self._table.files)):
            self._openings = []
        until_ms = following.commit.committed_ms if following else None
        cron = self._policy.strategy.cron if isinstance(self._policy.strategy, Scheduled) else ""
        seen, runs, plan = Look(runs=False, explanation=Reason.SCHEDULE_NOT_YET.explain(cron=cron)), list[SimulatedCompaction](), None
        times = self._times(commit.committed_ms, until_ms)
        while times and len(runs) < _RUNS_PER_COMMIT:
            now_ms = times.pop(0)
            held = hold_back(commit.shape.table, self._policy, None, None, now_ms)
            found = Look(runs=False, explanation=held) if held else None
            if found is None or self._openings is not None:
                snapshot = self._table.snapshot(commit.shape)
                plan = self._plan(snapshot, now_ms) if plan is None or self._policy.cold_hours else plan
                openings = self._openings_with(plan, now_ms)
                prices, last_run_ms = self._rates.prices, self._last_run_ms
                found = found or look(snapshot, plan, now_ms=now_ms, last_run_ms=last_run_ms, prices=prices, openings=openings)
                if found.again_ms and until_ms and found.again_ms < until_ms:
                    times = sorted({*times, found.again_ms})
            seen = seen if runs else found
            if plan is not None and found.runs:
                runs.append(self._run(plan, found, now_ms))
                again_ms = next_look_ms(self._policy, runs[-1].ended_ms)
                later = {time for time in (*times, again_ms) if time is not None and time >= runs[-1].ended_ms}
                times, plan = sorted(time for time in later if until_ms is None or time < until_ms), None
        return _simulated_step(commit, self._table.files, self._policy, explanation=seen.explanation, runs=tuple(runs))

    def _openings_with(self, plan: CompactionPlan, now_ms: int) -> type_of_steps | None:
        """The openings that another compaction would have saved each full read; `None` where nobody tells how often the table is read."""
        if self._openings is None:
            return None
        saved = max(0, plan.files_removed - plan.files_added)
        if not self._openings or self._openings[-1][1] != saved:
            self._openings.append((now_ms, saved))
        return tuple(self._openings)

    def _times(self, committed_ms: int, until_ms: int | None) -> list[int]:
        """When the table is looked at before the next commit; also when the last run's cooldown is over."""
        times = set(look_times(self._policy, committed_ms, until_ms))
        cooled_ms = None if self._last_run_ms is None else next_look_ms(self._policy, self._last_run_ms)
        if cooled_ms is not None and committed_ms < cooled_ms and (until_ms is None or cooled_ms < until_ms):
            times.add(cooled_ms)
        return sorted(times)

    def _plan(self, snapshot: Snapshot, now_ms: int) -> CompactionPlan:
        history = Commits(table=snapshot.table, commits=tuple(self._logged_compactions))
        return plan_compaction(snapshot, self._policy, rates=self._rates, now_ms=now_ms, history=history)

    def _remember(self, time_ms: int, *, added: Sequence[str], plan: CompactionPlan | None = None) -> None:
        """A commit of the simulation is remembered, for the plans that go by earlier writes and compactions."""
        self._version += 1
        figures = plan.as_json() if plan else {}
        logged_commit = Commit(
            version=self._version,
            committed_ms=time_ms,
            operation="OPTIMIZE" if plan else "WRITE",
            changed_data=plan is None,
            added_paths=tuple(added),
            user_metadata=json.dumps({"plan": {name: value for name, value in figures.items() if name != "bins"}}) if plan else None,
            parameters=_parameters(plan.statement) if plan else {},
        )
        self._logged_compactions.append(logged_commit)

    def _run(self, plan: CompactionPlan, found: Look, now_ms: int) -> SimulatedCompaction:
        removed = [file for bin_ in plan.bins for file in bin_.files]
        added = [file for bin_ in plan.bins for file in self._table.merge(bin_, into=files_added(plan.statement, [bin_]), now_ms=now_ms)]
        sentence = found.sentence if found.sentence == plan.sentence else f"{found.sentence}: {plan.sentence}"
        run = _simulated_compaction(sentence, removed, added, now_ms, plan.estimate)
        self._last_run_ms, self._openings = run.ended_ms, None if self._openings is None else []
        self._remember(run.ended_ms, added=run.added_paths, plan=plan)
        return run


def _parameters(statement: type_of_statement) -> dict[str, str]:
    """The parameters that Delta writes into the commit of a statement, as far as a later plan reads them."""
    match statement:
        case ZOrdering(columns=columns):
            return {"zOrderBy": json.dumps(columns)}
        case Clustering(columns=columns):
            return {"clusterBy": json.dumps(columns)}
        case Packing() | Purge():
            return {}
        case _:
            assert_never(statement)


def _simulated_compaction(
    sentence: str, removed: Sequence[DataFile], added: Sequence[DataFile], at_ms: int, figures: Estimate
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


def _simulated_step(commit: FileCommit, files: Iterable[DataFile], policy: Compaction, **more: Any) -> SimulatedStep:
    live = list(files)
    size_bytes = sum(file.size_bytes for file in live)
    in_force = replace(policy, target_file_bytes=target_in_force(size_bytes, policy, WriteHistory()))
    changed = set(commit.removed_paths)
    return SimulatedStep(
        version=commit.version,
        committed_ms=commit.committed_ms,
        operation=commit.operation,
        file_count=len(live),
        small_file_count=sum(file.size_bytes < in_force.candidate_bytes for file in live),
        size_bytes=size_bytes,
        row_count=sum_known([live_rows(file) for file in live]),
        bytes_ingested=sum(file.size_bytes for file in commit.added if file.path not in changed) if commit.changed_data else 0,
        **more,
    )


def _backtest(file_history: FileHistory, steps: Iterable[SimulatedStep], uncertainty: Uncertainty) -> Backtest:
    return Backtest(
        table=file_history.table,
        first_version=file_history.first_version,
        from_the_beginning=file_history.start is None,
        steps=tuple(steps),
        uncertainty=uncertainty,
    )
