"""The partitions left to other writers after a compaction lost to them, and the times at which it waits for their next commit."""

from dataclasses import replace

import pytest

from lakehouse.core.compaction.conflicts import (
    Loss,
    half_of,
    partitions_removed_from,
    seconds_to_wait,
    without_partitions,
)
from lakehouse.core.compaction.plan import plan_table
from lakehouse.core.costs.estimate import DEFAULT_RATES
from lakehouse.core.declaration.table import Append, Landing, Table
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import Column
from lakehouse.core.scheduling.circuit_breaker import CompactionTry
from lakehouse_tests.core.example_snapshots import NO_PAST, data_file, snapshot

TABLE = Table(
    key="bronze/t",
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT, at TIMESTAMP"),
    write=Append(partition_by=("at",)),
)
DAYS = ("2013-01-01", "2013-01-01 00:00:00", "2013-01-02", "2013-01-02")
LAYOUT = snapshot(
    [
        data_file(100 + number, f"{number}", partition=(("at", at),))
        for number, at in enumerate(DAYS)
    ],
    columns=(Column(name="id", type="bigint"), Column(name="at", type="timestamp")),
)


def _commit(*removed: str, changed_data: bool = True) -> Commit:
    return Commit(
        version=4,
        committed_ms=0,
        operation="DELETE",
        changed_data=changed_data,
        removed_paths=removed,
    )


def test_a_partition_is_contested_if_files_of_it_were_taken_however_it_is_spelled() -> None:
    first, second = (partitions_removed_from(LAYOUT, [_commit(path)]) for path in ("0", "1"))
    assert first == second != partitions_removed_from(LAYOUT, [_commit("2")])
    assert (
        partitions_removed_from(
            LAYOUT, [_commit("0", changed_data=False), _commit("not there then"), _commit()]
        )
        == frozenset()
    )


def test_the_rest_of_a_plan_is_priced_and_says_what_it_leaves() -> None:
    whole = plan_table(TABLE, LAYOUT, NO_PAST, now_ms=0)
    rest = without_partitions(
        whole, LAYOUT, partitions_removed_from(LAYOUT, [_commit("1")]), rates=DEFAULT_RATES
    )
    assert (whole.files_removed, rest.files_removed, rest.partitions) == (
        4,
        2,
        ((("at", "2013-01-02"),),),
    )
    assert rest.sentence.endswith("; 2 of these files are left to other writers")
    assert 0 < rest.estimate.seconds < whole.estimate.seconds and rest.estimate.get_requests == 0


def test_in_a_bucket_the_rest_is_priced_with_its_requests() -> None:
    snapshot = replace(LAYOUT, uri="s3a://lake/bronze/t")
    whole = plan_table(TABLE, snapshot, NO_PAST, now_ms=0)
    rest = without_partitions(
        whole, snapshot, partitions_removed_from(snapshot, [_commit("1")]), rates=DEFAULT_RATES
    )
    assert (
        0 < rest.estimate.get_requests < whole.estimate.get_requests
        and 0 < rest.estimate.put_requests < whole.estimate.put_requests
    )


def test_a_table_without_partitions_has_no_rest() -> None:
    flat = replace(
        LAYOUT,
        partition_columns=(),
        files=tuple(replace(file, partition=()) for file in LAYOUT.files),
    )
    whole = plan_table(TABLE, flat, NO_PAST, now_ms=0)
    assert whole.bins
    assert not without_partitions(
        whole, flat, partitions_removed_from(flat, [_commit("1")]), rates=DEFAULT_RATES
    ).bins


def test_after_a_loss_the_next_try_is_bound_to_half_of_its_bytes_and_never_to_none() -> None:
    ended = CompactionTry(ended_ms=0, result="conflict")
    losses = [
        Loss(partitions=frozenset(), planned_bytes=planned_bytes, ended=ended)
        for planned_bytes in (1000, 1)
    ]
    assert [half_of(TABLE, loss).compaction.max_bytes_per_run for loss in losses] == [500, 1]


def _waits(*commits: Commit, now_ms: int, seconds: float) -> float:
    return seconds_to_wait(
        Commits(table="bronze/t", commits=commits), now_ms=now_ms, seconds=seconds
    )


def _statement(
    second: float,
    operation: str = "MERGE",
    *,
    seconds: float = 2,
    changed_data: bool = True,
    own: bool = False,
) -> Commit:
    return Commit(
        version=int(second),
        committed_ms=int(second * 1000),
        operation=operation,
        changed_data=changed_data,
        metrics={"executionTimeMs": str(int(seconds * 1000))},
        applications={"lakehouse/consume/bronze/x/1": 1} if own else {"spark-app": 1},
    )


@pytest.mark.parametrize(
    ("now_ms", "seconds", "waits"),
    [
        pytest.param(100_500, 2, 0, id="just after a commit"),
        pytest.param(106_000, 2, 0, id="it ends in time"),
        pytest.param(106_001, 2, 20, id="it would end when the next has begun"),
        pytest.param(109_000, 1, 20, id="the next has probably begun"),
        pytest.param(100_500, 8, 0, id="it fits into no gap"),
        pytest.param(130_001, 2, 0, id="they have stopped"),
    ],
)
def test_the_next_foreign_commit_is_waited_for_only_where_that_helps(
    now_ms: int, seconds: float, waits: float
) -> None:
    every_ten_seconds = [_statement(second) for second in (70, 80, 90, 100)]
    assert _waits(*every_ten_seconds, now_ms=now_ms, seconds=seconds) == waits


def test_nothing_is_waited_for_longer_than_twenty_seconds() -> None:
    hourly = [_statement(3600 * hour, seconds=60) for hour in range(4)]
    assert _waits(*hourly, now_ms=(3 * 3600 + 3541) * 1000, seconds=10) == 20


def test_only_foreign_statements_that_read_before_they_write_are_waited_for() -> None:
    foreign = [_statement(second) for second in (10, 20, 32, 40)]
    others = [
        _statement(41, "WRITE"),
        _statement(42, "OPTIMIZE", changed_data=False),
        _statement(43, own=True),
    ]
    # A gap of 8 s after the commit at 40 s.
    assert [_waits(*foreign, *others, now_ms=now_ms, seconds=2) for now_ms in (46_000, 46_001)] == [
        0,
        20,
    ]
    assert (
        _waits(*foreign[:2], *others, now_ms=46_001, seconds=2) == _waits(now_ms=0, seconds=2) == 0
    )


def test_statements_that_overlap_leave_no_gap() -> None:
    # The gaps are none and 11 s, 5.5 s in the middle; by an overlap of 3 s it would be 4 s, and nothing that takes 5 s would fit.
    assert (
        _waits(
            *[_statement(second, seconds=5) for second in (10, 12, 28)], now_ms=31_000, seconds=5
        )
        == 20
    )
