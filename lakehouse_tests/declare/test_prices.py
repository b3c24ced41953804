"""The price book: the packaged prices are those of the defaults, and a user's file is checked."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import lakehouse.lake
from lakehouse.base.errors import Refused
from lakehouse.declare.prices import DEFAULT_PRICES, parse_price_book

PACKAGED: dict[str, Any] = tomllib.loads(
    (Path(lakehouse.lake.__file__).parent / "prices.toml").read_text()
)


def test_the_defaults_of_a_table_are_the_book_s_prices() -> None:
    assert parse_price_book(PACKAGED).prices == DEFAULT_PRICES


def test_a_class_that_the_book_lacks_has_no_price() -> None:
    book = parse_price_book(PACKAGED)
    assert book.usd_per_gb_month.get("STANDARD_IA") == 0.0125
    assert book.usd_per_gb_month.get("EXPRESS_ONEZONE") is None


def test_own_prices_replace_single_entries_and_keep_the_others() -> None:
    own = {"us-east-1": {"usd_per_gb_month": {"STANDARD": 0.02}}}
    book = parse_price_book(PACKAGED, own)
    assert book.usd_per_gb_month.get("STANDARD") == 0.02
    assert book.usd_per_gb_month.get("GLACIER") == 0.0036


def test_what_another_region_lacks_costs_as_in_the_packaged_one() -> None:
    mine = {
        "usd_per_vcpu_hour": 0.2,
        "usd_per_gb_month": {"STANDARD_IA": 0.0135},
    }
    book = parse_price_book(PACKAGED, {"region": "eu-north-1", "eu-north-1": mine}, name="own")
    assert (book.region, book.prices.usd_per_vcpu_hour) == ("eu-north-1", 0.2)
    assert book.prices.usd_per_1000_puts == 0.005
    assert book.usd_per_gb_month.get("STANDARD_IA") == 0.0135


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"eu-west-1": {}}, "own: 'eu-west-1' is unknown"),
        ({"us-east-1": 3}, "own: us-east-1 is 3. Use a table of usd_per_vcpu_hour, "),
        (
            {"us-east-1": {"usd_per_hour": 1}},
            "'usd_per_hour': 1}. Use a table of usd_per_vcpu_hour",
        ),
        ({"us-east-1": {"usd_per_vcpu_hour": -1}}, "vcpu_hour is -1. Use a number, 0 or more"),
        ({"us-east-1": {"usd_per_gb_month": 1}}, "is 1. Use a table of storage classes"),
        ({"us-east-1": {"usd_per_gb_month": {"STANDARD": {}}}}, "STANDARD is {}. Use a number"),
    ],
)
def test_a_faulty_book_is_refused_by_name(own: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        parse_price_book(PACKAGED, own, name="own")
