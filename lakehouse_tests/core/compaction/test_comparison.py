"""How a compaction is checked is decided, priced and told before it runs."""

from typing import Literal

import pytest

from lakehouse.core.costs.compaction_estimate import estimate
from lakehouse.core.costs.compaction_history import account_for
from lakehouse.core.costs.compaction_speed import DEFAULT_RATES, MergeWork
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse_tests.core.example_histories import compaction, past
from lakehouse_tests.core.example_snapshots import plan_of, snapshot

MB = 1_000_000


@pytest.mark.parametrize(
    ("verify", "sentence"),
    [
        ("content", "Spark compares every row after the commit, which takes about "),
        (
            "rows",
            "this process compares row counts and column statistics in the log; comparing every row ",
        ),
    ],
)
def test_the_plan_says_what_is_compared_and_what_comparing_every_row_costs(
    verify: Literal["content", "rows"], sentence: str
) -> None:
    plan = plan_of(snapshot([1, 2]), Compaction(verify=verify, min_small_files=2))
    assert plan.bins and plan.as_json()["verify"] == verify
    assert plan.verify_sentence == plan.as_json()["verify_sentence"]
    assert plan.verify_sentence.startswith(sentence)


def test_what_reads_no_data_again_asks_storage_for_none() -> None:
    every, counts = (
        estimate(
            DEFAULT_RATES, MergeWork(files_removed=10, bytes_removed=MB), on_s3=True, compared=each
        )
        for each in (True, False)
    )
    assert (every.get_requests, counts.get_requests) == (70, 35)
    assert every.usd - counts.usd == pytest.approx(35 * 0.0004 / 1000)
    assert (
        every.comparison_seconds == counts.comparison_seconds == pytest.approx(0.3 * every.seconds)
    )
    compute = every.comparison_seconds * 2 / 3600 * 0.11
    assert every.comparison_usd == pytest.approx(compute + 35 * 0.0004 / 1000)


def test_a_compaction_that_read_no_data_again_is_accounted_so() -> None:
    costs = [
        account_for(past([compaction(1, 10, MB, verify=verify)]), on_s3=True).entries[0].usd
        for verify in ("content", "rows")
    ]
    assert costs[0] is not None and costs[1] is not None and costs[0] > costs[1]
