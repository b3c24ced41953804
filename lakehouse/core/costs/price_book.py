"""The price book: prices of compute, requests and stored bytes in one region, with sources."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from lakehouse.core.declaration.gone import GONE
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

# The storage class of files on a disk, and of objects whose report names no class.
DEFAULT_CLASS = "STANDARD"
_REQUESTS = (
    "usd_per_1000_puts",
    "usd_per_1000_gets",
    "usd_per_1000_deletes",
)
# Section -> the names of its prices, which are all required.
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "compute": ("usd_per_vcpu_hour",),
    "requests": _REQUESTS,
}
_WHOLE_NUMBERS = ("minimum_days", "minimum_bytes", "overhead_bytes", "index_bytes")


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


_CLASS_PRICES = tuple(each.name for each in fields(ClassPrices) if each.name != "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBook:
    """The prices of one region, in USD.

    `classes` maps the names of S3 storage classes to their prices. `sources` maps the sections
    `compute` and `requests`, and each storage class, to the source of its prices. If prices are
    taken from another region, the source names this region.
    """

    region: str
    as_of: str
    usd_per_vcpu_hour: float
    usd_per_1000_puts: float
    usd_per_1000_gets: float
    usd_per_1000_deletes: float
    classes: Mapping[str, ClassPrices]
    sources: Mapping[str, str]

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

    def usd_per_gb_month(self, storage_class: str) -> float | None:
        """The price of a storage class; `None` if the book does not have it."""
        prices = self.classes.get(storage_class)
        return None if prices is None else prices.usd_per_gb_month


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
    packaged_region = str(packaged["region"])
    own_prices = own.get(region, {})
    base = packaged.get(region) or _borrowed(packaged[packaged_region], own_prices, packaged_region)
    prices = _merged(base, own_prices, f"{name}: {region}")
    numbers = dict[str, float]()
    sources = dict[str, str]()
    for section, names in _SECTIONS.items():
        where = f"{name}: {region}.{section}"
        table = _checked(prices.pop(section, {}), names, where)
        numbers |= {each: _number(table, each, where) for each in names}
        sources[section] = str(table.get("source", ""))
    classes = dict[str, ClassPrices]()
    for storage_class, table in prices.pop("storage", {}).items():
        where = f"{name}: {region}.storage.{storage_class}"
        classes[storage_class] = _class_prices(storage_class, table, where)
        sources[storage_class] = str(table.get("source", ""))
    unknown = [*prices]
    if unknown:
        raise Refused(f"{name}: {region}.{unknown[0]} is unknown. Use compute, requests, storage.")
    if DEFAULT_CLASS not in classes:
        raise Refused(f"{name}: {region}.storage.{DEFAULT_CLASS} is missing. Add its prices.")
    return PriceBook(
        region=region,
        as_of=str(own.get("as_of", packaged["as_of"])),
        classes=classes,
        sources=sources,
        **cast("dict[str, Any]", numbers),
    )


def _borrowed(prices: Mapping[str, Any], own: Any, region: str) -> dict[str, Any]:
    """The `prices` of `region`, to complete the user's `own` prices of another region.

    Each `source` says that its prices are for `region`, unless `own` replaces all of them.
    """
    own_prices = cast("Mapping[str, Any]", own if isinstance(own, Mapping) else {})
    missing = prices.keys() - own_prices.keys() - {"source"}
    borrowed = dict[str, Any]()
    for key, value in prices.items():
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            borrowed[key] = _borrowed(table, own_prices.get(key), region)
        elif key != "source":
            borrowed[key] = value
        elif missing:
            borrowed[key] = f"prices of {region}: {value}"
    return borrowed


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


def _class_prices(name: str, table: Any, where: str) -> ClassPrices:
    values = _checked(table, _CLASS_PRICES, where)
    numbers = {each: _number(values, each, where) for each in values if each != "source"}
    if "usd_per_gb_month" not in numbers:
        raise Refused(f"{where}.usd_per_gb_month is missing. Add the price of a GB-month.")
    whole = {each: int(number) for each, number in numbers.items() if each in _WHOLE_NUMBERS}
    return ClassPrices(name=name, **cast("dict[str, Any]", numbers | whole))


def _checked(table: Any, names: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise Refused(f"{where} is {table!r}. Use a table.")
    values = cast("Mapping[str, Any]", table)
    for each in values:
        if gone := GONE.get(f"prices.toml.{each}"):
            raise Refused(f"{where}.{each} is gone. {gone}")
        if each not in (*names, "source"):
            near = nearest_words(each, names) or names
            raise Refused(f"{where}.{each} is unknown. Use {' or '.join(near)}.")
    return values


def _number(table: Mapping[str, Any], name: str, where: str) -> float:
    value = table.get(name)
    if value is None:
        raise Refused(f"{where}.{name} is missing. Add it, in USD.")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Refused(f"{where}.{name} is {value!r}. Use a number, 0 or more.")
    return float(value)
