"""What machines and requests cost."""

from dataclasses import dataclass, fields
from math import inf

from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a vCPU-hour and storage requests cost, where and when; `vcpus` are those that the driver keeps busy.

    The defaults are AWS list prices: Glue at 0.44 USD per DPU-hour of 4 vCPUs, S3 Standard per 1,000 requests.
    """

    usd_per_vcpu_hour: float = 0.11
    vcpus: float = 2
    usd_per_1000_puts: float = 0.005
    usd_per_1000_gets: float = 0.0004
    region: str = "us-east-1"
    as_of: str = "2026-11"

    def __post_init__(self) -> None:
        for price in fields(self):
            value = getattr(self, price.name)
            if price.name in ("region", "as_of"):
                if not isinstance(value, str) or not value:
                    raise Refused(f"Prices.{price.name} is {value!r}; accepted: a text that is not empty")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise Refused(f"Prices.{price.name} is {value!r}; accepted: a number, 0 or more")


DEFAULT_PRICES = Prices()
