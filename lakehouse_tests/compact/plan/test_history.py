"""Every compaction is held against its plan; what was rewritten and what was wasted is counted."""

import pytest

from lakehouse.compact.plan.history import account_for
from lakehouse.declare.journal_records import CompactionTry
from lakehouse.delta.commits import Commit
from lakehouse_tests.support.example_histories import compaction, past, write

MB = 1_000_000


def thrown(seconds: float, bytes_rewritten: int) -> CompactionTry:
    """A run that came to nothing."""
    return CompactionTry(
        ended_ms=0, result="failed", seconds=seconds, bytes_rewritten=bytes_rewritten
    )


def test_predicted_beside_actual_with_the_error_of_each_and_the_mean_so_far() -> None:
    commits = [
        write(1, 2 * MB),
        compaction(2, seconds=2.0, predicted_seconds=1.0, predicted_usd=0.1),
    ]
    commits += [
        compaction(3, seconds=2.0, predicted_seconds=2.2),
        compaction(4, seconds=1.0, predicted_seconds=1.0),
    ]
    account = account_for(past(commits))
    assert [entry.errors["seconds"] for entry in account.entries] == pytest.approx([0.5, 0.1, 0.0])
    assert account.mean_errors["seconds"] == pytest.approx(0.2)
    assert (account.mean_errors["files"], account.mean_errors["bytes"]) == (0, pytest.approx(0.25))
    first = account.entries[0].compaction
    assert first.predicted is not None
    assert (first.seconds, first.predicted.seconds, first.predicted.usd) == (2.0, 1.0, 0.1)
    assert account.entries[0].usd == pytest.approx(0.11 / 900)


@pytest.mark.parametrize(
    ("count", "end"), [(99, "B"), (100, "B; older runs are no longer recorded")]
)
def test_the_sum_of_what_was_wasted_says_where_it_ends(count: int, end: str) -> None:
    account = account_for(past([]), [thrown(1.0, 5)] * count)
    assert account.sentences[-1] == f"wasted: {count} runs, {count}.0 s, {5 * count} {end}"


def test_the_mean_forgets_all_but_the_newest_ten() -> None:
    commits = [
        compaction(version, seconds=1.0, predicted_seconds=100.0 if version == 1 else 1.1)
        for version in range(1, 12)
    ]
    means = [account_for(past(commits[:count])).mean_errors["seconds"] for count in (10, 11)]
    assert means == [pytest.approx((99 + 0.9) / 10), pytest.approx(0.1)]


def test_what_nobody_predicted_or_measured_has_no_error() -> None:
    other = Commit(
        version=1,
        committed_ms=1,
        operation="OPTIMIZE",
        changed_data=False,
        removed_paths=("a",),
        added_paths=("b",),
    )
    account = account_for(past([other, compaction(2, seconds=None)]))
    found = [
        (entry.errors["files"], entry.errors["seconds"], entry.usd) for entry in account.entries
    ]
    assert found == [(None, None, None), (0.0, None, None)]
    assert account.mean_errors == {"files": 0.0, "bytes": None, "seconds": None}


def test_a_run_of_several_commits_is_one_compaction() -> None:
    several = [
        compaction(1, seconds=1.0, mark="one"),
        compaction(2, seconds=3600 + 1.0, mark="one"),
    ]
    [entry] = account_for(past(several)).entries
    assert (
        entry.compaction.first_version,
        entry.compaction.version,
        entry.compaction.files_removed,
    ) == (1, 2, 20)
    assert entry.compaction.seconds == 3601


def test_a_clock_that_is_ahead_gives_no_seconds() -> None:
    assert account_for(past([compaction(1, seconds=-5.0)])).entries[0].compaction.seconds is None


AMPLIFICATION = {
    "one rewrite of half": (
        [write(1, 10 * MB), compaction(2, size_bytes=5 * MB, written_share=1.0)],
        0.5,
    ),
    "the same bytes again and again": (
        [write(1, MB), *(compaction(v, size_bytes=MB, written_share=1.0) for v in (2, 3, 4))],
        3.0,
    ),
    "a backfill rewrites nothing": (
        [
            write(1, MB),
            Commit(
                version=2,
                committed_ms=1,
                operation="ROW TRACKING BACKFILL",
                changed_data=False,
                added_bytes=MB,
            ),
        ],
        0.0,
    ),
    "the writes are no longer in the log": ([compaction(1)], None),
}


@pytest.mark.parametrize(("commits", "ratio"), AMPLIFICATION.values(), ids=AMPLIFICATION)
def test_bytes_rewritten_per_byte_ingested(commits: list[Commit], ratio: float | None) -> None:
    account = account_for(past(commits))
    assert account.write_amplification == ratio
    assert account.as_json()["write_amplification"] == ratio


def test_wasted_work_is_counted() -> None:
    account = account_for(past([write(1, MB)]), [thrown(1.5, 100), thrown(2.0, 50)])
    assert (account.wasted_runs, account.wasted_seconds, account.wasted_bytes) == (2, 3.5, 150)
    assert account.sentences == (
        "write amplification 0.00: 0 B rewritten for 977 KiB ingested",
        "wasted: 2 runs, 3.5 s, 150 B",
    )
