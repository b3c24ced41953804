"""Predicts compactions by rates of seconds and bytes, fitted to the compactions in a table's log.

The seconds of a compaction are a fixed time, plus a time per file added, per file removed and per
byte removed. Each added file is a separate Spark job. Seconds per byte differ between tables:
values are decoded and encoded one by one, and a megabyte may hold a few thousand or a few million
values.

The fit has two steps. A run is one compaction in the log. A single run improves the prediction, and
after ten runs the default rates hardly matter:

1. One factor is the speed of this machine relative to the defaults: the median over all runs. With
   few runs, the factor is applied only in part.
2. From the third run on, each of the four rates is fitted by least squares of the relative error.
   No rate is below zero, and a small weight pulls each rate towards its default times the factor.
   The fit is repeated, and outliers (a cold start, a busy machine) lose weight each time. Older
   runs weigh less.

For the bytes added, a fixed size (footer, pages, column statistics) is subtracted from the bytes
removed, once for each file by which the number of files falls. The rest is multiplied by a share:
how much of it earlier compactions of this table wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from random import Random
from statistics import median
from typing import Literal

from lakehouse.core.declaration.column_names import struct_types
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.commits import Commits, LoggedCompaction
from lakehouse.core.delta.snapshot import Snapshot, uncompacted

# Measured on two cores. After a few runs, the fit replaces these defaults.
SECONDS_PER_STORED_BYTE = 6e-9
SECONDS_PER_VALUE = 70e-9
# The size of a Parquet file with few rows, and the size that each column adds. Measured on files of
# 1 to 14 columns that Spark and deltalake wrote: each merged file saved 430 to 4,600 bytes.
_BYTES_PER_FILE = 100
_BYTES_PER_COLUMN = 325
# The additional time of a server's first statement, which loads and compiles Delta's classes.
# Measured on two cores: 3 to 8 s instead of 1 s.
COLD_START_SECONDS = 4.0
# The number of files that are sampled to estimate the values per byte.
_SAMPLED_FILES = 1_000

# The weight of a run halves with each `_HALF_LIFE_RUNS` newer runs. Runs before the newest
# `_MOST_RUNS` are ignored. Step 2 needs `_LEAST_RUNS`, since the first run is often a cold start.
_HALF_LIFE_RUNS = 4
_MOST_RUNS = 40
_LEAST_RUNS = 3
# The defaults count as `_PULL` runs. Runs with more than `_TOLERANCE` times the usual error lose
# weight.
_PULL = 0.05
_TOLERANCE = 1.5
_ROUNDS = 6  # repetitions of the fit, each with sweeps of a coordinate descent
_SWEEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWork:
    """The work of a compaction: files and bytes removed, files added.

    `live_share` is the share of the bytes whose rows are not deleted.
    """

    files_removed: int
    bytes_removed: int
    files_added: int = 1
    live_share: float = 1.0

    @property
    def features(self) -> Sequence[float]:
        """The factors of the four rates, in the order of `_rates_of`."""
        return (1.0, float(self.files_added), float(self.files_removed), float(self.bytes_removed))

    def merged_bytes(self, bytes_per_file: float) -> float:
        """The bytes added: the bytes removed, less `bytes_per_file` for every file fewer.

        An output is never smaller than the mean input.
        """
        if self.files_removed <= self.files_added:
            return self.bytes_removed
        saved = bytes_per_file * (self.files_removed - self.files_added)
        least = self.bytes_removed * self.files_added / self.files_removed
        return max(self.bytes_removed - saved, least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates that predict the seconds of a compaction, and the bytes that it adds.

    - `seconds_per_file`: the seconds per file removed.
    - `bytes_per_file`: the fixed size of a file, whatever its content.
    - `written_share`: the share of `merged_bytes` that is written.
    - `cold_start_seconds`: additional seconds, for the first compaction of a Spark server.
    - `spread_share`: the expected median absolute error of the next prediction, as a share of the
      actual seconds; `None` if nothing has been measured yet.

    The default seconds are Spark's for planning and the commit, the job of an added file, opening a
    removed file and reading its footer, and rewriting a byte of a table without row counts.
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

    def warm_seconds(self, work: MergeWork) -> float:
        """The predicted seconds up to the commit, without a cold start."""
        return _dot(_rates_of(self), work.features)


DEFAULT_RATES = Rates()
# Measured for deltalake 1.6.6 on two cores: no session, no jobs.
_DELTALAKE_RATES = replace(
    DEFAULT_RATES, seconds_fixed=0.05, seconds_per_file_added=0.005, seconds_per_file=0.0002
)
SECONDS_PER_OPENING = DEFAULT_RATES.seconds_per_file


def fit_rates(
    history: Commits, snapshot: Snapshot, *, prices: Prices = DEFAULT_PRICES, engine: str = "spark"
) -> Rates:
    """The rates fitted to the engine's compactions in `history`, or else the table's defaults."""
    logged = [run for run in history.compactions() if run.engine == engine]
    bytes_per_file = _bytes_per_file(snapshot)
    defaults = replace(
        _DELTALAKE_RATES if engine == "deltalake" else DEFAULT_RATES,
        seconds_per_byte=_seconds_per_byte(snapshot),
        bytes_per_file=bytes_per_file,
        written_share=_written_share(logged, bytes_per_file),
        prices=prices,
    )
    timed = [run for run in logged if run.seconds is not None and run.files_removed][-_MOST_RUNS:]
    if not timed:
        return defaults
    seconds = [run.seconds or 0.0 for run in timed]
    work = [_work_of(run) for run in timed]
    weights = _weights(len(timed))
    expected = map(defaults.warm_seconds, work)
    ratios = [log(actual / warm) for actual, warm in zip(seconds, expected, strict=True)]
    factor = exp(_weighted_median(ratios, weights) * len(timed) / (len(timed) + 2))
    start = [rate * factor for rate in _rates_of(defaults)]
    features = [each.features for each in work]
    fixed, per_added, per_file, per_byte = _fit(features, seconds, weights, start)
    fitted = replace(
        defaults,
        seconds_fixed=fixed,
        seconds_per_file_added=per_added,
        seconds_per_file=per_file,
        seconds_per_byte=per_byte,
    )
    expected = map(fitted.warm_seconds, work)
    errors = [abs(warm / actual - 1) for actual, warm in zip(seconds, expected, strict=True)]
    # A fit is better for its own runs than for the next one: with four rates, by about 4 / runs.
    spread = _weighted_median(errors, weights) * (len(timed) + 4) / len(timed)
    return replace(fitted, run_count=len(timed), spread_share=spread, source="history")


def _work_of(run: LoggedCompaction) -> MergeWork:
    return MergeWork(
        files_removed=run.files_removed,
        bytes_removed=run.bytes_removed,
        files_added=run.files_added,
    )


def _weights(count: int) -> list[float]:
    """The weights of `count` runs, oldest first."""
    return [0.5 ** (age / _HALF_LIFE_RUNS) for age in reversed(range(count))]


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
    """The table's default seconds per byte, from the values (rows times columns) per byte.

    The values per byte are the median over files. If the table has files that no compaction wrote,
    only these count: a compaction merges them.
    """
    files = uncompacted(snapshot.files) or snapshot.files
    files = Random(0).sample(files, min(len(files), _SAMPLED_FILES))
    rows_per_byte = [
        file.row_count / file.size_bytes
        for file in files
        if file.row_count is not None and file.size_bytes
    ]
    if not rows_per_byte:
        return DEFAULT_RATES.seconds_per_byte
    values_per_byte = _values_per_row(snapshot) * median(rows_per_byte)
    return SECONDS_PER_STORED_BYTE + SECONDS_PER_VALUE * values_per_byte


def _values_per_row(snapshot: Snapshot) -> int:
    """The number of values per row in a file. Values of partition columns are only in the log."""
    partition_columns = snapshot.partition_columns
    columns = [column for column in snapshot.columns if column.name not in partition_columns]
    return sum(_value_count(column.type) for column in columns)


def _value_count(type_: str) -> int:
    """The number of values per row in a column: one per struct field, or one for other types."""
    return sum(map(_value_count, struct_types(type_).values())) or 1


def _bytes_per_file(snapshot: Snapshot) -> float:
    """The fixed size of a file, whatever its rows; 0 if the log has no columns."""
    values = _values_per_row(snapshot)
    return _BYTES_PER_FILE + _BYTES_PER_COLUMN * values if values else 0.0


def _written_share(logged: Sequence[LoggedCompaction], bytes_per_file: float) -> float:
    """The share of `merged_bytes` that compactions wrote; a small weight pulls it towards 1."""
    runs = [run for run in logged if run.bytes_removed][-_MOST_RUNS:]
    if not runs:
        return 1.0
    shares = [run.bytes_added / _work_of(run).merged_bytes(bytes_per_file) for run in runs]
    weights = _weights(len(shares))
    total_weight = sum(weights)
    return (_weighted_median(shares, weights) * total_weight + 0.1) / (total_weight + 0.1)


def _fit(
    rows: Sequence[Sequence[float]],
    seconds: Sequence[float],
    weights: Sequence[float],
    start: Sequence[float],
) -> Sequence[float]:
    """The non-negative rates with the smallest relative errors (step 2 of the module docstring)."""
    shares = [[value / actual for value in row] for row, actual in zip(rows, seconds, strict=True)]
    means = [sum(row[place] for row in shares) / len(shares) for place in range(len(start))]
    pull = [_PULL * mean * mean for mean in means]
    rates = list(start)
    for _ in range(_ROUNDS if len(rows) >= _LEAST_RUNS else 0):
        errors = [abs(_dot(rates, row) - 1) for row in shares]
        # 1.4826 times the median absolute error estimates the standard deviation.
        tolerated = _TOLERANCE * max(1.4826 * _weighted_median(errors, weights), 0.02)
        factors = [(tolerated / max(tolerated, error)) ** 2 for error in errors]
        adjusted = [weight * factor for weight, factor in zip(weights, factors, strict=True)]
        rates = _descend(shares, adjusted, pull, start, rates)
    return rates


def _descend(
    shares: Sequence[Sequence[float]],
    weights: Sequence[float],
    pull: Sequence[float],
    start: Sequence[float],
    rates: Sequence[float],
) -> list[float]:
    """Coordinate descent for least squares of `shares . rates = 1`, with a pull to `start`."""
    places = range(len(start))
    weighted = list(zip(weights, shares, strict=True))
    products = [
        [sum(weight * row[one] * row[other] for weight, row in weighted) for other in places]
        for one in places
    ]
    targets = [sum(weight * row[place] for weight, row in weighted) for place in places]
    fitted = list(rates)
    for _ in range(_SWEEPS):
        for place in places:
            row = products[place]
            others = sum(row[other] * fitted[other] for other in places if other != place)
            divisor = row[place] + pull[place]
            if not divisor:
                fitted[place] = start[place]
                continue
            pulled = targets[place] - others + pull[place] * start[place]
            fitted[place] = max(0.0, pulled / divisor)
    return fitted


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    half = sum(weights) / 2
    seen = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        seen += weight
        if seen >= half:
            return value
    return 0.0
