"""Predicts the cost of a compaction: seconds, vCPU-hours, bytes, requests and money.

The seconds of a compaction are a fixed time, plus a time per file added, per file removed and per
byte removed. The default rates were measured on two cores. All four are multiplied by one factor:
the median, over the table's newest five compactions, of the actual seconds per expected second. A
server that has just started is several times slower, so older runs mislead. Without such a
compaction, the median of the lake's newest five compactions is taken.

For the bytes added, a fixed size (footer, pages, column statistics) is subtracted from the bytes
removed, once for each file by which the number of files falls. The rest is multiplied by a share:
the median of how much of it the table's newest ten compactions wrote.

The comparison of every row after the commit (`verify="content"`) is not included.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import ceil
from statistics import median
from typing import Any, Literal

from lakehouse.base.frozen import frozen
from lakehouse.base.text import count_of, usd_text
from lakehouse.declare.prices import DEFAULT_PRICES, Prices
from lakehouse.delta.columns import struct_types
from lakehouse.delta.commits import Commits, LoggedCompaction
from lakehouse.delta.snapshot import Snapshot

# A Parquet reader requests the footer, then the columns: at least two GETs per file.
_REQUESTS_PER_OPENING = 2
# The requests of one compaction on S3 are assumed, not measured. Reading takes, for each file, a
# HEAD, a GET of the footer and a GET of the columns, and for each 8 MiB of all files one more GET.
# Writing a file takes one PUT or, if it is large, one PUT per 64 MiB and two more requests. The
# commit takes a few requests.
_GETS_PER_FILE = 3
_BYTES_PER_GET = 8 * 1024 * 1024
_BYTES_PER_PUT = 64 * 1024 * 1024
_GETS_PER_COMMIT = 4
_PUTS_PER_COMMIT = 3
# The size of a Parquet file with few rows, and the size that each column adds. Measured on files of
# 1 to 14 columns that Spark and deltalake wrote: each merged file saved 430 to 4,600 bytes.
_BYTES_PER_FILE = 100
_BYTES_PER_COLUMN = 325
# Older runs no longer say how fast this machine is now.
RUNS_TIMED = 5
# Older runs no longer say how well this table's files compress.
_RUNS_SIZED = 10


@frozen
class MergeWork:
    """The work of a compaction: files and bytes removed, files added.

    `live_share` is the share of the bytes whose rows are not deleted.
    """

    files_removed: int
    bytes_removed: int
    files_added: int = 1
    live_share: float = 1.0


# Planned work, or the work of a compaction in a table's log.
Work = MergeWork | LoggedCompaction


def merged_bytes(work: Work, bytes_per_file: float) -> float:
    """The bytes added: the bytes removed, less `bytes_per_file` for every file fewer.

    An output is never smaller than the mean input.
    """
    if work.files_removed <= work.files_added:
        return work.bytes_removed
    saved = bytes_per_file * (work.files_removed - work.files_added)
    least = work.bytes_removed * work.files_added / work.files_removed
    return max(work.bytes_removed - saved, least)


@frozen
class Rates:
    """Rates that predict the seconds of a compaction, and the bytes that it adds.

    - `factor`: multiplies the default rates. The defaults are Spark's for planning and the commit,
      the job of an added file, opening a removed file and reading its footer, and rewriting a byte.
    - `bytes_per_file`: the fixed size of a file, whatever its content.
    - `written_share`: the share of `merged_bytes` that is written.
    - `run_count`: the number of the table's compactions on which the factor is based.
    """

    seconds_fixed: float = 0.5
    seconds_per_file_added: float = 0.03
    seconds_per_file: float = 0.001
    seconds_per_byte: float = 1 / 100e6
    factor: float = 1.0
    bytes_per_file: float = 0.0
    written_share: float = 1.0
    run_count: int = 0
    source: Literal["defaults", "lake", "history"] = "defaults"
    prices: Prices = DEFAULT_PRICES

    def seconds_of(self, work: Work) -> float:
        """The predicted seconds up to the commit."""
        return self.factor * (
            self.seconds_fixed
            + self.seconds_per_file_added * work.files_added
            + self.seconds_per_file * work.files_removed
            + self.seconds_per_byte * work.bytes_removed
        )


DEFAULT_RATES = Rates()
# Measured for deltalake 1.6.6 on two cores: no session, no jobs.
_DELTALAKE_RATES = replace(
    DEFAULT_RATES, seconds_fixed=0.05, seconds_per_file_added=0.005, seconds_per_file=0.0002
)


def fit_rates(
    history: Commits,
    snapshot: Snapshot,
    *,
    prices: Prices = DEFAULT_PRICES,
    engine: str = "spark",
    lake_factor: float | None = None,
) -> Rates:
    """The rates by the engine's compactions in `history`, or else by the lake's, or the defaults.

    `lake_factor` is the median of `speed_factors` over all tables; `None` if it is unknown.
    """
    logged = [run for run in history.compactions() if run.engine == engine]
    # Values of partition columns are only in the log.
    columns = [each for each in snapshot.columns if each.name not in snapshot.partition_columns]
    values = sum(_value_count(column.type) for column in columns)
    bytes_per_file = _BYTES_PER_FILE + _BYTES_PER_COLUMN * values if values else 0.0
    runs = [run for run in logged if run.bytes_removed][-_RUNS_SIZED:]
    shares = [run.bytes_added / merged_bytes(run, bytes_per_file) for run in runs]
    rates = replace(
        _defaults_of(engine),
        bytes_per_file=bytes_per_file,
        written_share=median(shares) if shares else 1.0,
        prices=prices,
    )
    factors = speed_factors(logged, engine)
    if factors:
        return replace(rates, factor=median(factors), run_count=len(factors), source="history")
    if lake_factor is not None:
        return replace(rates, factor=lake_factor, source="lake")
    return rates


def speed_factors(logged: Sequence[LoggedCompaction], engine: str) -> list[float]:
    """The actual seconds per expected second of the newest five compactions, oldest first."""
    defaults = _defaults_of(engine)
    timed = [run for run in logged if run.seconds is not None and run.files_removed]
    return [(run.seconds or 0.0) / defaults.seconds_of(run) for run in timed[-RUNS_TIMED:]]


def _defaults_of(engine: str) -> Rates:
    return _DELTALAKE_RATES if engine == "deltalake" else DEFAULT_RATES


def _value_count(type_: str) -> int:
    """The number of values per row in a column: one per struct field, or one for other types."""
    return sum(map(_value_count, struct_types(type_).values())) or 1


@frozen
class Estimate:
    """The predicted cost of a compaction up to its commit."""

    seconds: float
    vcpu_hours: float
    usd: float
    source: Literal["defaults", "lake", "history"]
    bytes_read: int
    bytes_written: int
    get_requests: int
    put_requests: int
    run_count: int

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
        """The documented JSON shape, also in a commit's `userMetadata`."""
        rounded = {
            "seconds": round(self.seconds, 3),
            "vcpu_hours": round(self.vcpu_hours, 9),
            "usd": round(self.usd, 9),
        }
        return asdict(self) | rounded


def estimate(rates: Rates, work: MergeWork, *, on_s3: bool = False) -> Estimate:
    """The predicted cost of `work`; zero if no files are removed. Requests count only on S3."""
    has_work = work.files_removed > 0
    seconds = rates.seconds_of(work) if has_work else 0.0
    written_share = rates.written_share * work.live_share
    bytes_written = round(merged_bytes(work, rates.bytes_per_file) * written_share)
    gets, puts = requests(work, bytes_written) if has_work and on_s3 else (0, 0)
    prices = rates.prices
    return Estimate(
        seconds=seconds,
        vcpu_hours=seconds * prices.vcpus / 3600,
        usd=prices.run_usd(seconds=seconds, get_requests=gets, put_requests=puts),
        source=rates.source,
        bytes_read=work.bytes_removed,
        bytes_written=bytes_written,
        get_requests=gets,
        put_requests=puts,
        run_count=rates.run_count,
    )


def usd_per_opening(prices: Prices, *, on_s3: bool) -> float:
    """The price of opening one file for a read, in USD: its time and, on S3, its requests."""
    get_requests = _REQUESTS_PER_OPENING if on_s3 else 0
    return prices.run_usd(seconds=DEFAULT_RATES.seconds_per_file, get_requests=get_requests)


def requests(work: Work, bytes_written: int) -> tuple[int, int]:
    """The number of GETs and PUTs of a compaction."""
    gets = work.files_removed * _GETS_PER_FILE + ceil(work.bytes_removed / _BYTES_PER_GET)
    parts = ceil(bytes_written / _BYTES_PER_PUT)
    puts = work.files_added if parts <= work.files_added else parts + 2 * work.files_added
    return gets + _GETS_PER_COMMIT, puts + _PUTS_PER_COMMIT
