"""How old an inventory report may be."""

from lakehouse.core.units import HOUR_MS

# The inventory runs once a day. Two more hours are for the listing, the queue and the load.
MAX_REPORT_AGE_HOURS = 26.0
# Source: Amazon S3 user guide, "Amazon S3 Inventory": reports are daily or weekly. One daily report
# was complete only 23 hours after its listing began.
_AWS_DELIVERY_HOURS = 26.0
_DAY_HOURS, _WEEK_HOURS = 24.0, 168.0


def allowed_hours(created_ms: int, before_ms: int | None, *, own: bool) -> float:
    """The age in hours up to which a report is fresh.

    For one of our own scans (`own`), this is `MAX_REPORT_AGE_HOURS`. For a report from AWS, it is
    the time since the report before (at least a day, at most a week), plus the time of delivery.
    """
    if own:
        return MAX_REPORT_AGE_HOURS
    apart = _DAY_HOURS if before_ms is None else (created_ms - before_ms) / HOUR_MS
    return min(max(apart, _DAY_HOURS), _WEEK_HOURS) + _AWS_DELIVERY_HOURS
