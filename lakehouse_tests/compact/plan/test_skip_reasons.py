"""Which hold applies to a table, and which of them stop a person."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lakehouse.base.operation import Pause, UpkeepOperation
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.compact.plan.decision import CompactionCandidate, TableState, find_hold
from lakehouse.declare.policies import Compaction
from lakehouse_tests.support.example_histories import failed

HOUR = 3_600_000
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
FAILED = [failed(NOON + number) for number in range(3)]


PAUSE = Pause(table="bronze/t", since_ms=NOON - HOUR, until_ms=NOON + HOUR, why="a backfill")


# The policy, the pause, the breaker, and the reason; each row has all the reasons of the rows below it, too.
EVERYTHING: dict[str, Any] = {"mode": "recommend"}
ORDER = [
    (Compaction(mode="off"), PAUSE, Reason.OPTED_OUT, "mode off"),
    (
        Compaction(**EVERYTHING),
        PAUSE,
        Reason.PAUSED,
        "paused since 2026-11-20 11:00 UTC, until 2026-11-20 13:00 UTC: a backfill",
    ),
    (Compaction(**EVERYTHING), None, Reason.RECOMMEND_ONLY, "lakehouse compact bronze/t"),
    (Compaction(), None, Reason.BREAKER_OPEN, "3 compactions in a row failed"),
]


def hold(
    knobs: Compaction, pause: Pause | None, tries: Sequence[UpkeepOperation], now_ms: int
) -> Explanation | None:
    state = TableState(table="bronze/t")
    candidate = CompactionCandidate(state=state, policy=knobs, pause=pause, compactions=tries)
    return find_hold(candidate, now_ms)


@pytest.mark.parametrize(
    ("knobs", "pause", "reason", "sentence"), ORDER, ids=[row[2].name for row in ORDER]
)
def test_the_first_reason_in_order_is_given(
    knobs: Compaction, pause: Pause | None, reason: Reason, sentence: str
) -> None:
    """The breaker is open."""
    found = hold(knobs, pause, FAILED, NOON + 3)
    assert found is not None and found.reason is reason and sentence in found.sentence


# A breaker that is half open, and one that is closed.
@pytest.mark.parametrize("tries", [FAILED, FAILED[1:], []])
def test_a_table_without_a_hold_is_served(tries: Sequence[UpkeepOperation]) -> None:
    over = Pause(table="bronze/t", since_ms=0, until_ms=NOON)
    assert hold(Compaction(), over, tries, NOON + 7 * HOUR) is None
