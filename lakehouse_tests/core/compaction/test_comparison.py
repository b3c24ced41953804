"""How a compaction is checked is decided, priced and told before it runs."""

from typing import Literal

import pytest

from lakehouse.core.compaction.plan import COMPARED_BYTES
from lakehouse.core.costs.estimate import DEFAULT_RATES, estimate
from lakehouse.core.costs.ledger import account_for
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse_tests.core.example_histories import compaction, past
from lakehouse_tests.core.example_snapshots import plan_of, snapshot

HALF = COMPARED_BYTES // 2
MB = 1_000_000


@pytest.mark.parametrize(
    ("verify", "sizes", "by", "told"),
    [
        (
            "automatic",
            [HALF, HALF],
            "content",
            "every row is compared after the commit, which takes about ",
        ),
        (
            "automatic",
            [HALF, HALF + 1],
            "rows",
            "it rewrites 16 GiB, and to compare every row of more than 16 GiB (about ",
        ),
        ("content", [HALF, HALF + 1], "content", "every row is compared after the commit"),
        (
            "rows",
            [1, 2],
            "rows",
            'its declaration says verify="rows": row counts and statistics of the log are compared',
        ),
    ],
)
def test_the_plan_says_what_is_compared_and_why(
    verify: Literal["automatic", "content", "rows"], sizes: list[int], by: str, told: str
) -> None:
    policy = Compaction(
        verify=verify, target_file_bytes=2 * COMPARED_BYTES, min_small_files=2, max_bytes_per_run=0
    )
    plan = plan_of(snapshot(sizes), policy)
    assert plan.bins and (plan.verify, plan.as_json()["verify"]) == (by, by)
    assert told in plan.verify_sentence == plan.as_json()["verify_sentence"]


def test_what_reads_no_data_again_asks_storage_for_none() -> None:
    every, counts = (
        estimate(DEFAULT_RATES, files_removed=10, bytes_removed=MB, on_s3=True, compared=each)
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
