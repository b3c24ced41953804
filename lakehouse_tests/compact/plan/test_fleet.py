"""What a fleet's facts mean for the decision, whoever read them."""

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.decision import RunState, TableState
from lakehouse.compact.plan.fleet import Bounds, Fleet, FleetTable, decide_fleet
from lakehouse.compact.plan.health import Readers
from lakehouse.declare.compaction import Compaction
from lakehouse.declare.journal_records import CompactionTry, Pause
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Append

NOW = 1_700_000_000_000
TABLE = Table(
    key="bronze/t",
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(min_small_files=4, cooldown_minutes=2),
)


def due(**times_ms: int) -> TableState:
    return TableState(table=TABLE.key, version=7, mergeable_file_count=9, **times_ms)


def decide(known: FleetTable) -> Fleet:
    readers = {TABLE.key: Readers(reads_per_day=0)}
    return decide_fleet([known], readers, RunState(), bounds=Bounds(), now_ms=NOW)


def test_a_recent_compaction_a_pause_and_failures_hold_a_table() -> None:
    failed = tuple(CompactionTry(ended_ms=NOW - number, result="failed") for number in range(3))
    pause = Pause(table=TABLE.key, since_ms=0)
    risk = Reason.COMMITS_NOT_CONDITIONAL.explain(bucket="b")
    for known, reason in (
        (FleetTable(table=TABLE, state=due(last_compaction_ms=NOW - 9)), Reason.COOLING_DOWN),
        (FleetTable(table=TABLE, state=due(), tries=failed), Reason.BREAKER_OPEN),
        (FleetTable(table=TABLE, state=due(), tries=failed, pause=pause), Reason.PAUSED),
        (
            FleetTable(table=TABLE, state=due(), pause=pause, hold=risk),
            Reason.COMMITS_NOT_CONDITIONAL,
        ),
    ):
        [decision] = decide(known).decisions
        assert (decision.reason, decision.request) == (reason, False)
