"""What makes a table due, each trigger by itself; what is unknown sets nothing off."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import plan_once_cold, plan_table
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    TableState,
    decide_fleet,
    find_trigger,
    is_due,
    slowdown_of,
    state_of,
)
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse.declare.policies import Compaction, policy_for
from lakehouse.declare.prices import DEFAULT_PRICES, Prices
from lakehouse.declare.table import Append, Landing, Table
from lakehouse_tests.support.example_snapshots import (
    NO_PAST,
    POLICY,
    data_file,
    plan,
    plan_of,
    snapshot,
)

HOUR = 3_600_000
NOW = 1_700_000_000_000
QUIET = replace(POLICY, min_small_files=40)
FOUND = TableState(
    table="a",
    version=7,
    mergeable_file_count=10,
    file_count=20,
    files_after=12,
    oldest_small_ms=NOW - 30 * HOUR,
    deleted_rows_share=0.25,
    purged_row_count=50,
)
# The knob that is on, the knob's value that is just reached, one that is not, the reason, and the fact that it needs.
TRIGGERS = [
    ("min_small_files", 10, 11, Reason.DUE, "mergeable_file_count"),
    ("max_small_file_age_hours", 30.0, 30.1, Reason.DUE_AGE, "oldest_small_ms"),
    ("purge_deleted_rows_share", 0.25, 0.26, Reason.DUE_DELETED_ROWS, "deleted_rows_share"),
    ("purge_deleted_rows_share", 0.25, 0.26, Reason.DUE_DELETED_ROWS, "purged_row_count"),
]


def found(state: TableState, **knobs: object) -> Reason:
    return find_trigger(state, replace(QUIET, **knobs), now_ms=NOW).reason  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("knob", "reached", "missed", "reason", "needs"), TRIGGERS, ids=[case[0] for case in TRIGGERS]
)
def test_each_trigger_fires_at_its_own_threshold_and_never_without_its_fact(
    knob: str, reached: float, missed: float, reason: Reason, needs: str
) -> None:
    policies = [replace(QUIET, **{knob: value}) for value in (reached, missed)]  # type: ignore[arg-type]
    due, waiting = (find_trigger(FOUND, each, now_ms=NOW) for each in policies)
    assert (due.reason, is_due(due)) == (reason, True)
    assert (waiting.reason, is_due(waiting)) == (Reason.BELOW_THRESHOLD, False)
    unknown = replace(FOUND, **{needs: None})  # type: ignore[arg-type]
    assert found(unknown, **{knob: reached}) in (Reason.BELOW_THRESHOLD, Reason.NO_FACTS)


BELOW = Reason.BELOW_THRESHOLD
UNMOVED: dict[str, tuple[TableState, dict[str, float]]] = {
    "nothing but a threshold is declared": (FOUND, {}),
    "an old file is alone": (
        replace(FOUND, mergeable_file_count=0),
        {"max_small_file_age_hours": 1},
    ),
    "no plan takes the rows out": (
        replace(FOUND, purged_row_count=0),
        {"purge_deleted_rows_share": 0.1},
    ),
}


@pytest.mark.parametrize(("state", "knobs"), UNMOVED.values(), ids=UNMOVED)
def test_nothing_that_a_compaction_would_not_change_makes_a_table_due(
    state: TableState, knobs: dict[str, float]
) -> None:
    assert found(state, **knobs) is BELOW


def test_deleted_rows_that_no_plan_would_take_out_ask_for_nothing() -> None:
    files = [data_file(9_000, "a", deleted=60)]
    policy = replace(QUIET, purge_deleted_rows_share=0.2)
    made = snapshot(files)
    for cold_hours, reason in ((0, Reason.DUE_DELETED_ROWS), (1, Reason.BELOW_THRESHOLD)):
        state = state_of(made, plan_of(made, replace(policy, cold_hours=cold_hours), now_ms=0))
        assert state.deleted_rows_share == 0.6
        assert find_trigger(state, policy, now_ms=0).reason == reason


def test_age_grows_with_the_clock_and_nothing_else() -> None:
    policy = replace(QUIET, max_small_file_age_hours=31)
    assert not is_due(find_trigger(FOUND, policy, now_ms=NOW))
    late = find_trigger(FOUND, policy, now_ms=NOW + HOUR)
    assert is_due(late) is True
    assert late.sentence == "the oldest of its 10 mergeable files is 31.0 h old (limit 31 h)"


@pytest.mark.parametrize(
    ("slowdown", "mergeable", "reason"),
    [
        (None, 10, BELOW),
        (0.24, 10, BELOW),
        (0.25, 10, Reason.READS_SLOWER),
        (0.25, 1, BELOW),
        (9.0, 40, Reason.DUE),
    ],
)
def test_slower_readers_make_a_compaction_due_where_it_has_something_to_merge(
    slowdown: float | None, mergeable: int, reason: Reason
) -> None:
    state = replace(FOUND, slowdown=slowdown, mergeable_file_count=mergeable)
    finding = find_trigger(state, QUIET, now_ms=NOW)
    assert (finding.reason, is_due(finding)) == (reason, reason is not BELOW)


def test_the_slowdown_compares_the_newest_runs_with_the_first_ones_after_a_compaction() -> None:
    assert slowdown_of([2.0] * 5 + [3.0] * 5) == 0.5
    assert slowdown_of([2.0] * 5 + [9.0] * 3 + [2.0, 2.0, 2.5, 4.5, 4.5]) == pytest.approx(0.25)
    assert slowdown_of([2.0, 900.0, 2.0, 2.0, 2.0] + [2.0] * 5) == 0
    assert slowdown_of([2.0] * 9) is None
    assert slowdown_of([0.0] * 20) is None


def test_a_state_holds_what_the_log_tells() -> None:
    files = [
        data_file(1_000, "a"),
        data_file(1_500, "b", deleted=20),
        data_file(7_000, "c"),
        data_file(900, "d", compacted=True),
    ]
    made = snapshot(files)
    state = state_of(made, plan(files))
    assert (state.version, state.file_count, state.mergeable_file_count) == (7, 4, 3)
    assert state.files_after == 2
    assert state.oldest_small_ms == 0
    assert state.deleted_rows_share == 0.05
    assert state.estimate_usd is not None and state.estimate_usd > 0


def test_a_backlog_counts_whole_however_little_one_run_may_do() -> None:
    made = snapshot([100] * 12)
    bounded = plan_of(made, replace(QUIET, min_small_files=10, max_bytes_per_run=250))
    state = state_of(made, bounded)
    assert (bounded.files_removed + bounded.files_left, state.mergeable_file_count) == (12, 12)
    assert find_trigger(state, bounded.policy, now_ms=NOW).reason is Reason.DUE


def test_rows_that_the_log_does_not_count_hide_no_share() -> None:
    whole = snapshot([data_file(1_000, "a", rows=None)])
    unknown = snapshot([data_file(1_000, "a", rows=None, vector="u1")])
    assert state_of(whole, plan([])).deleted_rows_share == 0
    assert state_of(unknown, plan([])).deleted_rows_share is None


DAYS = [
    data_file(100 + number, f"f{number}", partition=(("day", str(number % 2)),))
    for number in range(8)
]


@given(st.booleans(), st.integers(1, 48), st.integers(0, 200 * HOUR), st.booleans())
def test_what_was_written_once_is_asked_for_once_it_is_cold_and_never_before(
    is_partitioned: bool, cold_hours: int, now_ms: int, is_old: bool
) -> None:
    """Written at 0, told of at once, and never again; `is_old`: too few files for the count, so that their age decides."""
    count, age_hours = (40, 24.0) if is_old else (4, 0)
    policy = Compaction(
        min_small_files=count, max_small_file_age_hours=age_hours, cold_hours=cold_hours
    )
    landed = Landing(prefix="t/", format="json", schema="id STRING")
    table = Table(key="bronze/t", source=landed, write=Append(), compaction=policy)
    made, past = snapshot(DAYS if is_partitioned else [100, 101, 102, 103]), NO_PAST
    once_cold = plan_once_cold(table, made, past, now_ms=0)
    assert once_cold is not None
    cold_from_ms, plan = once_cold
    told = state_of(made, plan, cold_from_ms)
    candidate = CompactionCandidate(state=told, policy=policy_for("bronze", policy))
    [decision] = decide_fleet([candidate], bounds=Bounds(), now_ms=now_ms)
    due_hours = max(24, cold_hours) if is_old else cold_hours
    assert not plan_table(table, made, past, now_ms=0).bins
    assert decision.request is (now_ms >= due_hours * HOUR)
    assert not decision.request or plan_table(table, made, past, now_ms=now_ms).bins


def test_a_warm_table_says_when_it_will_be_due() -> None:
    warm = replace(FOUND, mergeable_file_count=60, purged_row_count=9, cold_from_ms=NOW + HOUR)
    warm = replace(warm, deleted_rows_share=0.9, slowdown=9.0, oldest_small_ms=0)
    policy = replace(QUIET, max_small_file_age_hours=1, purge_deleted_rows_share=0.1)
    finding = find_trigger(warm, policy, now_ms=NOW)
    once = "60 once all of it is cold, from 2023-11-14 23:13 UTC on"
    assert finding.sentence == f"0 mergeable files, 40 needed; {once}"
    assert find_trigger(warm, policy, now_ms=NOW + HOUR).reason is Reason.DUE


def test_an_opening_costs_its_seconds_and_its_requests() -> None:
    # 1 ms on 2 vCPUs at 0.11 USD an hour, and on S3 two GETs at 0.0004 USD a thousand.
    seconds, requests = 0.001 * 2 / 3600 * 0.11, 2 * 0.0004 / 1000
    assert usd_per_opening(DEFAULT_PRICES, on_s3=False) == pytest.approx(seconds)
    assert usd_per_opening(DEFAULT_PRICES, on_s3=True) == pytest.approx(seconds + requests)
    own = Prices(usd_per_vcpu_hour=3.6, vcpus=10, usd_per_1000_gets=1)
    assert usd_per_opening(own, on_s3=True) == pytest.approx(0.001 * 10 * 0.001 + 2 * 0.001)


def test_worth_grows_with_readers_and_files_and_falls_with_cost() -> None:
    figures = {"reads_per_day": 24, "file_count": 101, "files_after": 1, "estimate_usd": 0.001}
    opening_usd = usd_per_opening(DEFAULT_PRICES, on_s3=True)
    state = TableState(table="bronze/orders", usd_per_opening=opening_usd, **figures)  # type: ignore[arg-type]
    worth = state.net_benefit
    assert worth is not None
    benefit = 24 * 100 * opening_usd
    assert worth.benefit_usd_per_day == pytest.approx(benefit)
    assert worth.ratio == pytest.approx(worth.benefit_usd_per_day / 0.001)
