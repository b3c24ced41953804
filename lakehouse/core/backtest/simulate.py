"""Simulates a table's log under another policy: which compactions would have run, and their cost.

1. The log is read without its real compactions, as grains. A grain is the set of rows that one
   commit of a writer wrote into one file (`row_lineage`).
2. Each commit of a writer is applied to the simulation's own files.
3. The policy decides whether to compact. If its strategy is the sensor, the sensor's rules decide;
   otherwise the plan decides.
4. A simulated compaction merges each bin of its plan. If a bin becomes one file, and a real
   compaction wrote a file with the same rows, the output gets the name and size of that file.
   Otherwise its size is estimated: the bin shrinks by the average ratio of the real compactions.

Thus, a simulation of the policy in force has the same files as the real table if each real
compaction wrote one file per bin, and ran when the simulated one runs. A writer may remove rows
that the simulation has in one file with rows that stay. As with copy-on-write, this file is
removed, and the rows that stay move to a file that the commit adds, or a new one (`Uncertainty`).
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from lakehouse.core.backtest.decisions import PolicyDecision, decide, evaluation_times
from lakehouse.core.backtest.result import Backtest, SimulatedCompaction, SimulatedStep, Uncertainty
from lakehouse.core.backtest.row_lineage import CommitEffect, Lineage, live_rows
from lakehouse.core.backtest.simulated_table import SimulatedTable, sum_known
from lakehouse.core.compaction.bins import Clustering, ZOrdering, files_added
from lakehouse.core.compaction.plan import CompactionPlan, plan_compaction
from lakehouse.core.compaction.target_size import WriteHistory, target_in_force
from lakehouse.core.costs.compaction_estimate import Estimate, estimate
from lakehouse.core.costs.compaction_speed import DEFAULT_RATES, MergeWork, Rates
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import BySensor, Scheduled
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.file_history import FileCommit, FileHistory
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.skip_reasons import closed_window, persons_hold, recommend_only
from lakehouse.core.scheduling.table_state import state_of
from lakehouse.core.units import MINUTE_MS

# A simulated plan uses this many of the newest commits, as many as `read_facts` reads.
_COMMITS_REMEMBERED = 500
# The most compactions between two commits, because a policy could compact without end.
_RUNS_PER_COMMIT = 100


def simulate_history(
    file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES
) -> Backtest:
    """The history that a table would have had under `policy`.

    Raises:
        Refused: `plan_compaction` refuses.
    """
    lineage = Lineage(file_history)
    table = SimulatedTable(lineage)
    simulation = _Simulation(table, policy, rates)
    steps = [
        simulation.advance(effect, following)
        for effect, following in pairwise([*lineage.effects, None])
        if effect
    ]
    return Backtest(history=file_history, steps=tuple(steps), uncertainty=table.uncertainty)


def real_result(
    file_history: FileHistory, policy: Compaction, *, rates: Rates = DEFAULT_RATES
) -> Backtest:
    """The table's real history, in the shape of a simulation's result.

    `policy` defines which files count as small, and whether compactions compared every row.
    """
    start_files = file_history.start.files if file_history.start else ()
    live = {file.path: file for file in start_files}
    steps: list[SimulatedStep] = []
    for commit in file_history.commits:
        removed = [live.pop(path) for path in commit.removed_paths if path in live]
        live |= {file.path: file for file in commit.added}
        if commit.is_compaction:
            run = _real_compaction(commit, removed, policy, rates)
            state = _simulated_step(commit, live.values(), policy)
            # A compaction belongs to the step before it. Without one, it is a step of its own.
            step = steps.pop() if steps else state
            steps.append(
                replace(
                    step,
                    runs=(*step.runs, run),
                    file_count=state.file_count,
                    small_file_count=state.small_file_count,
                    size_bytes=state.size_bytes,
                )
            )
        elif commit.changed_data:
            steps.append(_simulated_step(commit, live.values(), policy))
    return Backtest(history=file_history, steps=tuple(steps), uncertainty=Uncertainty())


def _real_compaction(
    commit: FileCommit, removed: Sequence[DataFile], policy: Compaction, rates: Rates
) -> SimulatedCompaction:
    work = MergeWork(
        files_removed=len(removed),
        bytes_removed=sum(file.size_bytes for file in removed),
        files_added=len(commit.added),
    )
    compared = policy.verify == "content"
    figures = estimate(rates, work, on_s3=commit.shape.on_s3, compared=compared)
    sentence = f"{commit.operation} of version {commit.version}"
    return _simulated_compaction(sentence, removed, commit.added, commit.committed_ms, figures)


class _Simulation:
    """Applies one policy to a simulated table."""

    def __init__(self, table: SimulatedTable, policy: Compaction, rates: Rates) -> None:
        self._table = table
        self._policy = policy
        self._rates = rates
        self._logged_commits: deque[Commit] = deque(maxlen=_COMMITS_REMEMBERED)
        self._version = 0
        self._last_run_ms: int | None = None
        self._cooldown_end_ms = 0

    def advance(self, effect: CommitEffect, following: CommitEffect | None) -> SimulatedStep:
        """Simulates a commit of a writer, and the time until the next one."""
        self._table.apply(effect)
        commit = effect.commit
        added = [file.path for file in commit.added]
        self._remember(commit.committed_ms, added=added)
        until_ms = following.commit.committed_ms if following else None
        # The explanation if a schedule does not evaluate the table before the next commit.
        cron = self._policy.strategy.cron if isinstance(self._policy.strategy, Scheduled) else ""
        explanation = Reason.OTHER_STRATEGY.explain(strategy=f"scheduled ({cron})")
        runs = list[SimulatedCompaction]()
        plan = None
        # The sensor and `after_write` evaluate the table at the commit's own time, even if the next
        # commit has the same or an earlier time, so `policy_times` are not filtered by `until_ms`.
        policy_times = evaluation_times(self._policy, commit.committed_ms, until_ms)
        cooldown_end = _times_between([self._cooldown_end_ms], commit.committed_ms, until_ms)
        times = sorted({*policy_times, *cooldown_end})
        while times and len(runs) < _RUNS_PER_COMMIT:
            now_ms = times.pop(0)
            decision, plan = self._decide(commit, plan, now_ms)
            if not runs:
                explanation = decision.explanation
            if plan is not None and decision.runs:
                run = self._run(plan, decision, now_ms)
                runs.append(run)
                times = _times_between((*times, self._cooldown_end_ms), run.ended_ms, until_ms)
                plan = None  # the files have changed
        step = _simulated_step(commit, self._table.files, self._policy)
        return replace(step, explanation=explanation, runs=tuple(runs))

    def _decide(
        self, commit: FileCommit, plan: CompactionPlan | None, now_ms: int
    ) -> tuple[PolicyDecision, CompactionPlan | None]:
        """The decision at `now_ms`, and the plan on which it is based.

        `plan`, the last one for the same files, is used again unless `cold_hours` may change it.
        """
        hold = (
            persons_hold(self._policy, None, now_ms)
            or recommend_only(commit.shape.table, self._policy)
            or closed_window(self._policy, now_ms)
        )
        if hold:
            return PolicyDecision(runs=False, explanation=hold), plan
        snapshot = replace(commit.shape, files=self._table.files)
        if plan is None or self._policy.cold_hours:
            history = Commits(table=snapshot.table, commits=tuple(self._logged_commits))
            plan = plan_compaction(
                snapshot, self._policy, rates=self._rates, now_ms=now_ms, history=history
            )
        state = replace(
            state_of(snapshot, plan),
            last_compaction_ms=self._last_run_ms,
            prices=self._rates.prices,
        )
        return decide(state, plan, now_ms=now_ms), plan

    def _remember(
        self, time_ms: int, *, added: Sequence[str], plan: CompactionPlan | None = None
    ) -> None:
        """Remembers a simulated commit for later plans."""
        self._version += 1
        columns: Sequence[str] = ()
        user_metadata = None
        if plan is not None:
            figures = plan.as_json()
            figures.pop("bins", None)
            user_metadata = json.dumps({"plan": figures})
            # Later plans read the columns from `zOrderBy` or `clusterBy` alike (`target_size`).
            if isinstance(plan.statement, ZOrdering | Clustering):
                columns = plan.statement.columns
        logged_commit = Commit(
            version=self._version,
            committed_ms=time_ms,
            operation="OPTIMIZE" if plan else "WRITE",
            changed_data=plan is None,
            added_paths=tuple(added),
            user_metadata=user_metadata,
            parameters={"zOrderBy": json.dumps(columns)},
        )
        self._logged_commits.append(logged_commit)

    def _run(
        self, plan: CompactionPlan, decision: PolicyDecision, now_ms: int
    ) -> SimulatedCompaction:
        removed = list[DataFile]()
        added = list[DataFile]()
        for bin_ in plan.bins:
            removed += bin_.files
            output_count = files_added(plan.statement, [bin_])
            added += self._table.merge(bin_, into=output_count, now_ms=now_ms)
        sentence = decision.sentence
        if sentence != plan.sentence:
            sentence = f"{sentence}: {plan.sentence}"
        run = _simulated_compaction(sentence, removed, added, now_ms, plan.estimate)
        self._last_run_ms = run.ended_ms
        if isinstance(self._policy.strategy, BySensor):
            cooldown_ms = round(self._policy.cooldown_minutes * MINUTE_MS)
            self._cooldown_end_ms = run.ended_ms + cooldown_ms
        self._remember(run.ended_ms, added=run.added_paths, plan=plan)
        return run


def _times_between(times: Iterable[int], since_ms: int, until_ms: int | None) -> list[int]:
    """The times from `since_ms` (inclusive) to `until_ms` (exclusive), sorted, each once."""
    later_times = {time for time in times if time >= since_ms}
    if until_ms is None:
        return sorted(later_times)
    return sorted(time for time in later_times if time < until_ms)


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
    commit: FileCommit, files: Iterable[DataFile], policy: Compaction
) -> SimulatedStep:
    live = list(files)
    size_bytes = sum(file.size_bytes for file in live)
    target = target_in_force(size_bytes, policy, WriteHistory())
    in_force = replace(policy, target_file_bytes=target)
    # A file that the commit both removes and adds has no new rows, but a new deletion vector.
    replaced = set(commit.removed_paths)
    ingested = [file.size_bytes for file in commit.added if file.path not in replaced]
    return SimulatedStep(
        version=commit.version,
        committed_ms=commit.committed_ms,
        operation=commit.operation,
        file_count=len(live),
        small_file_count=sum(file.size_bytes < in_force.candidate_bytes for file in live),
        size_bytes=size_bytes,
        row_count=sum_known([live_rows(file) for file in live]),
        bytes_ingested=sum(ingested) if commit.changed_data else 0,
    )
