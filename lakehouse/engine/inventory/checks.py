"""The verdicts on a report that was loaded; no Spark."""

from lakehouse.core.inventory import stamp_ms
from lakehouse.core.inventory.checks import InventoryCheck, allowed_hours, assess_complete, assess_fresh, assess_missing, assess_plausible
from lakehouse.engine.inventory.report import Report, stamps_of
from lakehouse.engine.inventory.scan import SCAN
from lakehouse.engine.inventory.table import InventoryOutcome
from lakehouse.engine.lake import Lake


def judge(lake: Lake, outcome: InventoryOutcome, *, now_ms: int) -> tuple[InventoryCheck, ...]:
    """One verdict per name of `core.inventory.verdict.CHECKS`."""
    report = outcome.report
    allowed = allowed_hours(report.manifest.created_ms, _before_ms(lake, report), own=report.configuration == SCAN)
    return (
        assess_complete(outcome.load, outcome.row_count),
        assess_fresh(outcome.load, allowed=allowed, now_ms=now_ms),
        assess_plausible(outcome.load, outcome.before),
        assess_missing(outcome.reconciliation),
    )


def _before_ms(lake: Lake, report: Report) -> int | None:
    """When the report before this one of the same configuration began."""
    stamps = [stamp for name, stamp in stamps_of(lake.store, lake.store.bucket) if name == report.configuration and stamp < report.stamp]
    return stamp_ms(stamps[0]) if stamps else None
