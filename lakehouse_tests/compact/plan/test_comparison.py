"""How a compaction is checked is decided and told before it runs."""

from typing import Literal

import pytest

from lakehouse.declare.compaction import Compaction
from lakehouse_tests.support.example_snapshots import plan_of, snapshot


@pytest.mark.parametrize(
    ("verify", "sentence"),
    [
        ("content", "Spark compares every row after the commit"),
        ("rows", "this process compares row counts and column statistics in the log"),
    ],
)
def test_the_plan_says_what_is_compared(verify: Literal["content", "rows"], sentence: str) -> None:
    plan = plan_of(snapshot([1, 2]), Compaction(verify=verify, min_small_files=2))
    assert plan.bins and plan.as_json()["verify"] == verify
    assert plan.verify_sentence == plan.as_json()["verify_sentence"] == sentence
