"""The cost of an operation: seconds, vCPU-hours, bytes, requests and money, predicted from this lake's own runs.

Seconds of a compaction are `fixed + per file added + per file removed + per byte removed`: each file added is a Spark job of its own. How
long a byte takes is each table's own, since values are decoded and encoded one by one, and a megabyte holds a few thousand or some millions
of them. The rates are fitted to the compactions in the table's log, in two steps, so that one run already helps and ten leave little of the
defaults:

1. How fast this machine is against the defaults: one factor, the median over the runs, with few runs part of the way there.
2. From the third run on, each of the four rates by itself: least squares of the relative error, no rate below zero, held by a light pull to
   the defaults times that factor. Runs far off (a cold start, a busy machine) lose weight with every round; older runs weigh less.

Bytes added are the bytes removed without what every file takes whatever it holds (footer, pages, statistics of each column), times the
share that this table's own compactions wrote of that.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, exp, log
from random import Random
from statistics import median
from typing import Any, Literal

from lakehouse.core.declaration.column_names import struct_types
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.commits import Commits, LoggedCompaction
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.text import count_of

# Measured on two cores; a lake's own history replaces them after a few runs.
SECONDS_PER_STORED_BYTE, SECONDS_PER_VALUE = 6e-9, 70e-9
# A Parquet file of few rows takes so much by itself, and so much more for each column. Measured on files that Spark and deltalake wrote,
# of 1 to 14 columns: 430 to 4,600 bytes went with each file that a compaction merged away.
_BYTES_PER_FILE, _BYTES_PER_COLUMN = 100, 325
# The first statement of a server loads and compiles Delta's classes. Measured on two cores: 3 to 8 s in place of 1.
COLD_START_SECONDS = 4.0
# So many files tell how many values a table's bytes hold.
_SAMPLED_FILES = 1_000

# The memory of the fit: a run weighs half after so many newer ones, older ones than the last so many are left out, fewer than
# so many say nothing of the shape (the first is often a cold start).
_HALF_LIFE_RUNS, _RUNS, _LEAST_RUNS = 4, 40, 3
# The defaults' shape weighs so much of one run, and an error counts in full up to so many times the usual one.
_PULL, _FORGIVEN = 0.05, 1.5
_ROUNDS, _SWEEPS = 6, 60

# Requests of one compaction on S3, assumed and not measured: of each file read a HEAD, its footer and its columns in ranges of up to 8 MiB,
# and all of it once more to compare the rows; of each file written a PUT, or one per 64 MiB and two around them; a few for the commit.
_GETS_PER_FILE, _BYTES_PER_GET = 3, 8 * 1024 * 1024
_BYTES_PER_PUT = 64 * 1024 * 1024
_GETS_PER_COMMIT, _PUTS_PER_COMMIT = 4, 3
# To compare every row takes so much of the time of the rewriting: docs/internals/decisions/0008, 200 files of 20,000 rows.
_COMPARISON_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Seconds of a compaction by its files and bytes, `seconds_per_file` for each file removed; and the bytes that it adds.

    `bytes_per_file` is what a file takes whatever it holds, and `written_share` the share of all other bytes that is written again.
    `cold_start_seconds` come on top where the server has compacted nothing yet.

    The defaults are of one compaction here: planning and commit, then a job for each file written, an open and a footer for each file
    read, a read, a write, a decode and an encode for each byte, of a table whose log counts no rows. `spread_share` is the median absolute
    error as a share of the actual seconds, as it is to be expected of the next run; `None` where nothing was measured yet.
    """

    seconds_fixed: float = 0.4
    seconds_per_file_added: float = 0.08
    seconds_per_file: float = 0.001
    seconds_per_byte: float = 1 / 100e6
    bytes_per_file: float = 0.0
    written_share: float = 1.0
    cold_start_seconds: float = 0.0
    run_count: int = 0
    spread_share: float | None = None
    source: Literal["defaults", "history"] = "defaults"
    prices: Prices = DEFAULT_PRICES


DEFAULT_RATES = Rates()
# A Parquet reader asks for the footer, then for the columns: at least two GETs per file.
SECONDS_PER_OPENING = DEFAULT_RATES.seconds_per_file
_REQUESTS_PER_OPENING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The predicted cost of a compaction up to its commit, and of comparing every row afterwards, whether or not that is done."""

    seconds: float
    vcpu_hours: float
    usd: float
    spread_share: float | None
    source: Literal["defaults", "history"]
    bytes_read: int = 0
    bytes_written: int = 0
    get_requests: int = 0
    put_requests: int = 0
    run_count: int = 0
    comparison_seconds: float = 0.0
    comparison_usd: float = 0.0

    @property
    def basis(self) -> str:
        """From what it was predicted, in words."""
        if self.source == "defaults":
            return "defaults"
        spread = "" if self.spread_share is None else f", spread {self.spread_share:.0%}"
        return f"the history of {count_of(self.run_count, 'run')}{spread}"

    @property
    def sentence(self) -> str:
        """Seconds and money, and from what they were predicted."""
        return f"about {self.seconds:.1f} s and {self.usd:.6f} USD, by {self.basis}"

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse plan --json` and the commit's userMetadata."""
        told = asdict(self)
        digits = {
            "seconds": 3,
            "vcpu_hours": 9,
            "usd": 9,
            "spread_share": 4,
            "comparison_seconds": 3,
            "comparison_usd": 9,
        }
        return told | {
            name: round(told[name], count)
            for name, count in digits.items()
            if told[name] is not None
        }


def fit_rates(history: Commits, snapshot: Snapshot, *, prices: Prices = DEFAULT_PRICES) -> Rates:
    """The rates of the compactions that `history` holds, newer ones weighing more; where it holds none, the defaults for the `snapshot`."""
    logged = history.compactions()
    per_byte = _seconds_per_byte(snapshot)
    bytes_per_file = _bytes_per_file(snapshot)
    defaults = replace(
        DEFAULT_RATES,
        seconds_per_byte=per_byte,
        bytes_per_file=bytes_per_file,
        written_share=_written_share(logged, bytes_per_file),
        prices=prices,
    )
    timed = [run for run in logged if run.seconds is not None and run.files_removed][-_RUNS:]
    if not timed:
        return defaults
    seconds = [run.seconds or 0.0 for run in timed]
    rows = [_features(run.files_added, run.files_removed, run.bytes_removed) for run in timed]
    weights = [0.5 ** (age / _HALF_LIFE_RUNS) for age in reversed(range(len(timed)))]
    # The slowness of this machine against the defaults; with few runs, part of the way there.
    ratios = [
        log(was / _dot(_rates_of(defaults), row)) for row, was in zip(rows, seconds, strict=True)
    ]
    factor = exp(_weighted_median(ratios, weights) * len(timed) / (len(timed) + 2))
    fixed, per_added, per_file, per_byte = _fit(
        rows, seconds, weights, [rate * factor for rate in _rates_of(defaults)]
    )
    fitted = replace(
        defaults,
        seconds_fixed=fixed,
        seconds_per_file_added=per_added,
        seconds_per_file=per_file,
        seconds_per_byte=per_byte,
    )
    errors = [
        abs(_dot(_rates_of(fitted), row) / was - 1) for row, was in zip(rows, seconds, strict=True)
    ]
    # A fit knows its own runs better than the next one: with four rates out of n runs, by about 4 / n.
    spread = _weighted_median(errors, weights) * (len(timed) + 4) / len(timed)
    return replace(fitted, run_count=len(timed), spread_share=spread, source="history")


def estimate(
    rates: Rates,
    *,
    files_removed: int,
    bytes_removed: int,
    files_added: int = 1,
    on_s3: bool = False,
    compared: bool = True,
    live_share: float = 1.0,
) -> Estimate:
    """The cost of merging so many files and bytes, of which rows that are not deleted take `live_share`; nothing for nothing.

    Requests are counted, and priced, only `on_s3`; those of the comparison of every row only where that is `compared`.
    """
    run = files_removed > 0
    features = _features(files_added, files_removed, bytes_removed)
    warm_seconds = _dot(_rates_of(rates), features) if run else 0.0
    seconds = warm_seconds + rates.cold_start_seconds if run else 0.0
    merged_bytes = _merged_bytes(rates.bytes_per_file, files_removed, files_added, bytes_removed)
    bytes_written = round(merged_bytes * rates.written_share * live_share)
    sizes = (files_removed, files_added, bytes_removed, bytes_written)
    gets, puts = requests(*sizes, compared=compared) if run and on_s3 else (0, 0)
    more_gets = requests(*sizes)[0] - requests(*sizes, compared=False)[0] if run and on_s3 else 0
    comparison_seconds, prices = warm_seconds * _COMPARISON_SHARE, rates.prices
    return Estimate(
        seconds=seconds,
        vcpu_hours=seconds * prices.vcpus / 3600,
        usd=price(prices, seconds=seconds, get_requests=gets, put_requests=puts),
        spread_share=rates.spread_share,
        source=rates.source,
        bytes_read=bytes_removed,
        bytes_written=bytes_written,
        get_requests=gets,
        put_requests=puts,
        run_count=rates.run_count,
        comparison_seconds=comparison_seconds,
        comparison_usd=price(prices, seconds=comparison_seconds, get_requests=more_gets),
    )


def price(prices: Prices, *, seconds: float, get_requests: int = 0, put_requests: int = 0) -> float:
    """The cost of so many seconds of the driver and so many requests, in USD."""
    requests = get_requests * prices.usd_per_1000_gets + put_requests * prices.usd_per_1000_puts
    return seconds * prices.vcpus / 3600 * prices.usd_per_vcpu_hour + requests / 1000


def usd_per_opening(prices: Prices, *, on_s3: bool) -> float:
    """The cost of opening one file: its seconds, and on S3 its requests."""
    get_requests = _REQUESTS_PER_OPENING if on_s3 else 0
    return price(prices, seconds=SECONDS_PER_OPENING, get_requests=get_requests)


def requests(
    files_removed: int,
    files_added: int,
    bytes_read: int,
    bytes_written: int,
    *,
    compared: bool = True,
) -> tuple[int, int]:
    """GET and PUT requests of a compaction, and of the comparison of every row where that is `compared`."""
    gets = _gets_of(files_removed, bytes_read)
    if compared:
        gets += _gets_of(files_removed, bytes_read) + _gets_of(files_added, bytes_written)
    parts = ceil(bytes_written / _BYTES_PER_PUT)
    puts = files_added if parts <= files_added else parts + 2 * files_added
    return gets + _GETS_PER_COMMIT, puts + _PUTS_PER_COMMIT


def _gets_of(file_count: int, size_bytes: int) -> int:
    return file_count * _GETS_PER_FILE + ceil(size_bytes / _BYTES_PER_GET)


def _features(files_added: int, files_removed: int, bytes_removed: int) -> Sequence[float]:
    return (1.0, float(files_added), float(files_removed), float(bytes_removed))


def _rates_of(rates: Rates) -> Sequence[float]:
    return (
        rates.seconds_fixed,
        rates.seconds_per_file_added,
        rates.seconds_per_file,
        rates.seconds_per_byte,
    )


def _dot(rates: Sequence[float], row: Sequence[float]) -> float:
    return sum(rate * value for rate, value in zip(rates, row, strict=True))


def _seconds_per_byte(snapshot: Snapshot) -> float:
    """The default for the files of a table, by the values that they hold: rows times columns, those of structs by their fields.

    The median file tells it, of those that no compaction wrote where there are any: a compaction merges many small files, few large ones.
    """
    files = [file for file in snapshot.files if not file.compacted] or snapshot.files
    files = Random(0).sample(files, min(len(files), _SAMPLED_FILES))
    rows_per_byte = [
        file.row_count / file.size_bytes
        for file in files
        if file.row_count is not None and file.size_bytes
    ]
    if not rows_per_byte:
        return DEFAULT_RATES.seconds_per_byte
    return SECONDS_PER_STORED_BYTE + SECONDS_PER_VALUE * _values_per_row(snapshot) * median(
        rows_per_byte
    )


def _values_per_row(snapshot: Snapshot) -> int:
    """The values that a file holds of one row; those of the partition columns are in the log."""
    return sum(
        _value_count(column.type)
        for column in snapshot.columns
        if column.name not in snapshot.partition_columns
    )


def _value_count(type_: str) -> int:
    """The values of one row in a column of that type; an array or a map is one."""
    return sum(map(_value_count, struct_types(type_).values())) or 1


def _fit(
    rows: Sequence[Sequence[float]],
    seconds: Sequence[float],
    weights: Sequence[float],
    start: Sequence[float],
) -> Sequence[float]:
    """Rates that make the relative errors small, none below zero; see the module's step 2."""
    shares = [[value / was for value in row] for row, was in zip(rows, seconds, strict=True)]
    means = [sum(row[place] for row in shares) / len(shares) for place in range(len(start))]
    rates = list(start)
    for _ in range(_ROUNDS if len(rows) >= _LEAST_RUNS else 0):
        errors = [abs(_dot(rates, row) - 1) for row in shares]
        most = _FORGIVEN * max(1.4826 * _weighted_median(errors, weights), 0.02)
        trust = [
            weight * (most / max(most, error)) ** 2
            for weight, error in zip(weights, errors, strict=True)
        ]
        rates = _descend(shares, trust, [_PULL * mean * mean for mean in means], start, rates)
    return rates


def _descend(
    shares: Sequence[Sequence[float]],
    weights: Sequence[float],
    pull: Sequence[float],
    start: Sequence[float],
    rates: Sequence[float],
) -> list[float]:
    """Least squares of `shares . rates = 1` with a pull to `start`, by going down one rate after the other, never below zero."""
    every, weighted = range(len(start)), list(zip(weights, shares, strict=True))
    products = [
        [sum(weight * row[one] * row[other] for weight, row in weighted) for other in every]
        for one in every
    ]
    wanted = [sum(weight * row[place] for weight, row in weighted) for place in every]
    found = list(rates)
    for _ in range(_SWEEPS):
        for place in every:
            others = sum(products[place][other] * found[other] for other in every if other != place)
            below = products[place][place] + pull[place]
            found[place] = (
                max(0.0, (wanted[place] - others + pull[place] * start[place]) / below)
                if below
                else start[place]
            )
    return found


def _bytes_per_file(snapshot: Snapshot) -> float:
    """The bytes of a file of this table that do not depend on its rows; 0 where the log tells no columns."""
    values = _values_per_row(snapshot)
    return _BYTES_PER_FILE + _BYTES_PER_COLUMN * values if values else 0.0


def _merged_bytes(
    bytes_per_file: float, files_removed: int, files_added: int, bytes_removed: int
) -> float:
    """The bytes of merged files, were nothing saved but what each file takes by itself; an output is no smaller than the mean input."""
    if files_removed <= files_added:
        return bytes_removed
    saved = bytes_per_file * (files_removed - files_added)
    return max(bytes_removed - saved, bytes_removed * files_added / files_removed)


def _written_share(logged: Sequence[LoggedCompaction], bytes_per_file: float) -> float:
    """Bytes added by those of `_merged_bytes`, newest runs first in weight; one imagined run that wrote just these is among them."""
    shares = [
        run.bytes_added
        / _merged_bytes(bytes_per_file, run.files_removed, run.files_added, run.bytes_removed)
        for run in logged
        if run.bytes_removed
    ][-_RUNS:]
    weights = [0.5 ** (age / _HALF_LIFE_RUNS) for age in reversed(range(len(shares)))]
    known = sum(weights)
    return (_weighted_median(shares, weights) * known + 0.1) / (known + 0.1) if shares else 1.0


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    half, seen = sum(weights) / 2, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        seen += weight
        if seen >= half:
            return value
    return 0.0
