"""The price book: prices of compute, requests and stored bytes in one region."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.core.declaration.gone import GONE
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

# The storage class of files on a disk, and of objects whose report names no class.
DEFAULT_CLASS = "STANDARD"
# Section -> the names of its prices, which are all required.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "compute": ("usd_per_vcpu_hour",),
    "requests": ("usd_per_1000_puts", "usd_per_1000_gets", "usd_per_1000_deletes"),
}
_STORED = "usd_per_gb_month"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBook:
    """The prices of one region, in USD. `usd_per_gb_month` is by the name of the storage class."""

    region: str
    as_of: str
    usd_per_vcpu_hour: float
    usd_per_1000_puts: float
    usd_per_1000_gets: float
    usd_per_1000_deletes: float
    usd_per_gb_month: Mapping[str, float]

    @property
    def prices(self) -> Prices:
        """The prices of a table that declares no prices."""
        return Prices(
            usd_per_vcpu_hour=self.usd_per_vcpu_hour,
            usd_per_1000_puts=self.usd_per_1000_puts,
            usd_per_1000_gets=self.usd_per_1000_gets,
            region=self.region,
            as_of=self.as_of,
        )


def parse_price_book(
    packaged: Mapping[str, Any], own: Mapping[str, Any] | None = None, *, name: str = ""
) -> PriceBook:
    """The price book of the region in use. The user's `own` entries replace packaged entries.

    If the package has no prices of the user's region, prices that the user does not give are taken
    from the package's default region. `name` is the user's file, for messages.

    Raises:
        Refused: a name is unknown, or a price is missing or not a number of 0 or more.
    """
    own = {} if own is None else own
    region = str(own.get("region", packaged["region"]))
    unknown = [each for each in own if each not in ("region", "as_of", region)]
    if unknown:
        raise Refused(
            f"{name}: {unknown[0]!r} is unknown. Use as_of, region, and a table for the region"
            f" {region}, for example [{region}.requests]."
        )
    base = packaged.get(region) or packaged[str(packaged["region"])]
    prices = _merged(base, own.get(region, {}), f"{name}: {region}")
    numbers = dict[str, float]()
    for section, names in _SECTIONS.items():
        numbers |= _numbers(prices.pop(section, {}), names, f"{name}: {region}.{section}")
    stored = {
        storage_class: _numbers(table, (_STORED,), f"{name}: {region}.storage.{storage_class}")
        for storage_class, table in prices.pop("storage", {}).items()
    }
    unknown = [*prices]
    if unknown:
        raise Refused(f"{name}: {region}.{unknown[0]} is unknown. Use compute, requests, storage.")
    if DEFAULT_CLASS not in stored:
        raise Refused(f"{name}: {region}.storage.{DEFAULT_CLASS} is missing. Add its prices.")
    return PriceBook(
        region=region,
        as_of=str(own.get("as_of", packaged["as_of"])),
        usd_per_gb_month={each: table[_STORED] for each, table in stored.items()},
        **cast("dict[str, Any]", numbers),
    )


def _merged(packaged: Any, own: Any, where: str) -> dict[str, Any]:
    """The packaged table, with its entries replaced by the user's `own` entries."""
    if not isinstance(own, Mapping):
        raise Refused(f"{where} is {own!r}. Use a table.")
    merged = dict[str, Any](packaged)
    for key, value in cast("Mapping[str, Any]", own).items():
        packaged_value: Any = merged.get(key, {})
        if isinstance(value, Mapping) and isinstance(packaged_value, Mapping):
            value = _merged(packaged_value, value, f"{where}.{key}")
        merged[key] = value
    return merged


def _numbers(table: Any, names: tuple[str, ...], where: str) -> dict[str, float]:
    """The prices with these names, which a table of the book must have."""
    if not isinstance(table, Mapping):
        raise Refused(f"{where} is {table!r}. Use a table.")
    values = cast("Mapping[str, Any]", table)
    for each in values:
        if gone := GONE.get(f"prices.toml.{each}"):
            raise Refused(f"{where}.{each} is gone. {gone}")
        if each not in (*names, "source"):
            near = nearest_words(each, names) or names
            raise Refused(f"{where}.{each} is unknown. Use {' or '.join(near)}.")
    numbers = dict[str, float]()
    for name in names:
        value = values.get(name)
        if value is None:
            raise Refused(f"{where}.{name} is missing. Add it, in USD.")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise Refused(f"{where}.{name} is {value!r}. Use a number, 0 or more.")
        numbers[name] = float(value)
    return numbers
