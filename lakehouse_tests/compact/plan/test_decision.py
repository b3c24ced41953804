"""When one table is compacted, and the reason it is given when it is not."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    Decision,
    RunInFlight,
    TableState,
    Try,
    decide_fleet,
)
from lakehouse_tests.compact.plan.test_ranking import NOW, choose, flying, state, tried, worthy
from lakehouse_tests.support.example_snapshots import POLICY

MANY = state("a", 90)
WRITING = flying("a", compaction=False)
FAILED, SUCCEEDED = tried(False), tried(True)


def failures(*hours: float) -> list[Try]:
    """Failed tries that ended so many hours ago."""
    return [tried(False, hours=each) for each in hours]


# One table with a threshold of 4: its state, the runs in flight, the tries, the reason, and the number of the try that is requested.
STORIES = {
    "at the threshold": (state("a", 4), (), (), Reason.DUE, 1),
    "below it": (state("a", 3), (), (), Reason.BELOW_THRESHOLD, None),
    "nothing known": (state("a", None, None), (), (), Reason.NO_FACTS, None),
    "a count without a version": (state("a", 90, None), (), (), Reason.NO_FACTS, None),
    "a version without a count": (state("a", None), (), (), Reason.NO_FACTS, None),
    "its compaction is under way": (MANY, (flying("a"),), (), Reason.RUN_IN_FLIGHT, None),
    "its write is under way": (MANY, (WRITING,), (), Reason.RUN_IN_FLIGHT, None),
    "this state was compacted": (MANY, (), [SUCCEEDED], Reason.ASKED_BEFORE, None),
    "it failed once": (MANY, (), [FAILED], Reason.DUE, 2),
    "it failed, then succeeded": (MANY, (), [FAILED, SUCCEEDED], Reason.ASKED_BEFORE, None),
    "it failed as often as is allowed": (MANY, (), [FAILED] * 3, Reason.TRIES_USED_UP, None),
    "just within the pause": (MANY, (), failures(5.99, 5.99, 5.99), Reason.TRIES_USED_UP, None),
    "the pause is over": (MANY, (), failures(6, 6, 6), Reason.DUE, 4),
    "the newest failure begins the pause": (MANY, (), failures(9, 9, 1), Reason.TRIES_USED_UP, None),
    "the next pause is twice as long": (MANY, (), failures(*[11.9] * 4), Reason.TRIES_USED_UP, None),
    "the next pause is over": (MANY, (), failures(*[12] * 4), Reason.DUE, 5),
    "a success outlasts any pause": (MANY, (), [tried(True, hours=9_000)], Reason.ASKED_BEFORE, None),
}  # fmt: skip


def decided(
    table: TableState, tries: Sequence[Try], in_flight: Sequence[RunInFlight] = ()
) -> Decision:
    candidate = CompactionCandidate(state=table, policy=POLICY, in_flight=in_flight, tries=tries)
    [decision] = decide_fleet([candidate], bounds=Bounds(slots=9), now_ms=NOW)
    return decision


@pytest.mark.parametrize(
    ("table", "in_flight", "tries", "reason", "number"), STORIES.values(), ids=STORIES
)
def test_one_table(
    table: TableState,
    in_flight: tuple[RunInFlight, ...],
    tries: Sequence[Try],
    reason: Reason,
    number: int | None,
) -> None:
    found = decided(table, tries, in_flight)
    run_key = number and f"compaction/a/version=7/attempt={number}"
    assert (found.reason, found.run_key, found.request) == (reason, run_key, number is not None)
    assert re.search(r"\d", found.sentence) or reason is Reason.RUN_IN_FLIGHT


def test_a_table_that_was_just_compacted_cools_down_and_keeps_its_place() -> None:
    policy = replace(POLICY, cooldown_minutes=2)
    state = worthy("a", since=NOW - 1, last_compaction_ms=NOW - 119_000)
    for later, reason in ((0, Reason.COOLING_DOWN), (1_000, Reason.DUE)):
        [found] = choose([state], policy=policy, now_ms=NOW + later)
        assert (found.reason, found.due_since_ms) == (reason, NOW - 1)


def test_the_clock_of_waiting_starts_when_a_table_is_due_and_stops_when_it_is_not() -> None:
    due = worthy("due")
    waiting = worthy("waiting", since=5)
    idle = replace(worthy("idle"), mergeable_file_count=0, due_since_ms=5)
    writes = [flying("waiting", compaction=False)]
    since = {each.table: each.due_since_ms for each in choose([due, waiting, idle], writes)}
    assert since == {"due": NOW, "waiting": 5, "idle": None}
    assert choose([waiting], [flying("waiting")])[0].due_since_ms is None
