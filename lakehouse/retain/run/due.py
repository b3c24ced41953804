"""Plans the archive run or the TTL run that a table declares, for `lakehouse plan`."""

from lakehouse.base.operation import NetBenefit, Operation
from lakehouse.declare.prices import PriceBook
from lakehouse.declare.table import Table
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.retain.plan.archive import bytes_of
from lakehouse.retain.run import archive, ttl


def operation(lake: Lake, table: Table, facts: TableFacts, book: PriceBook) -> Operation:
    """What the run would do now. Its benefit is the storage of the files that expire.

    Raises as the plan of the run.
    """
    if table.archive is None:
        name = "ttl"
        plan = ttl.plan_at(lake, table, facts.snapshot)
        expired_bytes = plan.expired_bytes
        size_bytes = expired_bytes + plan.straddling_bytes
    else:
        name = "archive"
        plan = archive.plan(lake, table, facts=facts)
        assert plan is not None
        expired_bytes = bytes_of(plan.expiring)
        size_bytes = expired_bytes + bytes_of(plan.leaving)
    saved_usd_per_day = book.stored_usd_per_day(expired_bytes)
    return Operation(
        operation=name,
        table=table.key,
        reason=plan.reason.name,
        sentence=plan.sentence,
        is_due=not plan.is_idle,
        size_bytes=size_bytes,
        net_benefit=NetBenefit(benefit_usd_per_day=saved_usd_per_day, cost_usd=plan.usd),
    )
