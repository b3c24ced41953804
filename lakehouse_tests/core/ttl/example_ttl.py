"""A TTL plan of one file, and its outcome."""

from lakehouse.core.costs.compaction_speed import DEFAULT_RATES
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.archive import Ttl
from lakehouse.core.declaration.prices import DEFAULT_PRICES
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.snapshot import Column
from lakehouse.core.ttl.facts import TimeBounds, TtlFacts
from lakehouse.core.ttl.outcome import TtlOutcome
from lakehouse.core.ttl.plan import plan_ttl
from lakehouse_tests.core.example_snapshots import data_file, snapshot


def example_outcome() -> TtlOutcome:
    """One file of 100 rows, all of them past their time."""
    ttl = Ttl(column="at", days=1, clock="newest_row")
    table = Table(key="bronze/t", write=Adopted(uri="/w/t"), ttl=ttl)
    files = [data_file(10, "old"), data_file(10, "new")]
    day_ms = 86_400_000
    bounds = {
        "old": TimeBounds(min_ms=day_ms, max_ms=day_ms, null_count=1),
        "new": TimeBounds(min_ms=9 * day_ms, max_ms=9 * day_ms, null_count=0, is_tight=True),
    }
    layout = snapshot(files, columns=[Column(name="at", type="timestamp")])
    facts = TtlFacts(snapshot=layout, bounds=bounds)
    plan = plan_ttl(table, ttl, facts, rates=DEFAULT_RATES, now_ms=9 * day_ms)
    commit = Commit(
        version=8,
        committed_ms=9 * day_ms,
        operation="DELETE",
        changed_data=True,
        metrics={"numDeletedRows": "99"},
    )
    return TtlOutcome(plan=plan, commits=(commit,), seconds=1.5, prices=DEFAULT_PRICES)
