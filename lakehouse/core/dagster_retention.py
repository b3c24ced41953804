"""Selects Dagster's own records to delete: the events of a run first, the run itself much later.

The events and the output of a run take 300 KiB; the record of the run itself takes only 8 KiB. Some
records must be kept, because the compaction sensor reads the newest events of each asset and the
runs of the last day (`defs/dagster_records.py`, `recent_runs`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.text import count_of
from lakehouse.core.units import DAY_MS, MINUTE_MS

# The events of a run may be deleted when this many runs have ended after it. The events of so many
# runs take about 75 MiB. At 100 runs a day, these are the runs of two and a half days.
EVENTS_OF_RUNS = 250
# Nothing is deleted for this long after the end of a run, because Dagster may still retry the run
# or evaluate conditions on it.
_SETTLED_MS = 60 * MINUTE_MS
# The record of a run is kept until it is older than this, and this many runs have ended after it.
# People look up past runs in these records.
_KEPT_MS = 15 * DAY_MS
_KEPT_RUNS = 60_000
# One plan deletes the events of at most this many runs, and at most this many runs. A lake that ran
# for months without retention has tens of thousands of old runs; later plans delete the rest.
_MOST_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run in Dagster's records. `ended_ms` is `None` if it has not ended.

    `holds_newest`: whether one of the newest events of an asset or a check belongs to this run.
    """

    run_id: str
    ended_ms: int | None
    holds_newest: bool
    has_events: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The ids of the runs whose events are deleted, and of the runs that are deleted entirely."""

    events: tuple[str, ...]
    runs: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The plan as a sentence."""
        if not self.events and not self.runs:
            return "Nothing to do."
        events = count_of(len(self.events), "run")
        runs = count_of(len(self.runs), "run")
        return f"deletes the events of {events} and the records of {runs}"


def plan_retention(runs: Sequence[RecordedRun], *, days: int, now_ms: int) -> RetentionPlan:
    """Selects what to delete. `runs` must contain all runs in Dagster's records.

    - The events of a run are deleted if it ended more than `days` ago, or 250 runs ended after it.
    - The run itself is deleted if an earlier plan deleted its events, 60,000 runs ended after it,
      and it ended more than 15 days (and more than `days`) ago.
    - Both are kept if the run has not ended, ended within the last hour, or `holds_newest`.
    - One plan deletes the events of at most 2,000 runs, and at most 2,000 runs entirely. The oldest
      runs come first.
    """
    newest_first = [(run.ended_ms, run) for run in runs if run.ended_ms is not None]
    newest_first.sort(key=lambda pair: pair[0], reverse=True)
    without_events = list[str]()
    deleted = list[str]()
    for newer_count, (ended_ms, run) in enumerate(newest_first):
        age_ms = now_ms - ended_ms
        if run.holds_newest or age_ms < _SETTLED_MS:
            continue
        if run.has_events:
            if newer_count >= EVENTS_OF_RUNS or age_ms > days * DAY_MS:
                without_events.append(run.run_id)
        elif newer_count >= _KEPT_RUNS and age_ms > max(_KEPT_MS, days * DAY_MS):
            deleted.append(run.run_id)
    return RetentionPlan(
        events=tuple(reversed(without_events[-_MOST_AT_ONCE:])),
        runs=tuple(reversed(deleted[-_MOST_AT_ONCE:])),
    )
