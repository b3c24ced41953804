"""Decides which tables are compacted in this tick, ranks them, and says why.

A table is first considered by itself. A trigger must be reached (`find_trigger`), nothing may hold
the table back, and its present state must need another attempt: no run in flight, no cooldown, not
too many failed tries. A compaction is due at a number of mergeable files, at an age of the oldest
of them, when the table's readers got slower since its last compaction, or at a share of deleted
rows.

Each state of a table (its version and commit time) is compacted once. An attempt that succeeded or
is under way is never repeated. A failed attempt is repeated; after `TRIES_ALLOWED` failures, only
once after each pause (`pause_hours`). A canceled or refused attempt has failed. Dagster never runs
a run key twice, even if the run failed, so the key has the attempt's number.

Then the tables get slots and budget. The due table with the most benefit for its cost goes first
(`NetBenefit`). Among equal tables, the worst health score goes first. A table that has been due for
at least an hour (the patience) comes before all tables that have waited less. So, in cycles of an
hour:

- With n tables due and s slots, a table that stays due is served within patience + ceil(n / s)
  cycles.
- With a budget, a table that stays due is served within patience + n cycles, even if the budget is
  below the cost of one table. A table over its patience may overdraw the budget. So each cycle
  serves at least the table that has waited longest, and exceeds the budget by at most its cost.

A run that writes a table reads the table's inputs, so lineage and runs show the reads of a table
without a query log. Callers count the reads of about the last 24 hours. A run that reads only the
changes of an input is not a full read.

The sensor reads the facts from Dagster's events, the terminal from the Delta logs. Both call
`decide_fleet`, so the same facts give the same decisions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from lakehouse.base.frozen import frozen
from lakehouse.base.operation import NetBenefit, Pause, UpkeepOperation
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.text import DAY_MS, HOUR_MS, MINUTE_MS, first_names, usd_text, utc_text
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.history import (
    NO_REWRITES,
    TRIES_ALLOWED,
    Rewrites,
    assess_breaker,
    pause_hours,
)
from lakehouse.declare.policies import BySensor, Compaction
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import Snapshot, files_with_vectors, row_total

# The slowdown compares the medians of this many runs, so that one slow run does not decide.
_ROLLING_RUNS = 5


@frozen
class ReaderRun:
    """A successful run: the tables it wrote, when it ended, and its duration (`None`: unknown)."""

    tables: frozenset[str]
    ended_ms: int
    seconds: float | None = None


@frozen
class Readers:
    """The readers of one table.

    `slowdown` is the share by which the newest runs that read the table took longer than the first
    runs after its last compaction (`None`: unknown).
    """

    reads_per_day: float
    slowdown: float | None = None


def count_reads(
    tables: Sequence[Table],
    runs: Iterable[ReaderRun],
    *,
    since_ms: int,
    now_ms: int,
    compacted_ms: Mapping[str, int] | None = None,
) -> Mapping[str, Readers]:
    """The readers of each table, by the table's key, from the runs that ended since `since_ms`.

    `compacted_ms` has the time of each table's last compaction, as far as it is known. Durations
    are compared between runs that wrote the same tables (one kind of run), since a run of the whole
    lake takes longer than a run of one table. If several kinds of runs read a table, it gets their
    mean slowdown.
    """
    write_counts = Counter[str]()
    by_kind = defaultdict[frozenset[str], list[ReaderRun]](list)
    for run in sorted(runs, key=lambda each: each.ended_ms):
        if run.ended_ms >= since_ms:
            write_counts.update(run.tables)
            by_kind[run.tables].append(run)
    days = max(now_ms - since_ms, MINUTE_MS) / DAY_MS
    readers_of = _readers_of({table.key: table.inputs for table in tables})
    full_readers_of = _readers_of({table.key: table.read_whole for table in tables})
    readers: dict[str, Readers] = {}
    for key in readers_of:
        after_ms = (compacted_ms or {}).get(key, 0)
        slowdowns = list[float]()
        for kind, kind_runs in by_kind.items():
            if kind & readers_of[key]:
                later = [run.seconds for run in kind_runs if run.ended_ms > after_ms]
                slowdown = slowdown_of([each for each in later if each is not None])
                if slowdown is not None:
                    slowdowns.append(slowdown)
        read_count = sum(write_counts[reader] for reader in full_readers_of[key])
        readers[key] = Readers(
            reads_per_day=read_count / days, slowdown=fmean(slowdowns) if slowdowns else None
        )
    return readers


def _readers_of(inputs_of: Mapping[str, Iterable[Table]]) -> Mapping[str, frozenset[str]]:
    """The keys of the tables that read each table. `inputs_of`: what each table reads."""
    readers = defaultdict[str, set[str]](set)
    for key, inputs in inputs_of.items():
        for source in inputs:
            readers[source.key].add(key)
    return {key: frozenset(readers[key]) for key in inputs_of}


def slowdown_of(seconds: Sequence[float]) -> float | None:
    """The share by which the newest five runs took longer than the first five (negative: faster).

    `seconds` are durations of runs of one kind since a compaction, oldest first. Medians are
    compared, so that a single run that had to wait decides nothing. `None` if there are fewer than
    ten runs, or if the first ones took no time.
    """
    first = seconds[:_ROLLING_RUNS]
    newest = seconds[_ROLLING_RUNS:][-_ROLLING_RUNS:]
    if len(newest) < _ROLLING_RUNS or not median(first) > 0:
        return None
    return median(newest) / median(first) - 1


def persons_hold(policy: Compaction, pause: Pause | None, now_ms: int) -> Explanation | None:
    """The hold that also refuses a compaction by a person without `--anyway`, or `None`.

    All other holds only stop the sensor.
    """
    if policy.mode == "off":
        return Reason.OPTED_OUT.explain(said="mode off")
    return pause.explanation if pause is not None and pause.holds(now_ms) else None


@frozen
class TableState:
    """The known facts of one table. `None` means unknown, and never makes a compaction due.

    - `committed_ms`: the commit time of `version`. It differs if the table was created again, or
      restored from a backup, and has the same version number.
    - `mergeable_file_count`: files that compactions would merge, in as many runs as they need.
    - `files_after`: the live files after one run.
    - `oldest_small_ms`: the write time of the oldest file that a compaction would merge and that no
      compaction wrote.
    - `deleted_rows_share`: the share of stored rows that deletion vectors hide.
    - `purged_row_count`: deleted rows that a compaction would remove from storage.
    - `slowdown`: the share by which the readers' newest runs took longer than the runs after the
      last compaction.
    - `due_since_ms`: the time since which the table has been due and waiting.
    - `cold_from_ms`: the figures of the plan apply from this time on, when all partitions are cold,
      if no writer commits before. Until then, nothing can be merged. `None`: they apply now.
    - `rewrites`: the pointless rewrites of the table, for the circuit breaker.
    - `engine`: what would compact the table now, `spark` or `deltalake`.
    - `usd_per_opening`: the price of opening one file for a read, at the table's prices.
    """

    table: str
    version: int | None = None
    committed_ms: int | None = None
    mergeable_file_count: int | None = None
    file_count: int | None = None
    files_after: int | None = None
    oldest_small_ms: int | None = None
    deleted_rows_share: float | None = None
    purged_row_count: int | None = None
    estimate_usd: float | None = None
    health_score: float | None = None
    reads_per_day: float | None = None
    slowdown: float | None = None
    last_compaction_ms: int | None = None
    due_since_ms: int | None = None
    cold_from_ms: int | None = None
    rewrites: Rewrites = NO_REWRITES
    engine: str | None = None
    usd_per_opening: float | None = None

    def read_by(self, readers: Readers) -> "TableState":
        """The state with the figures of the table's readers."""
        return replace(self, reads_per_day=readers.reads_per_day, slowdown=readers.slowdown)

    @property
    def net_benefit(self) -> NetBenefit | None:
        """Benefit and cost of a compaction at the table's prices; `None` if unknown."""
        if self.file_count is None or self.files_after is None:
            return None
        if self.reads_per_day is None or self.estimate_usd is None or self.usd_per_opening is None:
            return None
        openings_saved = max(0, self.file_count - self.files_after)
        usd_per_day = self.reads_per_day * openings_saved * self.usd_per_opening
        return NetBenefit(benefit_usd_per_day=usd_per_day, cost_usd=self.estimate_usd)


def state_of(
    snapshot: Snapshot, plan: CompactionPlan, cold_from_ms: int | None = None
) -> TableState:
    """The state of a table from its log alone: without health, readers, runs and waiting time.

    `plan` is for the time `cold_from_ms`, or for now.
    """
    with_vectors = files_with_vectors(snapshot.files)
    deleted_row_count = sum(file.deleted_row_count for file in with_vectors)
    row_count = row_total(snapshot.files) if with_vectors else 0
    files = [file for bin_ in plan.bins for file in bin_.files]
    return TableState(
        table=snapshot.table,
        version=snapshot.version,
        committed_ms=snapshot.committed_ms,
        mergeable_file_count=plan.mergeable_file_count,
        file_count=snapshot.file_count,
        files_after=snapshot.file_count - plan.files_removed + plan.files_added,
        oldest_small_ms=min(
            (file.modified_ms for file in files if not file.compacted), default=None
        ),
        deleted_rows_share=None if row_count is None else deleted_row_count / max(1, row_count),
        purged_row_count=sum(file.deleted_row_count for file in files),
        estimate_usd=plan.estimate.usd,
        cold_from_ms=cold_from_ms,
        engine=plan.engine,
    )


@frozen
class RunInFlight:
    """A queued or running run that works on `table`, with its name in Dagster's UI."""

    table: str
    name: str
    is_compaction: bool


@frozen
class Try:
    """A run that was requested for a table's present version, and has ended."""

    succeeded: bool
    ended_ms: int


@frozen
class CompactionCandidate:
    """A table that may be compacted, and the facts about it.

    - `in_flight`: the runs that write or compact the table now.
    - `compactions`: earlier attempts to compact the table, in the order of their end.
    - `hold`: a reason to skip the table that the other facts do not show.
    """

    state: TableState
    policy: Compaction
    in_flight: Sequence[RunInFlight] = ()
    tries: Sequence[Try] = ()
    compactions: Sequence[UpkeepOperation] = ()
    pause: Pause | None = None
    hold: Explanation | None = None


def find_hold(candidate: CompactionCandidate, now_ms: int) -> Explanation | None:
    """Why the sensor skips the table at `now_ms`, or `None`.

    A half-open breaker is no reason to skip.
    """
    policy = candidate.policy
    hold = candidate.hold or persons_hold(policy, candidate.pause, now_ms)
    if hold is not None:
        return hold
    state = candidate.state
    if policy.mode == "recommend":
        why = "its declaration says mode recommend"
        return Reason.RECOMMEND_ONLY.explain(why=why, table=state.table)
    breaker = assess_breaker(candidate.compactions, state.rewrites, now_ms)
    return breaker.explanation if breaker is not None and breaker.position == "open" else None


@frozen
class Decision(Explained):
    """The decision about one table, and why. `run_key` is set if a run is requested.

    - `finding`: the trigger, or the reason why no trigger is reached.
    - `due_since_ms`: set if a trigger is reached, the version may be tried, and no compaction is
      under way. A hold does not matter.
    - `is_overdue`: the table may be compacted, and has been due for at least the patience.
    """

    state: TableState
    finding: Explanation
    run_key: str | None
    due_since_ms: int | None
    is_overdue: bool

    @property
    def table(self) -> str:
        """The table's key."""
        return self.state.table

    @property
    def request(self) -> bool:
        """Whether a run is requested."""
        return self.run_key is not None


def _decide_table(candidate: CompactionCandidate, *, now_ms: int) -> Decision:
    """The decision about one table before slots and budget."""
    state = candidate.state
    policy = candidate.policy
    finding = find_trigger(state, policy, now_ms=now_ms)
    nothing_to_do = _nothing_to_do(state, finding, candidate.tries, now_ms)
    busy = None
    if candidate.in_flight:
        names = "; ".join(run.name for run in candidate.in_flight)
        busy = Reason.RUN_IN_FLIGHT.explain(runs=names)
    other_strategy = None
    if not isinstance(policy.strategy, BySensor):
        other_strategy = Reason.OTHER_STRATEGY.explain(strategy=type(policy.strategy).__name__)
    waits = find_hold(candidate, now_ms) or other_strategy or busy or nothing_to_do
    due_since_ms = None
    if nothing_to_do is None and not any(run.is_compaction for run in candidate.in_flight):
        due_since_ms = now_ms if state.due_since_ms is None else state.due_since_ms
    waits = waits or _cooling_down(state, policy, finding, now_ms)
    return Decision(
        state=state,
        explanation=waits or finding,
        finding=finding,
        run_key=None if waits else f"{state_key(state)}/attempt={len(candidate.tries) + 1}",
        due_since_ms=due_since_ms,
        is_overdue=(
            not waits and due_since_ms is not None and now_ms - due_since_ms >= _PATIENCE_MS
        ),
    )


def state_key(state: TableState) -> str:
    """Identifies a table at its present version, also after the table was created again."""
    committed = "" if state.committed_ms is None else f"/committed_ms={state.committed_ms}"
    return f"compaction/{state.table}/version={state.version}{committed}"


def _nothing_to_do(
    state: TableState, finding: Explanation, tries: Sequence[Try], now_ms: int
) -> Explanation | None:
    """Why a free slot would not help: nothing is due, or this version needs no further try."""
    if not is_due(finding):
        return finding
    numbers = {"version": state.version, "mergeable": state.mergeable_file_count}
    if any(attempt.succeeded for attempt in tries):
        return Reason.ASKED_BEFORE.explain(**numbers)
    if len(tries) < TRIES_ALLOWED:
        return None
    until_ms = max(attempt.ended_ms for attempt in tries) + pause_hours(len(tries)) * HOUR_MS
    if now_ms >= until_ms:
        return None
    return Reason.TRIES_USED_UP.explain(tries=len(tries), until=until_ms, **numbers)


def _cooling_down(
    state: TableState, policy: Compaction, finding: Explanation, now_ms: int
) -> Explanation | None:
    if not policy.cooldown_minutes or state.last_compaction_ms is None:
        return None
    minutes = (now_ms - state.last_compaction_ms) / MINUTE_MS
    if minutes >= policy.cooldown_minutes:
        return None
    numbers = {"minutes": f"{minutes:.1f}", "cooldown": f"{policy.cooldown_minutes:g}"}
    return Reason.COOLING_DOWN.explain(why=finding.sentence, **numbers)


# A compaction is due when the readers take this share longer than after the last one. On a shared
# machine, durations of similar runs differ by less.
_SLOWDOWN_SHARE = 0.25
# Fewer files are never merged, so slower readers cannot make a compaction due.
_FEWEST_FILES = 2
_DUE = (Reason.DUE, Reason.DUE_AGE, Reason.READS_SLOWER, Reason.DUE_DELETED_ROWS)


def find_trigger(state: TableState, policy: Compaction, *, now_ms: int) -> Explanation:
    """The first trigger that is reached, or the reason why no trigger is reached."""
    threshold = policy.min_small_files
    mergeable = state.mergeable_file_count
    if state.version is None or mergeable is None:
        return Reason.NO_FACTS.explain(threshold=threshold)
    note = ""
    if state.cold_from_ms is not None and now_ms < state.cold_from_ms:
        note = f"; {mergeable} once all of it is cold, from {utc_text(state.cold_from_ms)} on"
        mergeable = 0
    counts = {"mergeable": mergeable, "threshold": threshold}
    if mergeable > 0 and mergeable >= threshold:
        return Reason.DUE.explain(**counts)
    age_limit = policy.max_small_file_age_hours
    if mergeable and age_limit and state.oldest_small_ms is not None:
        hours = (now_ms - state.oldest_small_ms) / HOUR_MS
        if hours >= age_limit:
            age = {"hours": f"{hours:.1f}", "limit": f"{age_limit:g}"}
            return Reason.DUE_AGE.explain(mergeable=mergeable, **age)
    slowdown = state.slowdown or 0.0
    if slowdown >= _SLOWDOWN_SHARE and mergeable >= _FEWEST_FILES:
        return Reason.READS_SLOWER.explain(slowdown=f"{slowdown:.0%}", mergeable=mergeable)
    share = state.deleted_rows_share or 0.0
    share_limit = policy.purge_deleted_rows_share
    # Deleted rows count only if the plan removes some of them from storage.
    if share_limit and share >= share_limit and mergeable and state.purged_row_count:
        return Reason.DUE_DELETED_ROWS.explain(share=f"{share:.0%}", limit=f"{share_limit:.0%}")
    return Explanation(Reason.BELOW_THRESHOLD, counts, note)


def is_due(finding: Explanation) -> bool:
    """Whether a trigger is reached."""
    return finding.reason in _DUE


CYCLE_MS = HOUR_MS
_PATIENCE_MS = CYCLE_MS


@frozen
class Bounds:
    """The bounds of one cycle.

    At most `slots` runs compact at once. The predicted cost per hour is at most `budget_usd` (0: no
    limit); the last hour has spent `spent_usd`.
    """

    slots: int = 1
    budget_usd: float = 0.0
    spent_usd: float = 0.0


def decide_fleet(
    candidates: Sequence[CompactionCandidate], *, bounds: Bounds, now_ms: int
) -> Sequence[Decision]:
    """One decision per table, in the order of service. Tables without facts come last.

    Each run that compacts takes one of `bounds.slots`, unless the run waits for its table's pool.
    """
    undecided = [_decide_table(each, now_ms=now_ms) for each in candidates]
    running = [run for each in candidates for run in each.in_flight if run.is_compaction]
    free_slots = bounds.slots - len({run.name for run in running})
    spent_usd = bounds.spent_usd
    decisions: list[Decision] = []
    for each in sorted(undecided, key=_order):
        left_usd = max(0.0, bounds.budget_usd - spent_usd)
        decision = _served(each, bounds, running, has_slot=free_slots >= 1, left_usd=left_usd)
        if decision.request:
            free_slots -= 1
            spent_usd += each.state.estimate_usd or 0.0
        decisions.append(decision)
    return decisions


def _order(decision: Decision) -> tuple[object, ...]:
    """Sorts overdue tables by waiting time, then due tables by benefit, then tables not due."""
    state = decision.state
    benefit = state.net_benefit
    ratio = benefit.ratio if benefit else 0.0
    health = 100.0 if state.health_score is None else state.health_score
    waited = (0, decision.due_since_ms or 0) if decision.is_overdue else (1, 0)
    is_unknown = decision.finding.reason is Reason.NO_FACTS
    mergeable = state.mergeable_file_count or 0
    due = is_due(decision.finding)
    return (*waited, not due, is_unknown, -ratio, health, -mergeable, state.table)


def _served(
    decision: Decision,
    bounds: Bounds,
    running: Sequence[RunInFlight],
    *,
    has_slot: bool,
    left_usd: float,
) -> Decision:
    """The decision about a table once slots and budget are assigned.

    Each table needs a slot. An overdue table is served while any budget is left. Any other table
    must fit into the rest of the budget. If its cost is unknown, it does not fit.
    """
    usd = decision.state.estimate_usd
    fits_budget = usd is not None and usd <= left_usd
    if decision.is_overdue:
        fits_budget = left_usd > 0
    if not decision.request:
        return decision
    if not has_slot:
        names = first_names([f"{run.name} of {run.table}" for run in running])
        waits = Reason.NO_SLOT.explain(
            why=decision.sentence, slots=bounds.slots, runs=f" (now {names})" if names else ""
        )
    elif bounds.budget_usd and not fits_budget:
        waits = Reason.OVER_BUDGET.explain(
            why=decision.sentence,
            cost="unknown" if usd is None else usd_text(usd),
            left=usd_text(left_usd),
            limit=f"{bounds.budget_usd:g}",
        )
    else:
        return decision
    return replace(decision, explanation=waits, run_key=None)


# After this many lines, the remaining tables are only counted.
_MOST_LINES = 20


def describe(decisions: Sequence[Decision]) -> str:
    """The decisions in their order, one per line. A last line counts those that are left out."""
    texts = list[str]()
    for each in decisions[:_MOST_LINES]:
        benefit = each.state.net_benefit
        gain = f" ({benefit.sentence})" if benefit and benefit.cost_usd else ""
        texts.append(f"{each.table}: {each.sentence}{gain}")
    rest = Counter(each.reason.name for each in decisions[_MOST_LINES:])
    if rest:
        counts = ", ".join(f"{count} {name}" for name, count in rest.most_common())
        texts.append(f"and {rest.total()} more: {counts}")
    # If a page joins the lines, the semicolons separate them.
    return ";\n".join(texts)
