"""What readers lost since the last compaction, from the commits that the log holds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.core.declaration.prices import DEFAULT_PRICES
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.scheduling.read_losses import (
    OpeningSteps,
    ReadBalance,
    lost_openings,
    opening_steps,
)
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.units import DAY_MS
from lakehouse_tests.core.example_snapshots import TARGET, data_file, plan_of, snapshot

PARTITIONED = [(("day", day),) for day in "ab"]


def commit(
    at_ms: int, added: Sequence[str] = (), removed: Sequence[str] = (), *, is_data: bool = True
) -> Commit:
    paths, operation = (
        {"added_paths": tuple(added), "removed_paths": tuple(removed)},
        "WRITE" if is_data else "OPTIMIZE",
    )
    return Commit(
        version=at_ms,
        committed_ms=at_ms,
        operation=operation,
        changed_data=is_data,
        added_bytes=1_000 * len(added),
        **paths,
    )


def steps_of(files: Sequence[DataFile | int], *commits: Commit) -> OpeningSteps | None:
    made = snapshot(files)
    return opening_steps(made, plan_of(made), Commits(table="bronze/t", commits=commits))


def small(*names: str, partition: int | None = None) -> list[DataFile]:
    return [
        data_file(1_000, name, partition=() if partition is None else PARTITIONED[partition])
        for name in names
    ]


def test_each_write_since_the_last_compaction_adds_what_it_would_save() -> None:
    kept = data_file(2_000, "kept", compacted=True)
    optimize = commit(10, ["kept"], ["old"], is_data=False)
    writes = [commit(20, ["a"]), commit(30, ["b", "c"]), commit(40, ["d"])]
    # One new file beside the compacted one is left alone; of two and more each is saved.
    assert steps_of([kept, *small("a", "b", "c", "d")], optimize, *writes) == (
        (10, 0),
        (30, 3),
        (40, 4),
    )
    assert steps_of([kept], commit(5, ["x", "y"]), optimize) == ((10, 0),)


def test_a_table_that_was_never_compacted_is_told_from_its_beginning() -> None:
    assert steps_of(small("a", "b", "c"), commit(1, ["a"]), commit(2, ["b"]), commit(3, ["c"])) == (
        (1, 0),
        (2, 1),
        (3, 2),
    )
    assert steps_of(small("a", "b", "c"), commit(3, ["c"])) == ((3, 2),)
    assert steps_of(small("a", "b")) is None


def test_files_that_lie_alone_in_their_partition_cost_no_reader_anything() -> None:
    files = [*small("day=a/1", "day=a/2", partition=0), *small("day=b/1", partition=1)]
    assert steps_of(
        files, commit(1, ["day=a/1"]), commit(2, ["day=b/1"]), commit(3, ["day=a/2"])
    ) == ((1, 0), (3, 1))


def test_what_a_writer_took_away_is_counted_while_it_was_there() -> None:
    commits = [commit(1, ["a", "b", "c"]), commit(2, ["d"], ["a", "b"])]
    assert steps_of(small("c", "d"), *commits) == ((1, 2), (2, 1))


def test_after_a_commit_that_leaves_no_earlier_file_nothing_is_owed() -> None:
    assert steps_of(small("c", "d"), commit(1, ["a", "b"]), commit(2, ["c", "d"], ["a", "b"])) == (
        (2, 1),
    )


def test_a_new_vector_for_every_file_and_a_restore_leave_the_losses_as_they_are() -> None:
    files, writes = small("a", "b", "c"), [commit(1, ["a", "b"]), commit(2, ["c"])]
    assert steps_of(files, *writes, commit(3, ["a", "b", "c"], ["a", "b", "c"])) == ((1, 1), (2, 2))
    compaction = commit(3, ["m"], ["a", "b", "c"], is_data=False)
    restored = replace(commit(4, ["a", "b", "c"], ["m"]), operation="RESTORE")
    undone = replace(restored, user_metadata=json.dumps({"restored": 2}))
    assert steps_of(files, *writes, compaction, undone) == ((1, 1), (2, 2), (3, 0), (4, 2))
    assert steps_of(files, *writes, commit(3, ["m"], ["a", "b", "c"]), restored) == ((3, 0), (4, 2))


def test_a_file_from_before_the_log_is_counted_though_it_got_a_vector_since() -> None:
    files = small("old", "older", "a")
    assert steps_of(files, commit(1, ["a"]), commit(2, ["old", "older"], ["old", "older"])) == (
        (1, 2),
    )
    assert steps_of(files, commit(1, ["a"]), commit(2, ["old", "older"], is_data=False)) == (
        (1, 2),
    )  # row ids were filled in


def test_large_files_and_changed_vectors_are_no_small_files() -> None:
    large = data_file(TARGET, "large")
    assert steps_of(
        [large, *small("a", "b")],
        commit(1, ["a", "b"]),
        commit(2, ["large"]),
        commit(3, ["a"], ["a"]),
    ) == ((1, 1),)


def test_very_many_steps_are_thinned_towards_less() -> None:
    names = [f"f{number:03}" for number in range(200)]
    steps = steps_of(small(*names), *(commit(number, [name]) for number, name in enumerate(names)))
    assert steps and (len(steps) <= 48, steps[-1]) == (True, (199, 175))
    assert all(openings <= at_ms - at_ms // 8 for at_ms, openings in steps)
    there = [f"g{number}" for number in range(20)]
    waves = [
        commit(number, there) if number % 2 else commit(number, [], there)
        for number in range(2, 200)
    ]
    thinned = steps_of(small("keep", *there), commit(1, ["keep", *there]), *waves)
    assert thinned and lost_openings(thinned, range(2, 200, 2), now_ms=200) == 0
    assert lost_openings(thinned, range(1, 200, 2), now_ms=200) <= 20 * 100


STEPS = ((0, 0), (DAY_MS, 4), (2 * DAY_MS, 10))


@pytest.mark.parametrize(
    ("read_ms", "per_day", "lost"),
    [
        ((), 0, 0),
        ((-1, 0, DAY_MS - 1), 0, 0),
        ((DAY_MS, 2 * DAY_MS - 1, 2 * DAY_MS, 9 * DAY_MS), 0, 4 + 4 + 10 + 10),
        ((), 2, 2 * (4 + 10 / 2)),
        ((DAY_MS,), 2, 4 + 2 * (4 + 10 / 2)),
    ],
)
def test_each_read_loses_the_openings_of_its_moment(
    read_ms: tuple[int, ...], per_day: float, lost: float
) -> None:
    spread = [(0, 9 * DAY_MS, per_day)]
    assert lost_openings(STEPS, read_ms, spread=spread, now_ms=DAY_MS * 5 // 2) == pytest.approx(
        lost
    )
    assert lost_openings((), read_ms, spread=spread, now_ms=DAY_MS) == 0


def test_reads_are_spread_over_their_own_time_alone() -> None:
    now_ms = 4 * DAY_MS
    assert lost_openings(STEPS, (), spread=[(-DAY_MS, DAY_MS // 2, 8.0)], now_ms=now_ms) == 0
    assert (
        lost_openings(
            STEPS,
            (),
            spread=[(DAY_MS // 2, DAY_MS * 3 // 2, 8.0), (now_ms, 9 * DAY_MS, 8.0)],
            now_ms=now_ms,
        )
        == 8 * 4 / 2
    )


@pytest.mark.parametrize(
    ("times_ms", "first_ms"),
    [([1, 5, 9], 1), ([3, 4, 99], 3), ([3, 1, 4], 3)],
)
def test_differing_clocks_of_writers_add_no_loss(times_ms: list[int], first_ms: int) -> None:
    steps = tuple((at_ms, 2) for at_ms in times_ms)
    lost = lost_openings(steps, [5], spread=[(0, 10, DAY_MS)], now_ms=10)
    assert lost == 2 * (10 - first_ms) + 2


def test_losses_and_cost_are_held_against_each_other_in_money() -> None:
    def balance(lost: float, **values: Any) -> ReadBalance:
        known = {"estimate_seconds": 0.7, "estimate_usd": 0.7 * 2 / 3600 * 0.11, **values}
        found = TableState(table="bronze/orders", lost_openings=lost, **known).balance
        assert found is not None
        return found

    on_disk = balance(700)
    assert (on_disk.texts, on_disk.is_due) == ({"lost": "0.7 s", "cost": "0.7 s"}, True)
    assert not balance(699).is_due
    free = {"estimate_usd": 0.0, "prices": replace(DEFAULT_PRICES, usd_per_vcpu_hour=0)}
    assert [balance(lost, **free).is_due for lost in (0, 699, 700)] == [False, False, True]
    on_s3 = balance(120, estimate_usd=0.0001, on_s3=True)
    assert (on_s3.texts, on_s3.is_due) == (
        {"lost": "0.1 s (0.0001 USD)", "cost": "0.7 s (0.0001 USD)"},
        True,
    )
    assert (
        TableState(
            table="bronze/orders", lost_openings=1.0, estimate_seconds=0.0, estimate_usd=0.0
        ).balance
        is None
    )
