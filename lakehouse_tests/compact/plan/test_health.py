"""Counts are exact, and the score falls whenever anything gets worse."""

from dataclasses import replace

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.health import Health, assess_health, assess_log_debt
from lakehouse.delta.snapshot import Snapshot, Tombstone
from lakehouse_tests.support.example_snapshots import POLICY, data_file, plan_of, snapshot


def health(table: Snapshot) -> Health:
    return assess_health(table, plan_of(table))


def part(found: Health, name: str) -> float:
    return next(part.value for part in found.parts if part.name == name)


def test_the_counts_are_those_of_the_layout_and_of_its_plan() -> None:
    stones = [Tombstone(path="x", size_bytes=70), Tombstone(path="y")]
    files = [1_000, 2_000, 5_999, 6_000, data_file(9_000, rows=10, deleted=3)]
    found = health(snapshot(files, tombstones=stones, commit_count=3))
    assert (found.file_count, found.small_file_count, found.mergeable_file_count) == (5, 3, 2)
    assert (found.size_bytes, found.average_file_bytes, found.row_count) == (23_999, 4_799, 407)
    assert (found.tombstone_count, found.tombstone_bytes) == (2, 70)
    assert (found.log.commit_count, found.log.commit_bytes) == (3, 3_000)


def test_small_files_that_nothing_can_merge_are_counted_as_small_but_not_as_mergeable() -> None:
    found = health(snapshot([data_file(100, day, partition=(("day", day),)) for day in "abcdefgh"]))
    assert (found.small_file_count, found.mergeable_file_count) == (8, 0)
    assert found.score == pytest.approx(100, abs=1)


def test_rows_are_unknown_where_one_file_has_no_statistics() -> None:
    assert health(snapshot([data_file(1), data_file(2, rows=None)])).row_count is None


def test_an_empty_table_is_well() -> None:
    found = health(snapshot([], commit_count=0))
    assert (found.score, found.average_file_bytes, found.row_count) == (100.0, 0, 0)
    assert found.sentence == "health 100 of 100: 0 files (0 B), nothing to improve"


# What gets worse from one table to the next, and the part of the score that tells.
WORSENING = {
    "small files": [snapshot([100] * count) for count in (0, 2, 4, 40, 400)],
    "average size": [snapshot([10_000 // count] * count) for count in (2, 5, 10, 100)],
    "log debt": [snapshot([9_000], commit_count=count) for count in (0, 10, 100, 1_000)],
    "tombstones": [
        snapshot([9_000], tombstones=[Tombstone(path="x", size_bytes=size)])
        for size in (0, 900, 9_000, 90_000)
    ],
}


@pytest.mark.parametrize(("name", "tables"), WORSENING.items(), ids=WORSENING)
def test_the_score_falls_with_each_of_its_parts(name: str, tables: list[Snapshot]) -> None:
    found = [health(table) for table in tables]
    values = [part(each, name) for each in found]
    scores = [each.score for each in found]
    assert values == sorted(values, reverse=True) and len(set(values)) == len(values)
    assert scores == sorted(scores, reverse=True) and scores[0] - scores[-1] > 10
    assert all(0 <= value <= 1 for value in values) and all(0 <= score <= 100 for score in scores)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("small files", snapshot([100] * 4)),
        ("log debt", snapshot([9_000], commit_count=100)),
        ("tombstones", snapshot([9_000], tombstones=[Tombstone(path="x", size_bytes=9_000)])),
    ],
)
def test_a_part_is_half_at_its_limit(name: str, table: Snapshot) -> None:
    assert part(health(table), name) == 0.5


def test_files_beyond_a_run_and_files_of_a_refused_plan_lower_the_score() -> None:
    table = snapshot([100 + number for number in range(400)])
    whole = plan_of(table)
    first_run = plan_of(table, replace(POLICY, max_bytes_per_run=20_000))
    why = Reason.PLAN_REFUSED.explain(why="the feature x")
    refused = replace(whole, bins=(), files_removed=0, explanation=why)
    assert first_run.files_removed < whole.files_removed
    values = {
        part(assess_health(table, each), "small files") for each in (whole, first_run, refused)
    }
    assert values == {4 / 404}


def test_the_average_is_measured_against_what_each_partition_could_have() -> None:
    for sizes, expected in (((4_000, 5_000), 1.0), ((1_000, 2_000), 0.5)):
        days = [
            data_file(size, f"{day}{size}", partition=(("day", day),))
            for day in "ab"
            for size in sizes
        ]
        assert part(health(snapshot(days)), "average size") == expected


@pytest.mark.parametrize(
    ("commits", "interval", "ok"),
    [
        *((100, None, True), (101, None, False), (20, "2", True), (21, "2", False)),
        *((100, "nonsense", True), (100, "0", True)),
    ],
)
def test_log_debt_fails_after_ten_intervals(commits: int, interval: str | None, ok: bool) -> None:
    properties = {} if interval is None else {"delta.checkpointInterval": interval}
    log = {"commit_count": commits, "properties": properties, "checkpoint_version": 5}
    result = assess_log_debt(health(snapshot([9_000], **log)))  # type: ignore[arg-type]
    assert (result.ok, result.numbers) == (ok, {"commits": commits})
    assert "KiB) since the checkpoint of version 5" in result.sentence
