"""When one table is compacted, and the reason it is given when it is not."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import RunInFlight, RunState, TableState, Try
from lakehouse_tests.compact.plan.test_ranking import NOW, choose, flying, state, tried, worthy
from lakehouse_tests.support.example_snapshots import POLICY

MANY = state("a", 90)
MADE_ANEW = replace(MANY, committed_ms=5)
# One table with a threshold of 4: its state, the runs, the reason, and the run key of a request.
STORIES = {
    "at the threshold": (state("a", 4), (), (), Reason.DUE, "compaction/a/version=7/try=1"),
    "below it": (state("a", 3), (), (), Reason.BELOW_THRESHOLD, None),
    "nothing known": (state("a", None, None), (), (), Reason.NO_FACTS, None),
    "a count without a version": (state("a", 90, None), (), (), Reason.NO_FACTS, None),
    "a version without a count": (state("a", None), (), (), Reason.NO_FACTS, None),
    "a compaction of it is under way": (MANY, (flying("a"),), (), Reason.RUN_IN_FLIGHT, None),
    "a write of it is under way": (
        MANY,
        (flying("a", compaction=False),),
        (),
        Reason.RUN_IN_FLIGHT,
        None,
    ),
    "another table's run is under way": (
        state("a", 4),
        (flying("b"),),
        (),
        Reason.DUE,
        "compaction/a/version=7/try=1",
    ),
    "this state was compacted": (MANY, (), (tried("succeeded"),), Reason.ASKED_BEFORE, None),
    "this state was asked for": (MANY, (), (tried("in flight"),), Reason.ASKED_BEFORE, None),
    "it failed once": (MANY, (), (tried("failed"),), Reason.DUE, "compaction/a/version=7/try=2"),
    "it failed, then succeeded": (
        MANY,
        (),
        (tried("failed"), tried("succeeded")),
        Reason.ASKED_BEFORE,
        None,
    ),
    "it failed as often as is allowed": (
        MANY,
        (),
        (tried("failed"),) * 3,
        Reason.TRIES_USED_UP,
        None,
    ),
    "it was refused before it began": (
        MANY,
        (),
        (tried("refused"),) * 9,
        Reason.DUE,
        "compaction/a/version=7/try=10",
    ),
    "it was refused, then succeeded": (
        MANY,
        (),
        (tried("refused"), tried("succeeded")),
        Reason.ASKED_BEFORE,
        None,
    ),
    "it failed as often between refusals": (
        MANY,
        (),
        (tried("failed"), tried("refused")) * 3,
        Reason.TRIES_USED_UP,
        None,
    ),
    "it failed as often just within the pause": (
        MANY,
        (),
        (tried("failed", hours=5.99),) * 3,
        Reason.TRIES_USED_UP,
        None,
    ),
    "the pause is over": (
        MANY,
        (),
        (tried("failed", hours=6),) * 3,
        Reason.DUE,
        "compaction/a/version=7/try=4",
    ),
    "the newest failure begins the pause": (
        MANY,
        (),
        [tried("failed", hours=hours) for hours in (9, 9, 1)],
        Reason.TRIES_USED_UP,
        None,
    ),
    "the next pause is twice as long": (
        MANY,
        (),
        (tried("failed", hours=11.9),) * 4,
        Reason.TRIES_USED_UP,
        None,
    ),
    "the next pause is over": (
        MANY,
        (),
        (tried("failed", hours=12),) * 4,
        Reason.DUE,
        "compaction/a/version=7/try=5",
    ),
    "a success outlasts any pause": (
        MANY,
        (),
        (tried("succeeded", hours=9_000),),
        Reason.ASKED_BEFORE,
        None,
    ),
    "this version of a table that was made anew since": (
        MADE_ANEW,
        (),
        (
            tried("succeeded", committed_ms=4),
            *(tried("failed", committed_ms=4),) * 3,
            tried("succeeded"),
        ),
        Reason.DUE,
        "compaction/a/version=7/committed_ms=5/try=1",
    ),
    "this very state was compacted": (
        MADE_ANEW,
        (),
        (tried("succeeded", committed_ms=5),),
        Reason.ASKED_BEFORE,
        None,
    ),
    "an older state failed": (
        MANY,
        (),
        (tried("failed", version=6),) * 3,
        Reason.DUE,
        "compaction/a/version=7/try=1",
    ),
    "a succeeded older state": (
        state("a", 4),
        (),
        (tried("succeeded", version=6),),
        Reason.DUE,
        "compaction/a/version=7/try=1",
    ),
}


@pytest.mark.parametrize(
    ("table", "in_flight", "tries", "reason", "run_key"), STORIES.values(), ids=STORIES
)
def test_one_table(
    table: TableState,
    in_flight: tuple[RunInFlight, ...],
    tries: Sequence[Try],
    reason: Reason,
    run_key: str | None,
) -> None:
    (found,) = choose([table], RunState(in_flight=in_flight, tries=tuple(tries)))
    assert (found.reason, found.run_key, found.request) == (reason, run_key, run_key is not None)
    assert re.search(r"\d", found.sentence) or reason is Reason.RUN_IN_FLIGHT


def test_no_state_is_asked_for_twice_however_often_the_sensor_ticks() -> None:
    tries: list[Try] = []
    keys: list[str] = []
    for _ in range(10):
        (found,) = choose([state("a", 90)], RunState(tries=tuple(tries)))
        if found.run_key:
            keys.append(found.run_key)
            tries.append(tried("failed"))
    assert keys == [f"compaction/a/version=7/try={number}" for number in (1, 2, 3)]


@given(st.lists(st.sampled_from(["refused", "failed"]), max_size=40))
def test_however_often_a_state_was_refused_it_is_asked_for_under_a_new_key_until_it_has_failed_three_times(
    results: list[str],
) -> None:
    tries, keys = list[Try](), list[str]()
    for result in [*results, "failed"]:
        (found,) = choose([state("a", 90)], RunState(tries=tuple(tries)))
        assert found.request == (sum(past.result == "failed" for past in tries) < 3)
        if found.run_key:
            keys.append(found.run_key)
            tries.append(tried(result))
    assert len(set(keys)) == len(keys)


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
    runs = RunState(in_flight=(flying("waiting", compaction=False),))
    assert {each.table: each.due_since_ms for each in choose([due, waiting, idle], runs)} == {
        "due": NOW,
        "waiting": 5,
        "idle": None,
    }
    assert choose([waiting], RunState(in_flight=(flying("waiting"),)))[0].due_since_ms is None
