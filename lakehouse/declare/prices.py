"""The prices of compute, requests and stored bytes: defaults, and the price book of one region."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.declare.knobs import AMOUNT, check_knobs, knob


@frozen
class Prices:
    """Prices of a vCPU-hour and of storage requests, and the number of vCPUs that are paid.

    The defaults are the prices of AWS Glue and S3 Standard.
    """

    usd_per_vcpu_hour: float = knob(
        0.11, "one vCPU for an hour (Glue: 0.44 per DPU-hour of 4 vCPUs)", AMOUNT
    )
    vcpus: float = knob(2, "vCPUs that the driver uses", AMOUNT)
    usd_per_1000_puts: float = knob(0.005, "PUT, COPY, POST, LIST", AMOUNT)
    usd_per_1000_gets: float = knob(0.0004, "GET, HEAD", AMOUNT)

    def __post_init__(self) -> None:
        check_knobs(self)

    def run_usd(self, *, seconds: float, get_requests: int = 0, put_requests: int = 0) -> float:
        """The price of a run of this many seconds and requests."""
        usd_times_1000 = (
            get_requests * self.usd_per_1000_gets + put_requests * self.usd_per_1000_puts
        )
        return seconds * self.vcpus / 3600 * self.usd_per_vcpu_hour + usd_times_1000 / 1000


DEFAULT_PRICES = Prices()


# The storage class of files on a disk, and of objects whose report names no class.
DEFAULT_CLASS = "STANDARD"
_DAYS_PER_MONTH = 30


@frozen
class PriceBook:
    """The prices of one region, in USD. `usd_per_gb_month` is by the name of the storage class.

    A table that declares no prices has `prices`.
    """

    region: str
    prices: Prices
    usd_per_1000_deletes: float
    usd_per_gb_month: Mapping[str, float]

    def stored_usd_per_day(self, size_bytes: int) -> float:
        """The price of storing this many bytes for a day, in the default class."""
        return size_bytes / 2**30 * self.usd_per_gb_month[DEFAULT_CLASS] / _DAYS_PER_MONTH


def requests_by_class(requests: Mapping[str, int]) -> Counter[str]:
    """The S3 requests by price class: get, put or delete. `put` includes COPY, POST and LIST."""
    counts = Counter[str]()
    for name, count in requests.items():
        if name.startswith(("Get", "Head")):
            price_class = "get"
        elif name.startswith("Delete"):
            price_class = "delete"
        else:
            price_class = "put"
        counts[price_class] += count
    return counts


def parse_price_book(
    packaged: Mapping[str, Any], own: Mapping[str, Any] | None = None, *, name: str = ""
) -> PriceBook:
    """The price book of the region in use. The user's `own` entries replace packaged entries.

    If the package has no prices of the user's region, prices that the user does not give are taken
    from the package's default region. `name` is the user's file, for messages.

    Raises:
        Refused: a name is unknown, or a price is not a number of 0 or more.
    """
    own = {} if own is None else own
    region = str(own.get("region", packaged["region"]))
    unknown = [each for each in own if each not in ("region", region)]
    if unknown:
        raise Refused(
            f"{name}: {unknown[0]!r} is unknown. Use region, and a table for the region {region}."
        )
    defaults = packaged.get(region) or packaged[str(packaged["region"])]
    given = own.get(region, {})
    if not isinstance(given, Mapping) or not given.keys() <= defaults.keys():
        raise Refused(f"{name}: {region} is {given!r}. Use a table of {', '.join(defaults)}.")
    prices = {**defaults, **cast("Mapping[str, Any]", given)}
    own_per_gb_month = prices.pop("usd_per_gb_month")
    if not isinstance(own_per_gb_month, Mapping):
        raise Refused(
            f"{name}: {region}.usd_per_gb_month is {own_per_gb_month!r}. Use a table of storage"
            " classes with their prices."
        )
    own_classes = cast("Mapping[str, Any]", own_per_gb_month)
    usd_per_gb_month = {**defaults["usd_per_gb_month"], **own_classes}
    for entry, value in (prices | usd_per_gb_month).items():
        if not AMOUNT.test(value):
            raise Refused(f"{name}: {region}: {entry} is {value!r}. Use {AMOUNT.words}.")
    usd_per_1000_deletes = prices.pop("usd_per_1000_deletes")
    return PriceBook(
        region=region,
        prices=Prices(**prices),
        usd_per_1000_deletes=usd_per_1000_deletes,
        usd_per_gb_month=usd_per_gb_month,
    )
