"""What a file costs in a storage class, with all fees, and after how many days a move pays.

A move costs a tag, a transition, and at least `minimum_days` in the class, even if the object is
deleted sooner. For these days, S3 bills at least `minimum_bytes` plus `overhead_bytes` at the price
of the class, and `index_bytes` at the price of STANDARD (see `ClassPrices`).
Source: Amazon S3 pricing, notes on storage classes; Amazon S3 user guide, "Understanding and
managing Amazon S3 storage classes".
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

_GB = 1024**3
_DAYS_PER_MONTH = 30
# S3 applies the rules of a lifecycle configuration once a day.
_RULE_DAYS = 1
# Source: Amazon S3 user guide, "Transitioning objects": only objects that are 30 days old may move
# into STANDARD_IA.
_MINIMUM_AGE_DAYS = {"STANDARD_IA": 30}
# A move that does not pay within this time counts as one that never pays.
_LONGEST_DAYS = 3_650


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrices:
    """The prices and the minimums of a storage class.

    For each object in an archive class, S3 also bills `overhead_bytes` in the class, and
    `index_bytes` in STANDARD.
    """

    name: str
    usd_per_gb_month: float
    usd_per_1000_transitions: float = 0.0
    usd_per_gb_retrieved: float = 0.0
    minimum_days: int = 0
    minimum_bytes: int = 0
    overhead_bytes: int = 0
    index_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPrices:
    """The prices that a move depends on. `classes` are the classes into which objects may move."""

    standard_usd_per_gb_month: float
    usd_per_1000_gets: float
    usd_per_1000_puts: float
    usd_per_1000_tag_months: float
    classes: Mapping[str, ClassPrices]


def stay_usd(prices: TierPrices, size_bytes: int, *, days: float) -> float:
    """The cost of an object that stays in STANDARD for some days."""
    return _storage_usd(prices.standard_usd_per_gb_month, size_bytes, days)


def move_usd(
    prices: TierPrices, storage_class: str, size_bytes: int, *, days: float, age_days: float
) -> float:
    """The cost of an object for some days if it is tagged now and moves as soon as S3 allows it.

    `age_days` is the time since the object was written.
    """
    into = prices.classes[storage_class]
    # To set a tag, the object's tags are read and then written.
    requests_usd = (prices.usd_per_1000_gets + prices.usd_per_1000_puts) / 1_000
    tag_usd = prices.usd_per_1000_tag_months / 1_000 * days / _DAYS_PER_MONTH
    wait_days = max(_RULE_DAYS, _MINIMUM_AGE_DAYS.get(storage_class, 0) - age_days)
    before_usd = stay_usd(prices, size_bytes, days=min(days, wait_days))
    if days <= wait_days:
        return requests_usd + tag_usd + before_usd
    billed_days = max(days - wait_days, into.minimum_days)
    billed_bytes = max(size_bytes, into.minimum_bytes) + into.overhead_bytes
    storage_usd = _storage_usd(into.usd_per_gb_month, billed_bytes, billed_days)
    index_usd = stay_usd(prices, into.index_bytes, days=billed_days)
    transition_usd = into.usd_per_1000_transitions / 1_000
    return requests_usd + tag_usd + before_usd + transition_usd + storage_usd + index_usd


def break_even_days(prices: TierPrices, storage_class: str, size_bytes: int) -> int | None:
    """The fewest whole days after which a move of an object is cheaper; `None` if it never is.

    The object is assumed to be old enough for a move.
    """

    def pays(days: int) -> bool:
        moved = move_usd(prices, storage_class, size_bytes, days=days, age_days=_LONGEST_DAYS)
        return moved < stay_usd(prices, size_bytes, days=days)

    # Once a move pays, it also pays after more days, so the days can be bisected.
    days = bisect_left(range(_LONGEST_DAYS + 1), True, key=pays)
    return days if days <= _LONGEST_DAYS else None


def _storage_usd(usd_per_gb_month: float, size_bytes: float, days: float) -> float:
    return usd_per_gb_month * size_bytes / _GB * days / _DAYS_PER_MONTH
