"""Loads the price book: the packaged prices, overridden by the user's own prices."""

import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.settings import Settings
from lakehouse.declare.prices import DEFAULT_PRICES, PriceBook, parse_price_book
from lakehouse.declare.table import Table


def load_price_book(settings: Settings) -> PriceBook:
    """The packaged price book. Prices in the user's file, if there is one, override its prices.

    Raises:
        Refused: the user's file cannot be read, or is invalid.
    """
    return parse_price_book(
        _packaged_prices(), _user_prices(settings.prices), name=str(settings.prices)
    )


def with_own_prices(tables: dict[str, Table], settings: Settings) -> dict[str, Table]:
    """The tables. If the user has a price file, tables with the default prices get its prices."""
    if not settings.prices.exists():
        return tables
    # A price book has no number of vCPUs.
    prices = replace(load_price_book(settings).prices, vcpus=DEFAULT_PRICES.vcpus)
    priced = dict[str, Table]()
    for key, table in tables.items():
        has_default = table.prices == DEFAULT_PRICES
        priced[key] = replace(table, prices=prices) if has_default else table
    return priced


@cache
def _packaged_prices() -> dict[str, Any]:
    file = files("lakehouse.lake").joinpath("prices.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _user_prices(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(
            f"{path} cannot be read ({error}). Use TOML in UTF-8, or set LAKEHOUSE_PRICES to"
            " another file."
        ) from error
