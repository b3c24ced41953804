"""Which hold applies to a table, and which of them stop a person."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lakehouse.base.operation import Pause
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import find_hold
from lakehouse.compact.plan.history import BreakerState, Rewrites, assess_breaker
from lakehouse.declare.policies import Compaction
from lakehouse_tests.support.example_histories import failed

HOUR = 3_600_000
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
FAILED = [failed(NOON + number) for number in range(3)]
OPEN = assess_breaker(FAILED, Rewrites(), NOON + HOUR)
HALF = assess_breaker(FAILED, Rewrites(), NOON + 7 * HOUR)
CLOSED_BREAKER = assess_breaker([], Rewrites(), NOON)


PAUSE = Pause(table="bronze/t", since_ms=NOON - HOUR, until_ms=NOON + HOUR, why="a backfill")


# The policy, the pause, the breaker, and the reason; each row has all the reasons of the rows below it, too.
EVERYTHING: dict[str, Any] = {"mode": "recommend"}
ORDER = [
    (Compaction(mode="off"), PAUSE, OPEN, Reason.OPTED_OUT, "mode off"),
    (
        Compaction(**EVERYTHING),
        PAUSE,
        OPEN,
        Reason.PAUSED,
        "paused since 2026-11-20 11:00 UTC, until 2026-11-20 13:00 UTC: a backfill",
    ),
    (Compaction(**EVERYTHING), None, OPEN, Reason.RECOMMEND_ONLY, "lakehouse compact bronze/t"),
    (Compaction(), None, OPEN, Reason.BREAKER_OPEN, "3 compactions in a row failed"),
]


@pytest.mark.parametrize(
    ("knobs", "pause", "state", "reason", "sentence"), ORDER, ids=[row[3].name for row in ORDER]
)
def test_the_first_reason_in_order_is_given(
    knobs: Compaction, pause: Pause | None, state: BreakerState, reason: Reason, sentence: str
) -> None:
    found = find_hold("bronze/t", knobs, pause=pause, breaker=state, now_ms=NOON)
    assert found is not None and found.reason is reason and sentence in found.sentence


@pytest.mark.parametrize("state", [None, HALF, CLOSED_BREAKER])
def test_a_table_without_a_hold_is_served(state: BreakerState | None) -> None:
    over = Pause(table="bronze/t", since_ms=0, until_ms=NOON)
    assert find_hold("bronze/t", Compaction(), pause=over, breaker=state, now_ms=NOON) is None
