"""Who is compacted in a tick, and that every other table is told why not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import (
    CYCLE_MS,
    Bounds,
    CompactionCandidate,
    Decision,
    RunInFlight,
    TableState,
    Try,
    decide_fleet,
)
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse.declare.policies import Compaction
from lakehouse.declare.prices import DEFAULT_PRICES
from lakehouse_tests.support.example_snapshots import POLICY

NOW = 1_700_000_000_000


def state(table: str, mergeable: int | None, version: int | None = 7) -> TableState:
    return TableState(table=table, version=version, mergeable_file_count=mergeable)


def decided(
    states: Sequence[TableState],
    bounds: Bounds,
    in_flight: Sequence[RunInFlight] = (),
    *,
    policy: Compaction = POLICY,
    now_ms: int = NOW,
) -> Sequence[Decision]:
    candidates = [
        CompactionCandidate(
            state=each,
            policy=policy,
            in_flight=[run for run in in_flight if run.table == each.table],
        )
        for each in states
    ]
    return decide_fleet(candidates, bounds=bounds, now_ms=now_ms)


def choose(
    states: Sequence[TableState],
    in_flight: Sequence[RunInFlight] = (),
    *,
    slots: int = 9,
    policy: Compaction = POLICY,
    now_ms: int = NOW,
) -> Sequence[Decision]:
    return decided(states, Bounds(slots=slots), in_flight, policy=policy, now_ms=now_ms)


def flying(table: str, *, compaction: bool = True) -> RunInFlight:
    return RunInFlight(table=table, name=f"run of {table}", is_compaction=compaction)


def tried(succeeded: bool, *, hours: float = 0) -> Try:
    """A try that ended so many hours ago."""
    return Try(succeeded=succeeded, ended_ms=NOW - int(hours * 3_600_000))


def test_most_mergeable_first_and_unknown_last() -> None:
    found = choose([state("a", None), state("b", 5), state("c", 0), state("d", 9), state("e", 5)])
    assert [decision.table for decision in found] == ["d", "b", "e", "c", "a"]


@pytest.mark.parametrize(
    ("slots", "requested"), [(0, []), (1, ["c"]), (2, ["c", "b"]), (9, ["c", "b", "a"])]
)
def test_no_more_compactions_at_once_than_slots(slots: int, requested: list[str]) -> None:
    found = choose([state("a", 5), state("b", 6), state("c", 7)], slots=slots)
    assert [decision.table for decision in found if decision.request] == requested
    assert all(decision.reason is Reason.NO_SLOT for decision in found if not decision.request)


def test_a_run_of_several_tables_takes_one_slot() -> None:
    under_way = [replace(flying(table), name="run 1") for table in ("a", "b", "c")]
    tables = [state(table, None) for table in ("a", "b", "c")]
    decisions = choose([state("d", 9), *tables], under_way, slots=2)
    assert decisions[0].request


def worthy(
    table: str,
    *,
    reads: float = 24,
    usd: float | None = 0.01,
    since: int | None = None,
    **more: object,
) -> TableState:
    """A due table; what it is worth is set by how often it is read."""
    made = TableState(
        table=table,
        version=7,
        mergeable_file_count=5,
        file_count=9,
        files_after=5,
        reads_per_day=reads,
        estimate_usd=usd,
        usd_per_opening=usd_per_opening(DEFAULT_PRICES, on_s3=False),
    )
    return replace(made, due_since_ms=since, **more)  # type: ignore[arg-type]


def served(states: Sequence[TableState], bounds: Bounds) -> list[str]:
    return [decision.table for decision in decided(states, bounds) if decision.request]


def test_what_gives_most_for_its_cost_goes_first_and_health_breaks_the_tie() -> None:
    states = [
        worthy("dear", reads=90, usd=0.1),
        worthy("cheap", reads=20, usd=0.01),
        worthy("well", health_score=90.0),
        worthy("sick", health_score=40.0),
        replace(worthy("unknown"), reads_per_day=None),
    ]
    names = ["sick", "well", "cheap", "dear", "unknown"]
    assert [decision.table for decision in choose(states)] == names


def test_a_table_that_has_waited_longer_than_the_patience_goes_before_all_others() -> None:
    states = [
        worthy("rich", reads=1e9),
        worthy("poor", reads=0, since=NOW - CYCLE_MS),
        worthy("poorer", reads=0, since=NOW - CYCLE_MS - 1),
    ]
    assert served(states, Bounds(slots=3)) == ["poorer", "poor", "rich"]
    patient = [worthy("rich", reads=1e9), worthy("poor", since=NOW - CYCLE_MS + 1)]
    assert served(patient, Bounds(slots=1)) == ["rich"]


def test_no_more_is_asked_for_than_the_budget_pays() -> None:
    states = [
        worthy("a", usd=0.5, reads=900),
        worthy("b", usd=0.6, reads=800),
        worthy("c", usd=0.4),
        worthy("d", usd=None),
    ]
    assert served(states, Bounds(slots=9, budget_usd=1.0)) == ["a", "c"]
    assert served(states, Bounds(slots=9, budget_usd=1.0, spent_usd=0.45)) == ["a"]
    assert served(states, Bounds(slots=9)) == ["a", "b", "c", "d"]


def test_a_table_dearer_than_the_budget_is_served_at_its_bound_and_overdraws_it_alone() -> None:
    dear, cheap = worthy("dear", usd=5.0, since=NOW - CYCLE_MS), worthy("cheap", usd=0.01)
    bounds = Bounds(slots=9, budget_usd=1.0)
    assert served([dear, cheap], replace(bounds, spent_usd=0.9)) == ["dear"]
    assert served([dear, cheap], replace(bounds, spent_usd=1.0)) == []
    assert served([replace(dear, due_since_ms=None), cheap], bounds) == ["cheap"]
    [refused] = decided([dear], replace(bounds, spent_usd=1.0))
    why = "5 mergeable files reach the threshold of 4"
    assert refused.sentence == f"{why}, but it costs 5 USD, and only 0 of the hourly 1 USD are left"
    assert (refused.reason, refused.due_since_ms) == (Reason.OVER_BUDGET, dear.due_since_ms)


COSTS = st.sampled_from([0.001, 0.4, 1.0, 7.0])
READS = st.lists(st.sampled_from([0, 1, 50, 1e6]), min_size=6, max_size=6)


@given(
    reads=st.lists(READS, min_size=12, max_size=12),
    costs=st.lists(COSTS, min_size=1, max_size=6),
    slots=st.integers(1, 3),
    budget_usd=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_nobody_starves(
    reads: list[list[float]], costs: list[float], slots: int, budget_usd: float
) -> None:
    """However the benefits move, each of n tables that are always due is served within its bound, one after the other."""
    patience = 1
    bound = patience + (len(costs) if budget_usd else -(-len(costs) // slots))
    since: dict[str, int] = {}
    waited = dict.fromkeys([f"t{place}" for place in range(len(costs))], 0)
    bounds = Bounds(slots=slots, budget_usd=budget_usd)
    for cycle, benefits in enumerate(reads * 2):
        now = NOW + cycle * CYCLE_MS
        states = [
            worthy(table, reads=benefits[place], usd=costs[place], since=since.get(table))
            for place, table in enumerate(waited)
        ]
        found = decided(states, bounds, now_ms=now)
        for decision in found:
            waited[decision.table] = 0 if decision.request else waited[decision.table] + 1
            if decision.request:
                since.pop(decision.table, None)
            else:
                since[decision.table] = decision.due_since_ms or now
        assert sum(decision.request for decision in found) <= slots
        assert max(waited.values()) <= bound
