"""Benefit and cost, in the same money."""

from typing import Any

import pytest

from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.scheduling.net_benefit import NetBenefit, usd_per_opening
from lakehouse.core.scheduling.triggers import TableState


def test_an_opening_costs_its_seconds_and_its_requests() -> None:
    # 1 ms on 2 vCPUs at 0.11 USD an hour, and on S3 two GETs at 0.0004 USD a thousand.
    assert usd_per_opening(DEFAULT_PRICES, on_s3=False) == pytest.approx(0.001 * 2 / 3600 * 0.11)
    assert usd_per_opening(DEFAULT_PRICES, on_s3=True) == pytest.approx(0.001 * 2 / 3600 * 0.11 + 2 * 0.0004 / 1000)
    own = Prices(usd_per_vcpu_hour=3.6, vcpus=10, usd_per_1000_gets=1)
    assert usd_per_opening(own, on_s3=True) == pytest.approx(0.001 * 10 * 0.001 + 2 * 0.001)


def test_worth_grows_with_readers_and_files_and_falls_with_cost() -> None:
    state = TableState(table="bronze/orders", reads_per_day=24, file_count=101, files_after=1, estimate_usd=0.001, on_s3=True)
    worth = state.net_benefit
    assert worth is not None
    assert worth.benefit_usd_per_day == pytest.approx(24 * 100 * usd_per_opening(DEFAULT_PRICES, on_s3=True))
    assert worth.ratio == pytest.approx(worth.benefit_usd_per_day / 0.001)


@pytest.mark.parametrize("unknown", ["reads_per_day", "file_count", "files_after", "estimate_usd"])
def test_what_is_not_known_is_not_guessed(unknown: str) -> None:
    known: dict[str, Any] = {"reads_per_day": 1.0, "file_count": 2, "files_after": 1, "estimate_usd": 1.0}
    assert TableState(table="bronze/orders", **known).net_benefit is not None
    assert TableState(table="bronze/orders", **{**known, unknown: None}).net_benefit is None


def test_nothing_to_do_is_worth_nothing() -> None:
    assert NetBenefit(benefit_usd_per_day=1.0, cost_usd=0.0).ratio == 0
