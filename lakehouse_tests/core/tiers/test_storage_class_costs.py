"""What a file costs in a class, and after how many days a move pays."""

import tomllib
from pathlib import Path

import pytest

import lakehouse
from lakehouse.core.costs.price_book import parse_price_book
from lakehouse.core.tiers.storage_class_costs import (
    break_even_days,
    move_usd,
    stay_usd,
)

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_BOOK = Path(lakehouse.__file__).parent / "engine/costs/prices.toml"
PRICES = parse_price_book(tomllib.loads(_BOOK.read_text())).tiers


def test_a_gibibyte_for_a_month_costs_its_price_and_a_move_all_its_fees() -> None:
    assert stay_usd(PRICES, GIB, days=30) == pytest.approx(0.023)
    # Two requests and a month of the tag; a day in STANDARD; the transition; 30 days of the class.
    fees = (0.0004 + 0.005) / 1_000 + 0.001 / 1_000 + 0.023 / 30 + 0.01 / 1_000
    moved = move_usd(PRICES, "STANDARD_IA", GIB, days=30, age_days=100)
    assert moved == pytest.approx(fees + 0.0125)


def test_a_young_file_waits_until_it_may_move_and_a_short_stay_never_moves() -> None:
    waits = move_usd(PRICES, "STANDARD_IA", GIB, days=20, age_days=5)
    assert waits == pytest.approx(stay_usd(PRICES, GIB, days=20) + 0.0054 / 1_000 + 0.001 / 1_500)
    assert move_usd(PRICES, "GLACIER_IR", GIB, days=20, age_days=5) < waits


def test_an_archive_bills_its_overhead_and_a_small_file_its_minimum() -> None:
    index_usd = 0.023 * 8 * KIB / GIB * 3
    small = move_usd(PRICES, "GLACIER", 1, days=1.5, age_days=0)
    large = move_usd(PRICES, "GLACIER", 1 + MIB, days=1.5, age_days=0)
    difference = large - small
    assert difference == pytest.approx(0.0036 * MIB / GIB * 3 + stay_usd(PRICES, MIB, days=1))
    assert small > index_usd + 0.0036 * 32 * KIB / GIB * 3
    minimum = move_usd(PRICES, "GLACIER_IR", 1, days=60, age_days=0)
    assert minimum > 0.004 * 128 * KIB / GIB * 3


@pytest.mark.parametrize(
    ("storage_class", "days"),
    [
        ("STANDARD_IA", [1_645, 52, 19, 18, 18]),
        ("GLACIER_IR", [580, 53, 19, 17, 17]),
        ("GLACIER", [983, 67, 19, 16, 16]),
        ("DEEP_ARCHIVE", [1_124, 89, 14, 10, 9]),
    ],
)
def test_a_move_never_pays_at_a_week_s_retention_whatever_the_size(
    storage_class: str, days: list[int]
) -> None:
    """A removed file waits for eight days at most: the retention, and a day until the vacuum."""
    sizes = (128 * KIB, MIB, 16 * MIB, 128 * MIB, GIB)
    assert [break_even_days(PRICES, storage_class, size) for size in sizes] == days
    assert break_even_days(PRICES, storage_class, 1024 * GIB) == days[-1] > 8


def test_a_file_below_the_class_s_minimum_never_pays() -> None:
    assert break_even_days(PRICES, "STANDARD_IA", 16 * KIB) is None


@pytest.mark.parametrize("days", [8, 100])
def test_the_page_s_example_has_the_figures_of_the_arithmetic(days: int) -> None:
    page = Path(__file__).parents[3].joinpath("docs/tiers.md").read_text()
    stay = stay_usd(PRICES, GIB, days=days)
    moved = move_usd(PRICES, "GLACIER_IR", GIB, days=days, age_days=100)
    assert f"| {stay:.6f} USD | {moved:.6f} USD |" in page
    by_size = [
        f"{name} after {break_even_days(PRICES, 'GLACIER_IR', size)}"
        for name, size in (("1 GiB pays", GIB), ("1 MiB", MIB))
    ]
    assert all(each in " ".join(page.split()) for each in by_size)
