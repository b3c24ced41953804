"""What makes a table due, each trigger by itself; what is unknown sets nothing off."""

from dataclasses import replace

import pytest

from lakehouse.core.compaction import plan_compaction
from lakehouse.core.health import assess_health
from lakehouse.core.policy import CompactionPolicy
from lakehouse.core.reason import Reason
from lakehouse.core.trigger import TableState, find_trigger, slowdown_of, state_of
from lakehouse_tests.core.made import data_file, layout, plan

HOUR = 3_600_000
NOW = 1_700_000_000_000
QUIET = CompactionPolicy(target_file_bytes=8_000, min_small_files=40)
FOUND = TableState(
    table="a",
    version=7,
    mergeable_file_count=10,
    mergeable_bytes=5_000,
    file_count=20,
    files_after=12,
    oldest_small_ms=NOW - 30 * HOUR,
    deleted_rows_share=0.25,
)
# The knob that is on, the knob's value that is just reached, one that is not, the reason, and the fact that it needs.
TRIGGERS = [
    ("min_small_files", 10, 11, Reason.DUE, "mergeable_file_count"),
    ("min_mergeable_bytes", 5_000, 5_001, Reason.DUE_BYTES, "mergeable_bytes"),
    ("max_small_file_age_hours", 30.0, 30.1, Reason.DUE_AGE, "oldest_small_ms"),
    ("max_reads_hurt_share", 0.4, 0.41, Reason.DUE_READS, "files_after"),
    ("purge_deleted_rows_share", 0.25, 0.26, Reason.DUE_DELETED_ROWS, "deleted_rows_share"),
]


def found(state: TableState, **knobs: object) -> Reason:
    return find_trigger(state, replace(QUIET, **knobs), now_ms=NOW).reason  # type: ignore[arg-type]


@pytest.mark.parametrize(("knob", "reached", "missed", "reason", "needs"), TRIGGERS, ids=[case[0] for case in TRIGGERS])
def test_each_trigger_fires_at_its_own_threshold_and_never_without_its_fact(
    knob: str, reached: float, missed: float, reason: Reason, needs: str
) -> None:
    assert found(FOUND, **{knob: reached}) is reason
    assert found(FOUND, **{knob: missed}) is Reason.BELOW_THRESHOLD
    unknown = replace(FOUND, **{needs: None})  # type: ignore[arg-type]
    assert found(unknown, **{knob: reached}) in (Reason.BELOW_THRESHOLD, Reason.NO_FACTS)


def test_all_but_the_first_are_off_where_they_are_not_declared() -> None:
    assert found(FOUND) is Reason.BELOW_THRESHOLD


def test_a_small_file_that_nothing_can_be_merged_with_grows_old_in_peace() -> None:
    alone = replace(FOUND, mergeable_file_count=0, mergeable_bytes=0)
    assert found(alone, max_small_file_age_hours=1, min_mergeable_bytes=1, max_reads_hurt_share=0.1) is Reason.BELOW_THRESHOLD
    assert found(alone, purge_deleted_rows_share=0.1) is Reason.DUE_DELETED_ROWS


def test_age_grows_with_the_clock_and_nothing_else() -> None:
    policy = replace(QUIET, max_small_file_age_hours=31)
    assert not find_trigger(FOUND, policy, now_ms=NOW).fired
    late = find_trigger(FOUND, policy, now_ms=NOW + HOUR)
    assert (late.fired, late.sentence) == (True, "the oldest of its 10 mergeable files is 31.0 h old, 31 h are allowed")


@pytest.mark.parametrize(
    ("slowdown", "wanted", "told"),
    [
        (None, 40, ""),
        (0.19, 40, ""),
        (0.2, 20, " (20 for 40, since its readers take 20% longer than they used to)"),
        (0.4, 10, " (10 for 40, since its readers take 40% longer than they used to)"),
        (9.0, 10, " (10 for 40, since its readers take 900% longer than they used to)"),
    ],
)
def test_the_threshold_follows_the_readers_within_bounds_and_says_so(slowdown: float | None, wanted: int, told: str) -> None:
    finding = find_trigger(replace(FOUND, slowdown=slowdown), replace(QUIET, slowdown_share=0.2), now_ms=NOW)
    assert finding.sentence == (
        f"10 mergeable files reach the threshold of {wanted}{told}" if wanted <= 10 else f"10 mergeable files, {wanted} wanted{told}"
    )


def test_a_slowdown_that_nobody_asked_about_changes_nothing() -> None:
    assert find_trigger(replace(FOUND, slowdown=5.0), QUIET, now_ms=NOW).sentence == "10 mergeable files, 40 wanted"


def test_the_slowdown_is_the_rolling_mean_over_the_runs_before() -> None:
    assert slowdown_of([2.0] * 5 + [3.0] * 5) == 0.5
    assert slowdown_of([2.0] * 5 + [2.0, 2.0, 2.0, 2.0, 4.5]) == pytest.approx(0.25)
    assert slowdown_of([2.0, 900.0, 2.0, 2.0, 2.0] + [2.0] * 5) == 0
    assert slowdown_of([2.0] * 9) is None
    assert slowdown_of([0.0] * 20) is None


def test_a_state_holds_what_the_log_tells() -> None:
    files = [data_file(1_000, "a"), data_file(1_500, "b", deleted=20), data_file(7_000, "c"), data_file(900, "d", compacted=True)]
    made = layout(files)
    state = state_of(made, assess_health(made, plan(files)))
    assert (state.version, state.file_count, state.mergeable_file_count, state.files_after) == (7, 4, 3, 2)
    assert (state.mergeable_bytes, state.openings_saved, state.oldest_small_ms) == (3_400, 2, 0)
    assert state.deleted_rows_share == 0.05
    assert state.estimate_usd is not None and state.estimate_usd > 0


def test_a_backlog_counts_whole_however_little_one_run_may_do() -> None:
    made = layout([100] * 12)
    bounded = plan_compaction(made, replace(QUIET, min_small_files=10, max_bytes_per_run=250))
    state = state_of(made, assess_health(made, bounded))
    assert (bounded.files_removed + bounded.files_left, state.mergeable_file_count) == (12, 12)
    assert find_trigger(state, bounded.policy, now_ms=NOW).reason is Reason.DUE


def test_rows_that_the_log_does_not_count_hide_no_share() -> None:
    whole, unknown = layout([data_file(1_000, "a", rows=None)]), layout([data_file(1_000, "a", rows=None, vector="u1")])
    assert state_of(whole, assess_health(whole, plan([]))).deleted_rows_share == 0
    assert state_of(unknown, assess_health(unknown, plan([]))).deleted_rows_share is None
