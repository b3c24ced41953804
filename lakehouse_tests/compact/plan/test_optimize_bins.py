"""What is merged into what: every knob changes the plan, none of them what a compacted table is, a fixed point."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.bins import TRIVIAL_BYTES_PER_CORE
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.target_size import LARGEST_TARGET, SMALLEST_TARGET, choose_target
from lakehouse.declare.policies import MIB, Compaction
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import Column, DataFile, Snapshot
from lakehouse_tests.support.example_snapshots import NO_PAST, POLICY, data_file, plan_of, snapshot
from lakehouse_tests.support.optimize_oracle import after, delta_bins, written

HOUR_MS = 3_600_000


def planned(table: Snapshot, past: Commits = NO_PAST, **knobs: float) -> CompactionPlan:
    return plan_of(table, replace(POLICY, **knobs), past=past, now_ms=1_000 * table.version)  # type: ignore[arg-type]


def cutoff_of(plan: CompactionPlan) -> int:
    assert plan.statement.kind == "packing"
    return plan.statement.smaller_than_bytes


def carried_out(
    table: Snapshot, past: Commits, plan: CompactionPlan, bins: Sequence[Sequence[DataFile]]
) -> tuple[Snapshot, Commits]:
    """The table after the plan, whose files have the sizes of what was merged."""
    sizes = [sum(file.size_bytes for file in bin_) for bin_ in bins]
    return after(table, past, plan, bins, sizes)


def paths(plan: CompactionPlan) -> list[list[str]]:
    return [[file.path for file in bin_.files] for bin_ in plan.bins]


def in_day(day: int, *sizes: int, modified_ms: int = 0) -> list[DataFile]:
    files = [
        data_file(size, f"{day}-{place}", partition=(("day", str(day)),))
        for place, size in enumerate(sizes)
    ]
    return [replace(file, modified_ms=modified_ms) for file in files]


# bounds


def test_a_bounded_run_takes_most_files_per_byte_and_says_what_is_left() -> None:
    table = snapshot([*in_day(1, 2_000, 2_000), *in_day(2, *[100] * 10), *in_day(3, 900, 900, 900)])
    plan = planned(table, max_bytes_per_run=3_700)
    assert plan.partitions == ((("day", "2"),), (("day", "3"),))
    assert (plan.files_removed, plan.files_left) == (13, 2)
    merged = "13 files (3.6 KiB) merge into 2 in 2 partitions"
    assert plan.sentence == f"{merged}; left for the next run: 2 files"


def test_an_unpartitioned_table_is_taken_smallest_files_first() -> None:
    plan = planned(snapshot([1_000, 300, 2_000, 200, 4_000]), max_bytes_per_run=1_500)
    assert (paths(plan), cutoff_of(plan)) == ([["part-3", "part-1", "part-0"]], 2_000)
    assert plan.files_left == 2


def test_one_bin_is_always_allowed_and_files_of_one_size_stay_together() -> None:
    plan = planned(snapshot([1_000, 1_000, 1_000, 3_000]), max_bytes_per_run=1)
    assert (paths(plan), cutoff_of(plan)) == ([["part-0", "part-1", "part-2"]], 1_001)
    assert plan.files_left == 1


def test_large_files_full_of_deleted_rows_are_left_to_the_purge() -> None:
    small = [data_file(size, name) for name, size in {"a": 100, "b": 200, "c": 1_500}.items()]
    files = [*small, data_file(6_100, "large", deleted=50)]
    assert paths(planned(snapshot(files))) == [["a", "b", "c"]]


# cold partitions


def test_only_partitions_that_nobody_writes_are_taken_the_newest_last() -> None:
    hours = {1: 5, 2: 9, 3: 1}
    files = [
        file
        for day, hour in hours.items()
        for file in in_day(day, 100, 100, modified_ms=(20 - hour) * HOUR_MS)
    ]
    table = replace(snapshot(files), version=20 * HOUR_MS // 1_000)
    plan = planned(table, cold_hours=2)
    assert plan.partitions == ((("day", "2"),), (("day", "1"),))
    warm = planned(table, cold_hours=10)
    assert (warm.reason, warm.bins) == (Reason.ALL_WARM, ())
    assert warm.sentence == "3 partitions with mergeable files, all changed within the last 10 h"


def test_a_delete_by_vectors_makes_a_partition_warm_though_its_files_keep_their_times() -> None:
    start = replace(snapshot([], partition_columns=["day"]), version=20 * HOUR_MS // 1_000)
    table, past = written(start, NO_PAST, in_day(1, 100, 100, modified_ms=HOUR_MS))
    assert planned(table, cold_hours=2).files_removed == 2
    assert planned(table, past, cold_hours=2).reason is Reason.ALL_WARM


# the target


@given(st.integers(0, 2**45))
def test_the_target_is_a_power_of_two_that_follows_the_table(size: int) -> None:
    target = choose_target(size)
    assert SMALLEST_TARGET <= target <= LARGEST_TARGET and target & (target - 1) == 0
    assert target == SMALLEST_TARGET or size >= 128 * target
    assert target == LARGEST_TARGET or size < 128 * 2 * target


def test_a_declared_target_is_the_target_and_zero_follows_the_table() -> None:
    assert planned(snapshot([10, 10])).as_json()["target_file_bytes"] == POLICY.target_file_bytes
    following = planned(snapshot([10, 10, 20 * 1024**3]), target_file_bytes=0)
    assert following.as_json()["target_file_bytes"] == 128 * MIB
    assert following.policy.target_file_bytes == 128 * MIB


def compacted(*, target: int, sizes: Sequence[int]) -> tuple[Snapshot, Commits]:
    """A table whose files a compaction under `target` wrote, and somebody has written since."""
    start = snapshot([target // 2, target // 2])
    done = planned(start, target_file_bytes=target)
    table, past = after(snapshot([]), NO_PAST, done, [[data_file(1)]] * len(sizes), sizes)
    return written(table, past, [])


def test_what_was_right_under_a_smaller_target_is_not_rewritten_under_a_larger_one() -> None:
    table, past = compacted(target=8_192, sizes=[6_144, 8_000, 6_143])
    table, past = written(table, past, [data_file(100, "new-1"), data_file(200, "new-2")])
    plan = planned(table, past, target_file_bytes=16_384)
    assert (paths(plan), cutoff_of(plan)) == ([["new-1", "new-2", "v8-2"]], 6_144)


def test_seven_right_files_stay_and_eight_are_merged_once_into_the_second_tier() -> None:
    for count, merged in ((7, 0), (8, 8)):
        table, past = compacted(target=8_192, sizes=[8_000] * count)
        plan = planned(table, past, target_file_bytes=65_536)
        assert (plan.files_removed, plan.files_added) == (merged, merged // 8)
    assert plan.reason is Reason.MERGEABLE_FILES
    table, past = after(table, past, plan, delta_bins(table, plan), [30_000])
    table, past = written(table, past, [])
    assert [
        planned(table, past, target_file_bytes=target).bins for target in (65_536, 8 * 65_536)
    ] == [(), ()]


# tiers


def large_files(*sizes: int) -> list[DataFile]:
    """Files that compactions wrote."""
    return [
        data_file(size * MIB, f"old-{place}", compacted=True) for place, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("old", "new", "merged", "cutoff"),
    {
        "less than the file": ([90], [1, 2, 3], 3, 16),
        "less than a class of files": ([90, 40, 17], [10, 3, 2], 3, 16),
        "more than the next one": ([90, 17], [10, 4, 3], 4, 64),
        "more than all": ([90, 40, 17], [15, 15, 15], 6, 96 * 2),
        "a small one": ([90, 15], [1, 2], 3, 32),
        "a new file among the large ones": ([90], [20, 1, 2], 3, 32),
        "a new file that is larger": ([30], [100, 1, 2], 4, 96 * 2),
        "nothing kept": ([], [1, 2, 3], 3, 96 * 2),
    }.values(),
)
def test_a_file_that_a_compaction_wrote_is_left_until_smaller_ones_come_near_its_size(
    old: list[int], new: list[int], merged: int, cutoff: int
) -> None:
    files = [
        *large_files(*old),
        *(data_file(size * MIB - 1, f"new-{place}") for place, size in enumerate(new)),
    ]
    plan = planned(snapshot(files), target_file_bytes=256 * MIB)
    assert (plan.files_removed, plan.files_added, cutoff_of(plan)) == (merged, 1, cutoff * MIB)
    kept = len(files) - merged
    assert ("larger than the merged files together" in plan.sentence) == (kept > 0)
    assert (f": {kept} compacted file" in plan.sentence) == (kept > 0)


def test_what_is_left_for_later_is_no_reason_by_itself_and_partitions_leave_nothing() -> None:
    for left in (large_files(90, 40), [*large_files(90), data_file(MIB)]):
        plan = planned(snapshot(left), target_file_bytes=256 * MIB)
        assert plan.reason is Reason.ALREADY_COMPACTED
    day = (("day", "1"),)
    files = [
        replace(file, partition=day)
        for file in (*large_files(90), data_file(MIB, "a"), data_file(MIB, "b"))
    ]
    table = snapshot(files, columns=[Column(name="day", type="int")], partition_columns=["day"])
    assert planned(table, target_file_bytes=256 * MIB).files_removed == 3


@given(
    st.lists(st.lists(st.integers(1, 7 * MIB), min_size=2, max_size=2), min_size=1, max_size=80),
    st.sampled_from([64, 256, 1024]),
)
@example([[5 * MIB, 5 * MIB]] * 40, 64)
def test_from_16_mib_on_a_byte_is_rewritten_about_as_often_as_its_file_can_double(
    batches: list[list[int]], target_mib: int
) -> None:
    table, past, rewritten = snapshot([]), NO_PAST, 0
    doublings = (target_mib // 16).bit_length() - 1
    for number, sizes in enumerate(batches):
        files = [data_file(size, f"{number}-{place}") for place, size in enumerate(sizes)]
        table, past = written(table, past, files)
        plan = planned(table, past, target_file_bytes=target_mib * MIB)
        bins = delta_bins(table, plan)
        merged = [file.size_bytes for bin_ in bins for file in bin_]
        rewritten += sum(size for size in merged if size >= 16 * MIB)
        if bins and cutoff_of(plan) < target_mib * MIB * 3 // 4:
            kept = [each for each in table.files if each.size_bytes >= cutoff_of(plan)]
            assert all(file.size_bytes > plan.bytes_removed for file in kept)
        table, past = carried_out(table, past, plan, bins)
    assert rewritten <= (doublings + 1) * table.size_bytes


# parallelism


def test_a_table_keeps_as_many_files_as_cores_scan_it_unless_they_would_have_next_to_nothing_to_read() -> (
    None
):
    size = TRIVIAL_BYTES_PER_CORE // 2
    table = snapshot([size] * 40)  # 80 MiB
    alone, eight = (
        planned(table, target_file_bytes=128 * MIB, scan_cores=cores) for cores in (1, 8)
    )
    assert (alone.files_added, eight.files_added) == (1, 10)
    assert eight.as_json()["target_file_bytes"] == 8 * MIB
    assert eight.policy.target_file_bytes == 128 * MIB
    trivial = planned(snapshot([size // 100] * 40), target_file_bytes=128 * MIB, scan_cores=8)
    assert trivial.files_added == 1


def test_a_table_of_no_more_files_than_cores_is_left_alone_with_the_reason() -> None:
    table = snapshot([TRIVIAL_BYTES_PER_CORE] * 8)
    plan = planned(table, target_file_bytes=128 * MIB, scan_cores=8)
    assert (plan.reason, plan.bins) == (Reason.CORES_KEPT_BUSY, ())
    assert plan.sentence.startswith("its 8 files (32 MiB) keep 8 cores busy")


# the law, for every knob


@st.composite
def stories(draw: st.DrawFn) -> tuple[Snapshot, Commits, Compaction]:
    """A table that was compacted under one policy, written since, and is now looked at under another."""
    # With the second, sizes are of the order of what a core wants to read; with the third, of what a compaction rather leaves.
    unit = draw(st.sampled_from([10, 2_000, 20_000]))
    days = draw(st.sampled_from([["1"], ["1", "01", "2", None]]))
    columns = [Column(name="day", type="int")]
    start = snapshot([], columns=columns, partition_columns=["day"] if len(days) > 1 else [])

    def some_files(name: str) -> list[DataFile]:
        return [
            data_file(
                unit
                * draw(
                    st.one_of(st.sampled_from([500, 1_000, 2_700, 7_000]), st.integers(1, 9_000))
                ),
                f"{name}-{place}",
                partition=(("day", draw(st.sampled_from(days))),) if len(days) > 1 else (),
                deleted=draw(st.sampled_from([0, 0, 0, 3, 50])),
                rows=draw(st.sampled_from([100, 100, None])),
            )
            for place in range(draw(st.integers(0, 14)))
        ]

    table, past = written(start, NO_PAST, some_files("old"))
    first = replace(POLICY, target_file_bytes=unit * draw(st.sampled_from([500, 1_000, 8_000])))
    done = plan_of(table, first, past=past)
    table, past = carried_out(table, past, done, delta_bins(table, done))
    table, past = written(table, past, some_files("new"))
    policy = replace(
        POLICY,
        target_file_bytes=draw(st.sampled_from([0, 4_000 * unit, 8_000 * unit])),
        scan_cores=draw(st.sampled_from([1, 3, 8])),
        max_bytes_per_run=draw(st.sampled_from([0, 0, 3_000 * unit])),
        cold_hours=draw(st.sampled_from([0, 0, 0.0001, 1])),
    )
    return table, past, policy


@given(stories(), st.data(), st.randoms(use_true_random=False))
def test_whatever_the_knobs_the_plan_is_what_delta_does_and_runs_end_where_the_plan_says(
    story: tuple[Snapshot, Commits, Compaction], data: st.DataObject, random: Random
) -> None:
    table, past, policy = story
    now_ms = 1_000 * table.version + 5_000
    left: int | None = None
    for _ in range(60):
        plan = plan_of(table, policy, past=past, now_ms=now_ms)
        bins = delta_bins(table, plan, ties=lambda _: random.randrange(100)) if plan.bins else []
        assert sorted(sorted(file.size_bytes for file in bin_) for bin_ in bins) == sorted(
            sorted(file.size_bytes for file in bin_.files) for bin_ in plan.bins
        )
        if left == 0:
            assert not plan.bins, "nothing was left, and there is something to do"
        if not plan.bins:
            break
        left = plan.files_left
        sizes = [sum(file.size_bytes for file in bin_) for bin_ in bins]
        outputs = [data.draw(st.sampled_from([1, size // 2 or 1, size])) for size in sizes]
        table, past = after(table, past, plan, bins, outputs)
        wanted = min(policy.scan_cores, plan_bytes(plan, table, sizes) // TRIVIAL_BYTES_PER_CORE)
        assert table.file_count >= wanted
    else:
        pytest.fail("it never ends")


def plan_bytes(plan: CompactionPlan, table: Snapshot, sizes: Sequence[int]) -> int:
    """The bytes of the table before the plan ran: outputs taken off, inputs put back."""
    outputs = [
        file.size_bytes for file in table.files if file.path.startswith(f"v{table.version}-")
    ]
    return table.size_bytes - sum(outputs) + sum(sizes)


@given(st.data())
def test_a_file_that_was_right_stays_right_while_the_table_grows_and_shrinks(
    data: st.DataObject,
) -> None:
    """Until the target has become eight times its own."""
    table, past = snapshot([]), NO_PAST
    targets = data.draw(st.lists(st.sampled_from([4_096, 8_192, 16_384]), min_size=2, max_size=8))
    right: set[str] = set()
    for step, target in enumerate(targets):
        sizes = data.draw(st.lists(st.integers(1, 9_000), max_size=8))
        files = [data_file(size, f"w{step}-{place}") for place, size in enumerate(sizes)]
        table, past = written(table, past, files)
        plan = planned(table, past, target_file_bytes=target)
        assert right.isdisjoint(path for bin_ in paths(plan) for path in bin_)
        if plan.bins:
            table, past = carried_out(table, past, plan, delta_bins(table, plan))
            right |= {
                file.path
                for file in table.files
                if file.path.startswith(f"v{table.version}-") and 4 * file.size_bytes >= 3 * target
            }
