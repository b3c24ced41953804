"""Deleted rows have a trigger and a rewrite of their own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.purge_and_ordering import may_hold_other_columns
from lakehouse.declare.policies import Compaction
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import Snapshot
from lakehouse_tests.compact.plan.test_optimize_bins import paths, planned, stories
from lakehouse_tests.support.example_snapshots import data_file, plan_of, snapshot
from lakehouse_tests.support.optimize_oracle import after, delta_bins

DELETED = (data_file(9_000, "large", deleted=60), data_file(100, "small", deleted=1))
SOME_DELETED = snapshot([*DELETED, data_file(200, "clean"), 7_500])


def test_where_enough_rows_are_deleted_every_file_with_some_is_rewritten_even_alone_and_large() -> (
    None
):
    plan = planned(SOME_DELETED, purge_deleted_rows_share=0.15)
    assert (plan.reason, plan.as_json()["statement"]) == (Reason.DELETED_ROWS, "purge")
    assert paths(plan) == [["small"], ["large"]]
    assert plan.sentence == (
        "deletion vectors hide 61 of 400 rows (15%); to rewrite without these rows: 2 files (8.9 KiB) into 2"
    )


@pytest.mark.parametrize("share", [0, 0.16])
def test_fewer_deleted_rows_are_none_of_its_business(share: float) -> None:
    plan = planned(SOME_DELETED, purge_deleted_rows_share=share)
    assert plan.as_json()["statement"] == "packing"


def test_rows_that_the_log_does_not_count_make_nothing_due_but_are_purged_with_the_others() -> None:
    unknown = data_file(300, "unknown", rows=None, vector="v")
    share = {"purge_deleted_rows_share": 0.01}
    assert planned(snapshot([unknown, 7_000]), **share).as_json()["statement"] == "packing"
    half = data_file(7_000, "half", deleted=50)
    assert paths(planned(snapshot([unknown, half]), **share)) == [["unknown", "half"]]


def test_a_purge_is_bounded_by_partitions() -> None:
    files = [
        data_file(500, f"{day}-{place}", partition=(("day", str(day)),), deleted=50)
        for day in (1, 2)
        for place in range(2)
    ]
    bounded = planned(snapshot(files), purge_deleted_rows_share=0.2, max_bytes_per_run=1_000)
    assert (len(bounded.partitions or ()), bounded.files_removed, bounded.files_left) == (1, 2, 2)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_column_that_may_be_dropped_makes_the_figures_the_least(is_mapped: bool) -> None:
    features = frozenset({"columnMapping"}) if is_mapped else frozenset[str]()
    table = snapshot([data_file(10, deleted=50)], features=features)
    assert may_hold_other_columns(table) is is_mapped
    sentence = planned(table, purge_deleted_rows_share=0.2).sentence
    assert ("at least 1 file " in sentence) is is_mapped


@given(stories(), st.sampled_from([0.01, 0.2]))
def test_a_purge_is_what_delta_does_and_then_packing_goes_on_to_an_end(
    story: tuple[Snapshot, Commits, Compaction], share: float
) -> None:
    table, past, policy = story
    policy = replace(policy, purge_deleted_rows_share=share)
    now_ms = 1_000 * table.version + 5_000
    left = None
    for _ in range(60):
        plan = plan_of(table, policy, past=past, now_ms=now_ms)
        bins = delta_bins(table, plan) if plan.bins else []
        assert sorted(sum(file.size_bytes for file in bin_) for bin_ in bins) == sorted(
            bin_.size_bytes for bin_ in plan.bins
        )
        assert left != 0 or not plan.bins
        if not plan.bins:
            return
        # What packing finds after a purge depends on the files that the purge writes.
        left = None if plan.reason is Reason.DELETED_ROWS else plan.files_left
        halves = [sum(file.size_bytes for file in bin_) // 2 or 1 for bin_ in bins]
        table, past = after(table, past, plan, bins, halves)
    pytest.fail("it never ends")
