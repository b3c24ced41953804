"""Every compaction is held against its plan; what was rewritten and what was wasted is counted."""

import json
from dataclasses import replace

import pytest

from lakehouse.base.operation import Figure
from lakehouse.compact.plan.history import account_for, operation_of
from lakehouse.declare.prices import DEFAULT_PRICES
from lakehouse.delta.commits import Commit
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.support.example_histories import compaction, past, write

MB = 1_000_000


def test_predicted_beside_actual_with_the_error_of_each_and_the_mean_so_far() -> None:
    commits = [
        write(1, 2 * MB),
        compaction(2, seconds=2.0, predicted_seconds=1.0, predicted_usd=0.1),
        compaction(3, seconds=2.0, predicted_seconds=2.2),
        compaction(4, seconds=1.0, predicted_seconds=1.0),
    ]
    account = account_for(past(commits))
    errors = [entry.figures[4].error for entry in account.entries]
    assert errors == pytest.approx([0.5, 0.1, 0.0])
    assert account.mean_errors["seconds"] == pytest.approx(0.2)
    means = [account.mean_errors[name] for name in ("files_removed", "files_added", "bytes_added")]
    assert means == [0, 0, pytest.approx(0.25)]
    first = account.entries[0].compaction
    assert first.predicted is not None
    assert (first.seconds, first.predicted.seconds, first.predicted.usd) == (2.0, 1.0, 0.1)
    assert account.entries[0].usd == pytest.approx(0.11 / 900)


def test_the_mean_forgets_all_but_the_newest_ten() -> None:
    commits = [
        compaction(version, seconds=1.0, predicted_seconds=100.0 if version == 1 else 1.1)
        for version in range(1, 12)
    ]
    means = [account_for(past(commits[:count])).mean_errors["seconds"] for count in (10, 11)]
    assert means == [pytest.approx((99 + 0.9) / 10), pytest.approx(0.1)]


def test_what_nobody_predicted_or_measured_has_no_error() -> None:
    other = replace(compaction(1), user_metadata=None)
    account = account_for(past([other, compaction(2, seconds=None)]))
    found = [
        (entry.figures[0].error, entry.figures[4].error, entry.usd) for entry in account.entries
    ]
    assert found == [(None, None, None), (0.0, None, None)]
    exact = dict.fromkeys(("files_removed", "files_added", "bytes_removed"), 0.0)
    unknown = dict.fromkeys(("bytes_added", "seconds", "usd"))
    assert account.mean_errors == exact | unknown


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
            replace(write(2, MB), operation="ROW TRACKING BACKFILL", changed_data=False),
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


def test_a_compaction_has_its_plan_s_figures_and_others_have_none() -> None:
    builder = LogBuilder().create().append([("a", 100, 1), ("b", 200, 2)])
    # Version 2 is committed two minutes after the start, four seconds after its compaction began.
    plan = {
        "reason": "MERGEABLE_FILES",
        "sentence": "2 files merge into 1",
        "files_removed": 2,
        "files_added": 1,
        "bytes_removed": 300,
        "estimate": {"seconds": 3.0, "usd": 0.0001, "bytes_written": 290},
    }
    note = {"compaction": "m", "started_ms": START_MS + 2 * 60_000 - 4_000, "plan": plan}
    builder.optimize(["a", "b"], into=("c", 280, 3), user_metadata=json.dumps(note))
    builder.append([("d", 10, 1), ("e", 10, 1)]).optimize(["d", "e"], into=("f", 20, 2))
    entries = account_for(builder.facts().history).entries
    ours = operation_of("bronze/t", entries[0], DEFAULT_PRICES)
    assert (ours.reason, ours.seconds, ours.result) == ("MERGEABLE_FILES", 4.0, "succeeded")
    assert ours.figures[2:4] == (Figure("bytes_removed", 300, 300), Figure("bytes_added", 290, 280))
    assert (entries[1].compaction.predicted, entries[1].usd) == (None, None)
