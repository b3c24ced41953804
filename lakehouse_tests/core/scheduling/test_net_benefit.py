"""Benefit and cost, in the same money."""

import pytest

from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.scheduling.net_benefit import NetBenefit, assess_net_benefit, usd_per_opening


def test_an_opening_costs_its_seconds_and_its_requests() -> None:
    # 1 ms on 2 vCPUs at 0.11 USD an hour, and on S3 two GETs at 0.0004 USD a thousand.
    assert usd_per_opening(DEFAULT_PRICES, on_s3=False) == pytest.approx(0.001 * 2 / 3600 * 0.11)
    assert usd_per_opening(DEFAULT_PRICES, on_s3=True) == pytest.approx(0.001 * 2 / 3600 * 0.11 + 2 * 0.0004 / 1000)
    own = Prices(usd_per_vcpu_hour=3.6, vcpus=10, usd_per_1000_gets=1)
    assert usd_per_opening(own, on_s3=True) == pytest.approx(0.001 * 10 * 0.001 + 2 * 0.001)


def test_worth_grows_with_readers_and_files_and_falls_with_cost() -> None:
    worth = assess_net_benefit(reads_per_day=24, openings_saved=100, cost_usd=0.001, prices=DEFAULT_PRICES, on_s3=True)
    assert worth is not None
    assert worth.benefit_usd_per_day == pytest.approx(24 * 100 * usd_per_opening(DEFAULT_PRICES, on_s3=True))
    assert worth.ratio == pytest.approx(worth.benefit_usd_per_day / 0.001)


@pytest.mark.parametrize("unknown", ["reads_per_day", "openings_saved", "cost_usd"])
def test_what_is_not_known_is_not_guessed(unknown: str) -> None:
    known: dict[str, float | None] = {"reads_per_day": 1.0, "openings_saved": 1, "cost_usd": 1.0}
    assert assess_net_benefit(prices=DEFAULT_PRICES, **{**known, unknown: None}) is None  # type: ignore[arg-type]


def test_nothing_to_do_is_worth_nothing() -> None:
    assert NetBenefit(benefit_usd_per_day=1.0, cost_usd=0.0).ratio == 0
