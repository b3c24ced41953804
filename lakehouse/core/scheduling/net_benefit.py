"""What a compaction gives and what it takes, in the same money, so that tables of any size can be held against each other.

Gives: every read of the whole table opens fewer files. An opening costs seconds of the machine and requests to the storage, so

    benefit per day = reads per day * openings saved * (seconds per opening * price of a second + requests per opening * price of a request)

Takes: what the plan's estimate says. `ratio` is how many times a day the compaction pays for itself.
"""

from dataclasses import dataclass

from lakehouse.core.costs.estimate import DEFAULT_RATES, price
from lakehouse.core.declaration.prices import Prices

# An open and a footer: the same figure that a compaction's own estimate starts from.
_SECONDS_PER_OPENING = DEFAULT_RATES.seconds_per_file
# A reader of Parquet asks for the footer, then for the columns: two GETs at least.
_REQUESTS_PER_OPENING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NetBenefit:
    """Benefit per day beside the cost of getting it, both in USD."""

    benefit_usd_per_day: float
    cost_usd: float

    @property
    def ratio(self) -> float:
        """Benefit per day for each USD of cost; what costs nothing is worth nothing, since there is nothing to do."""
        return self.benefit_usd_per_day / self.cost_usd if self.cost_usd > 0 else 0.0

    @property
    def sentence(self) -> str:
        """Both, and their ratio, for a person."""
        return f"saves {self.benefit_usd_per_day:.3g} USD a day and costs {self.cost_usd:.3g} USD, ratio {self.ratio:.3g}"


def net_benefit_cells(net_benefit: NetBenefit | None) -> tuple[str, ...]:
    """A day's benefit, the cost and their ratio, as cells of a table; `-` where they are unknown."""
    if net_benefit is None:
        return ("-",) * 3
    return tuple(f"{usd:.3g}" for usd in (net_benefit.benefit_usd_per_day, net_benefit.cost_usd, net_benefit.ratio))


def seconds_per_opening(measured: float | None = None) -> float:
    """What probes `measured`, otherwise the default."""
    return _SECONDS_PER_OPENING if measured is None else measured


def usd_per_opening(prices: Prices, *, on_s3: bool, opening_seconds: float | None = None) -> float:
    """What it costs to open one file: its seconds at the price that a compaction's seconds have, and on S3 its requests."""
    return price(prices, seconds=seconds_per_opening(opening_seconds), get_requests=_REQUESTS_PER_OPENING if on_s3 else 0)
