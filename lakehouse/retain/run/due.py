"""Plans the archive run or the TTL run that a table declares, for `lakehouse plan`."""

from lakehouse.base.operation import NetBenefit, Operation
from lakehouse.declare.prices import PriceBook
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.retain.run import archive, ttl


def operation(lake: Lake, table: Table, facts: TableFacts, book: PriceBook) -> Operation:
    """What the run would do now. Its benefit is the storage of the files that expire.

    Raises as the plan of the run.
    """
    is_archive = table.archive is not None
    plan = archive.plan(lake, table, facts) if is_archive else ttl.plan(lake, table, facts)
    assert plan is not None
    saved_usd_per_day = book.stored_usd_per_day(plan.expired_bytes)
    return Operation(
        operation="archive" if is_archive else "ttl",
        table=table.key,
        reason=plan.reason.name,
        sentence=plan.sentence,
        is_due=not plan.is_idle,
        size_bytes=plan.size_bytes,
        net_benefit=NetBenefit(benefit_usd_per_day=saved_usd_per_day, cost_usd=plan.usd),
    )
