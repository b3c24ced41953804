"""Who is compacted in a tick, and that every other table is told why not."""

import re
from collections.abc import Sequence

import pytest

from lakehouse.core.rank import Decision, RunInFlight, RunState, TableState, Try, choose_compactions, describe
from lakehouse.core.reason import Reason
from lakehouse_tests.core.made import POLICY


def state(table: str, mergeable: int | None, version: int | None = 7) -> TableState:
    return TableState(table=table, version=version, mergeable_file_count=mergeable)


def choose(states: Sequence[TableState], runs: RunState | None = None, *, slots: int = 9) -> tuple[Decision, ...]:
    return choose_compactions(states, {each.table: POLICY for each in states}, runs or RunState(), slots=slots)


def flying(table: str, *, compaction: bool = True) -> RunInFlight:
    return RunInFlight(table=table, name=f"run of {table}", is_compaction=compaction)


def tried(result: str, *, version: int = 7) -> Try:
    return Try(table="a", version=version, result=result)  # type: ignore[arg-type]


# One table with a threshold of 4: its state, the runs, the reason, and the run key of a request.
STORIES = {
    "at the threshold": (state("a", 4), (), (), Reason.DUE, "compaction/a/version=7/try=1"),
    "below it": (state("a", 3), (), (), Reason.BELOW_THRESHOLD, None),
    "nothing known": (state("a", None, None), (), (), Reason.NO_FACTS, None),
    "a count without a version": (state("a", 90, None), (), (), Reason.NO_FACTS, None),
    "a version without a count": (state("a", None), (), (), Reason.NO_FACTS, None),
    "a compaction of it is under way": (state("a", 90), (flying("a"),), (), Reason.RUN_IN_FLIGHT, None),
    "a write of it is under way": (state("a", 90), (flying("a", compaction=False),), (), Reason.RUN_IN_FLIGHT, None),
    "another table's run is under way": (state("a", 4), (flying("b"),), (), Reason.DUE, "compaction/a/version=7/try=1"),
    "this state was compacted": (state("a", 90), (), (tried("succeeded"),), Reason.ASKED_BEFORE, None),
    "this state was asked for": (state("a", 90), (), (tried("in flight"),), Reason.ASKED_BEFORE, None),
    "it failed once": (state("a", 90), (), (tried("failed"),), Reason.DUE, "compaction/a/version=7/try=2"),
    "it failed, then succeeded": (state("a", 90), (), (tried("failed"), tried("succeeded")), Reason.ASKED_BEFORE, None),
    "it failed as often as is allowed": (state("a", 90), (), (tried("failed"),) * 3, Reason.TRIES_USED_UP, None),
    "an older state failed": (state("a", 90), (), (tried("failed", version=6),) * 3, Reason.DUE, "compaction/a/version=7/try=1"),
    "a succeeded older state": (state("a", 4), (), (tried("succeeded", version=6),), Reason.DUE, "compaction/a/version=7/try=1"),
}


@pytest.mark.parametrize(("table", "in_flight", "tries", "reason", "run_key"), STORIES.values(), ids=STORIES)
def test_one_table(
    table: TableState, in_flight: tuple[RunInFlight, ...], tries: tuple[Try, ...], reason: Reason, run_key: str | None
) -> None:
    (found,) = choose([table], RunState(in_flight=in_flight, tries=tries))
    assert (found.reason, found.run_key, found.request) == (reason, run_key, run_key is not None)
    assert re.search(r"\d", found.sentence) or reason is Reason.RUN_IN_FLIGHT


def test_most_mergeable_first_and_unknown_last() -> None:
    found = choose([state("a", None), state("b", 5), state("c", 0), state("d", 9), state("e", 5)])
    assert [decision.table for decision in found] == ["d", "b", "e", "c", "a"]


@pytest.mark.parametrize(("slots", "requested"), [(0, []), (1, ["c"]), (2, ["c", "b"]), (9, ["c", "b", "a"])])
def test_no_more_compactions_at_once_than_slots(slots: int, requested: list[str]) -> None:
    found = choose([state("a", 5), state("b", 6), state("c", 7)], slots=slots)
    assert [decision.table for decision in found if decision.request] == requested
    assert all(decision.reason is Reason.NO_SLOT for decision in found if not decision.request)


def test_compactions_under_way_take_their_slots_and_writes_do_not() -> None:
    runs = RunState(in_flight=(flying("x"), flying("y", compaction=False)))
    found = choose([state("a", 5), state("b", 6)], runs, slots=2)
    assert [(decision.table, decision.reason) for decision in found] == [("b", Reason.DUE), ("a", Reason.NO_SLOT)]


def test_a_table_that_may_not_run_leaves_its_slot_to_the_next() -> None:
    found = choose([state("a", 90), state("b", 6)], RunState(tries=(tried("succeeded"),)), slots=1)
    assert [(decision.table, decision.request) for decision in found] == [("a", False), ("b", True)]


def test_no_state_is_asked_for_twice_however_often_the_sensor_ticks() -> None:
    tries: list[Try] = []
    keys: list[str] = []
    for _ in range(10):
        (found,) = choose([state("a", 90)], RunState(tries=tuple(tries)))
        if found.run_key:
            keys.append(found.run_key)
            tries.append(tried("failed"))
    assert keys == [f"compaction/a/version=7/try={number}" for number in (1, 2, 3)]


def test_the_text_has_one_line_per_table_with_numbers() -> None:
    assert describe(choose([state("a", 3), state("b", 5), state("c", 4)], slots=1)).splitlines() == [
        "b: 5 mergeable files reach the threshold of 4;",
        "c: 4 mergeable files reach the threshold of 4, but 1 compaction(s) at once are allowed;",
        "a: 3 mergeable files, 4 wanted",
    ]
