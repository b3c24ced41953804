"""What a fleet's facts mean for the decision, whoever read them."""

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    Decision,
    RunState,
    TableState,
    decide_fleet,
)
from lakehouse.compact.plan.health import Readers
from lakehouse.declare.compaction import Compaction
from lakehouse.declare.upkeep_records import Pause
from lakehouse_tests.support.example_histories import failed

NOW = 1_700_000_000_000
POLICY = Compaction(min_small_files=4, cooldown_minutes=2)
KEY = "bronze/t"


def due(**times_ms: int) -> TableState:
    return TableState(table=KEY, version=7, mergeable_file_count=9, **times_ms)


def decide(known: CompactionCandidate) -> Decision:
    readers = {KEY: Readers(reads_per_day=0)}
    [decision] = decide_fleet([known], RunState(), bounds=Bounds(), now_ms=NOW, readers=readers)
    return decision


def test_a_recent_compaction_a_pause_and_failures_hold_a_table() -> None:
    failures = tuple(failed(NOW - number) for number in range(3))
    pause = Pause(table=KEY, since_ms=0)
    risk = Reason.COMMITS_NOT_CONDITIONAL.explain(bucket="b")
    for known, reason in (
        (
            CompactionCandidate(policy=POLICY, state=due(last_compaction_ms=NOW - 9)),
            Reason.COOLING_DOWN,
        ),
        (CompactionCandidate(policy=POLICY, state=due(), failures=failures), Reason.BREAKER_OPEN),
        (
            CompactionCandidate(policy=POLICY, state=due(), failures=failures, pause=pause),
            Reason.PAUSED,
        ),
        (
            CompactionCandidate(policy=POLICY, state=due(), pause=pause, hold=risk),
            Reason.COMMITS_NOT_CONDITIONAL,
        ),
    ):
        decision = decide(known)
        assert (decision.reason, decision.request) == (reason, False)
