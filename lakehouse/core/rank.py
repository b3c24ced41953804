"""Which tables get a compaction in this tick, and for every other table why not.

The sensor hands over what it has read from Dagster's events and runs; nothing here looks anywhere else. One state of a
table (its version) is compacted once: a try that succeeded or is under way is never repeated, one that failed
is repeated a limited number of times. Dagster remembers run keys for ever, those of failed runs included, so
the key holds the number of the try.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lakehouse.core.policy import CompactionPolicy
from lakehouse.core.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What the newest event of one table says of it; `None` is unknown, and unknown never leads to a run."""

    table: str
    version: int | None = None
    mergeable_file_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInFlight:
    """A queued or running run that touches `table`, under the name that a person finds it by."""

    table: str
    name: str
    is_compaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A compaction that was asked for at `version` of `table`; a cancelled one counts as failed."""

    table: str
    version: int
    result: Literal["succeeded", "failed", "in flight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The runs that matter to a choice: those under way, and all earlier tries of the versions in question."""

    in_flight: tuple[RunInFlight, ...] = ()
    tries: tuple[Try, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done about one table in this tick, and why; `run_key` is set where a run is requested."""

    table: str
    reason: Reason
    sentence: str
    run_key: str | None = None

    @property
    def request(self) -> bool:
        """Whether a run is requested."""
        return self.reason is Reason.DUE


def choose_compactions(
    states: Iterable[TableState], policies: Mapping[str, CompactionPolicy], runs: RunState, *, slots: int, tries_allowed: int = 3
) -> tuple[Decision, ...]:
    """One decision per table, most mergeable files first, tables without facts last; at most `slots` compactions at once.

    `policies` holds one policy for each table of `states`. Compactions under way take a slot each, whatever their table.
    """
    ranked = sorted(states, key=lambda state: (-_mergeable(state), state.table))
    free = slots - len({run.table for run in runs.in_flight if run.is_compaction})
    decisions: list[Decision] = []
    for state in ranked:
        decision = _decide(state, policies[state.table], runs, free=free, slots=slots, tries_allowed=tries_allowed)
        free -= decision.request
        decisions.append(decision)
    return tuple(decisions)


def describe(decisions: Sequence[Decision]) -> str:
    """The decisions for a person, one line per table; the semicolons hold them apart on a page that folds lines."""
    return ";\n".join(f"{decision.table}: {decision.sentence}" for decision in decisions)


def _decide(state: TableState, policy: CompactionPolicy, runs: RunState, *, free: int, slots: int, tries_allowed: int) -> Decision:
    threshold = policy.min_small_files
    names = [run.name for run in runs.in_flight if run.table == state.table]
    if names:
        return _wait(state, Reason.RUN_IN_FLIGHT, runs=", ".join(names))
    if state.version is None or state.mergeable_file_count is None:
        return _wait(state, Reason.NO_FACTS, threshold=threshold)
    mergeable = state.mergeable_file_count
    if mergeable < threshold:
        return _wait(state, Reason.BELOW_THRESHOLD, mergeable=mergeable, threshold=threshold)
    tries = [past for past in runs.tries if past.table == state.table and past.version == state.version]
    if any(past.result != "failed" for past in tries):
        return _wait(state, Reason.ASKED_BEFORE, version=state.version, mergeable=mergeable)
    if len(tries) >= tries_allowed:
        return _wait(state, Reason.TRIES_USED_UP, version=state.version, tries=len(tries), tries_allowed=tries_allowed, mergeable=mergeable)
    if free < 1:
        return _wait(state, Reason.NO_SLOT, mergeable=mergeable, threshold=threshold, slots=slots)
    run_key = f"compaction/{state.table}/version={state.version}/try={len(tries) + 1}"
    return Decision(
        table=state.table, reason=Reason.DUE, sentence=Reason.DUE.say(mergeable=mergeable, threshold=threshold), run_key=run_key
    )


def _mergeable(state: TableState) -> int:
    return -1 if state.mergeable_file_count is None else state.mergeable_file_count


def _wait(state: TableState, reason: Reason, **numbers: object) -> Decision:
    return Decision(table=state.table, reason=reason, sentence=reason.say(**numbers))
