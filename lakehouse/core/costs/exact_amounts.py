"""Exact decimals for money and quantities, and the days and months that these refer to."""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

# The number of decimal places. Bills have up to 18; a Spark decimal has at most 38 digits in total.
DIGITS = 18
EXACT = Context(prec=60)
_GB = 1024**3


def gb_months(size_bytes: int, day: date) -> Decimal:
    """The GB-months of bytes that were stored for one day: the day's share of its month.

    Source: AWS, S3 pricing: GB-months are billed by the hour.
    """
    days = monthrange(day.year, day.month)[1]
    return rounded(EXACT.divide(Decimal(size_bytes), Decimal(_GB * days)))


def decimal_of(number: float) -> Decimal:
    """The number as a decimal, with the digits that its `repr` shows."""
    return Decimal(repr(number))


def rounded(value: Decimal) -> Decimal:
    """The value with `DIGITS` decimal places, which is what the cost tables store."""
    return value.quantize(Decimal(1).scaleb(-DIGITS), context=EXACT)


def day_of(ms: int) -> date:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()


def month_start(now_ms: int) -> date:
    """The first day that sums by month and by week need.

    This is the first of the month or, if that is less than seven days ago, the day seven days ago.
    """
    today = day_of(now_ms)
    return min(today.replace(day=1), today - timedelta(days=7))
