"""The predicted cost of a compaction: seconds, vCPU-hours, bytes, requests and money."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal

from lakehouse.core.costs.compaction_speed import SECONDS_PER_OPENING, MergeWork, Rates
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.text import count_of, usd_text

# A Parquet reader requests the footer, then the columns: at least two GETs per file.
_REQUESTS_PER_OPENING = 2
# The requests of one compaction on S3 are assumed, not measured. Reading takes, for each file, a
# HEAD, a GET of the footer and a GET of the columns, and for each 8 MiB of all files one more GET.
# Comparing the rows reads the replaced files again, and reads the new files. Writing a file takes
# one PUT or, if it is large, one PUT per 64 MiB and two more requests. The commit takes a few
# requests.
_GETS_PER_FILE = 3
_BYTES_PER_GET = 8 * 1024 * 1024
_BYTES_PER_PUT = 64 * 1024 * 1024
_GETS_PER_COMMIT = 4
_PUTS_PER_COMMIT = 3
# Comparing every row takes this share of the rewrite's time. Source: docs/internals/decisions/0008,
# measured on 200 files of 20,000 rows.
_COMPARISON_SHARE = 0.3
# The number of decimal places to which each figure is rounded in JSON.
_DIGITS = {
    "seconds": 3,
    "vcpu_hours": 9,
    "usd": 9,
    "comparison_seconds": 3,
    "comparison_usd": 9,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The predicted cost of a compaction up to its commit, and of comparing every row afterwards.

    `comparison_seconds` and `comparison_usd` are the cost of the comparison, even if rows will not
    be compared. The other figures exclude the comparison, but `get_requests` and `usd` include its
    requests on S3 if every row will be compared.
    """

    seconds: float
    vcpu_hours: float
    usd: float
    source: Literal["defaults", "lake", "history"]
    bytes_read: int = 0
    bytes_written: int = 0
    get_requests: int = 0
    put_requests: int = 0
    run_count: int = 0
    comparison_seconds: float = 0.0
    comparison_usd: float = 0.0

    @property
    def basis(self) -> str:
        """The data on which the prediction is based."""
        if self.source == "history":
            return f"the table's newest {count_of(self.run_count, 'run')}"
        return "the lake's newest runs" if self.source == "lake" else "defaults"

    @property
    def sentence(self) -> str:
        """The predicted seconds and money, and their basis."""
        return (
            f"about {self.seconds:.1f} s and {usd_text(self.usd)} USD, predicted from {self.basis}"
        )

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape, for `lakehouse plan --json` and a commit's `userMetadata`."""
        document = asdict(self)
        for name, digits in _DIGITS.items():
            document[name] = round(document[name], digits)
        return document


def estimate(
    rates: Rates, work: MergeWork, *, on_s3: bool = False, compared: bool = True
) -> Estimate:
    """The predicted cost of `work`; zero if no files are removed.

    Requests are counted only if `on_s3`. They include the requests for comparing every row only if
    `compared`.
    """
    has_work = work.files_removed > 0
    warm_seconds = rates.warm_seconds(work) if has_work else 0.0
    seconds = warm_seconds + rates.cold_start_seconds if has_work else 0.0
    merged_bytes = work.merged_bytes(rates.bytes_per_file)
    bytes_written = round(merged_bytes * rates.written_share * work.live_share)
    gets = 0
    puts = 0
    comparison_gets = 0
    if has_work and on_s3:
        sizes = (work.files_removed, work.files_added, work.bytes_removed, bytes_written)
        gets, puts = requests(*sizes, compared=compared)
        comparison_gets = requests(*sizes)[0] - requests(*sizes, compared=False)[0]
    comparison_seconds = warm_seconds * _COMPARISON_SHARE
    prices = rates.prices
    return Estimate(
        seconds=seconds,
        vcpu_hours=seconds * prices.vcpus / 3600,
        usd=run_price(prices, seconds=seconds, get_requests=gets, put_requests=puts),
        source=rates.source,
        bytes_read=work.bytes_removed,
        bytes_written=bytes_written,
        get_requests=gets,
        put_requests=puts,
        run_count=rates.run_count,
        comparison_seconds=comparison_seconds,
        comparison_usd=run_price(prices, seconds=comparison_seconds, get_requests=comparison_gets),
    )


def run_price(
    prices: Prices, *, seconds: float, get_requests: int = 0, put_requests: int = 0
) -> float:
    """The price of this many seconds and requests, in USD."""
    usd_times_1000 = (
        get_requests * prices.usd_per_1000_gets + put_requests * prices.usd_per_1000_puts
    )
    return seconds * prices.vcpus / 3600 * prices.usd_per_vcpu_hour + usd_times_1000 / 1000


def usd_per_opening(prices: Prices, *, on_s3: bool) -> float:
    """The price of opening one file for a read, in USD: its time and, on S3, its requests."""
    get_requests = _REQUESTS_PER_OPENING if on_s3 else 0
    return run_price(prices, seconds=SECONDS_PER_OPENING, get_requests=get_requests)


def requests(
    files_removed: int,
    files_added: int,
    bytes_read: int,
    bytes_written: int,
    *,
    compared: bool = True,
) -> tuple[int, int]:
    """The number of GETs and PUTs of a compaction, and of comparing every row if `compared`."""
    gets = _gets_of(files_removed, bytes_read)
    if compared:
        gets += _gets_of(files_removed, bytes_read) + _gets_of(files_added, bytes_written)
    parts = ceil(bytes_written / _BYTES_PER_PUT)
    puts = files_added if parts <= files_added else parts + 2 * files_added
    return gets + _GETS_PER_COMMIT, puts + _PUTS_PER_COMMIT


def _gets_of(file_count: int, size_bytes: int) -> int:
    return file_count * _GETS_PER_FILE + ceil(size_bytes / _BYTES_PER_GET)
