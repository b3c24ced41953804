"""How fast compactions are: rates of seconds and bytes, fitted to the compactions in a table's log.

The seconds of a compaction are `fixed + per file added + per file removed + per byte removed`: each
added file is a Spark job of its own. Seconds per byte differ between tables, since values are
decoded and encoded one by one, and a megabyte holds a few thousand or some millions of them.

The fit has two steps, so that one run already helps and ten runs leave little of the defaults:

1. How fast this machine is, compared with the defaults: one factor, the median over all runs. With
   few runs, the factor goes only part of the way.
2. From the third run on, each of the four rates by itself: least squares of the relative error, no
   rate below zero, with a light pull to the defaults times that factor. Outliers (a cold start, a
   busy machine) lose weight in each round; older runs weigh less.

Bytes added are the bytes removed, less what each file takes whatever it holds (footer, pages,
column statistics), times the share of those bytes that earlier compactions of this table wrote.
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
from lakehouse.core.delta.snapshot import Snapshot

# Measured on two cores. A few runs of the lake replace them.
SECONDS_PER_STORED_BYTE = 6e-9
SECONDS_PER_VALUE = 70e-9
# A Parquet file with few rows takes this much, plus this much per column. Measured on files of 1 to
# 14 columns that Spark and deltalake wrote: each merged file saved 430 to 4,600 bytes.
_BYTES_PER_FILE = 100
_BYTES_PER_COLUMN = 325
# The first statement of a server loads and compiles Delta's classes. Measured on two cores: 3 to
# 8 s in place of 1.
COLD_START_SECONDS = 4.0
# How many files are sampled to find out how many values a byte holds.
_SAMPLED_FILES = 1_000

# A run counts half after this many newer ones, and not at all after the second number. Step 2 needs
# the third number of runs: the first is often a cold start.
_HALF_LIFE_RUNS = 4
_MOST_RUNS = 40
_LEAST_RUNS = 3
# The defaults weigh this much of one run. An error counts in full up to this multiple of the usual.
_PULL = 0.05
_FORGIVEN = 1.5
_ROUNDS = 6
_SWEEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWork:
    """What a compaction does: files and bytes in, files out.

    `live_share` is the share of the bytes whose rows are not deleted.
    """

    files_removed: int
    bytes_removed: int
    files_added: int = 1
    live_share: float = 1.0

    @property
    def features(self) -> Sequence[float]:
        """The factors of the four rates, in the order of `_rates_of`."""
        return (1.0, *map(float, (self.files_added, self.files_removed, self.bytes_removed)))

    def merged_bytes(self, bytes_per_file: float) -> float:
        """The bytes out if merging saved only `bytes_per_file` per file.

        An output is never smaller than the mean input.
        """
        if self.files_removed <= self.files_added:
            return self.bytes_removed
        saved = bytes_per_file * (self.files_removed - self.files_added)
        least = self.bytes_removed * self.files_added / self.files_removed
        return max(self.bytes_removed - saved, least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Seconds of a compaction by its files and bytes, and the bytes that it adds.

    - `seconds_per_file`: for each file removed.
    - `bytes_per_file`: what a file takes whatever it holds; of all other bytes, `written_share` is
      written again.
    - `cold_start_seconds`: added if the server has compacted nothing yet.
    - `spread_share`: the expected median absolute error of the next prediction, as a share of the
      actual seconds; `None` if nothing has been measured yet.

    The defaults fit a table whose log counts no rows: planning and commit, a job per file added, an
    open and a footer per file removed, and reading, decoding, encoding and writing each byte.
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
        """The predicted seconds up to the commit, on a server that has compacted before."""
        return _dot(_rates_of(self), work.features)


DEFAULT_RATES = Rates()
SECONDS_PER_OPENING = DEFAULT_RATES.seconds_per_file


def fit_rates(history: Commits, snapshot: Snapshot, *, prices: Prices = DEFAULT_PRICES) -> Rates:
    """The rates fitted to the compactions in `history`; without any, the table's defaults."""
    logged = history.compactions()
    bytes_per_file = _bytes_per_file(snapshot)
    defaults = replace(
        DEFAULT_RATES,
        seconds_per_byte=_seconds_per_byte(snapshot),
        bytes_per_file=bytes_per_file,
        written_share=_written_share(logged, bytes_per_file),
        prices=prices,
    )
    timed = [run for run in logged if run.seconds is not None and run.files_removed][-_MOST_RUNS:]
    if not timed:
        return defaults
    seconds = [run.seconds or 0.0 for run in timed]
    work, weights = [_work_of(run) for run in timed], _weights(len(timed))
    ratios = [
        log(actual / defaults.warm_seconds(each))
        for each, actual in zip(work, seconds, strict=True)
    ]
    factor = exp(_weighted_median(ratios, weights) * len(timed) / (len(timed) + 2))
    fixed, per_added, per_file, per_byte = _fit(
        [each.features for each in work],
        seconds,
        weights,
        [rate * factor for rate in _rates_of(defaults)],
    )
    fitted = replace(
        defaults,
        seconds_fixed=fixed,
        seconds_per_file_added=per_added,
        seconds_per_file=per_file,
        seconds_per_byte=per_byte,
    )
    errors = [
        abs(fitted.warm_seconds(each) / actual - 1)
        for each, actual in zip(work, seconds, strict=True)
    ]
    # A fit knows its own runs better than the next one: with four rates and n runs, by about 4 / n.
    spread = _weighted_median(errors, weights) * (len(timed) + 4) / len(timed)
    return replace(fitted, run_count=len(timed), spread_share=spread, source="history")


def _work_of(run: LoggedCompaction) -> MergeWork:
    return MergeWork(
        files_removed=run.files_removed,
        bytes_removed=run.bytes_removed,
        files_added=run.files_added,
    )


def _weights(count: int) -> list[float]:
    """The weights of so many runs, oldest first."""
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
    """The default for a table: by the values (rows times columns) in a byte of its median file.

    Files that no compaction wrote are preferred: they are what a compaction merges.
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
    values_per_byte = _values_per_row(snapshot) * median(rows_per_byte)
    return SECONDS_PER_STORED_BYTE + SECONDS_PER_VALUE * values_per_byte


def _values_per_row(snapshot: Snapshot) -> int:
    """The values of one row in a file. Values of partition columns are in the log."""
    return sum(
        _value_count(column.type)
        for column in snapshot.columns
        if column.name not in snapshot.partition_columns
    )


def _value_count(type_: str) -> int:
    """The values of one row in a column: a struct has one per field, an array or a map has one."""
    return sum(map(_value_count, struct_types(type_).values())) or 1


def _bytes_per_file(snapshot: Snapshot) -> float:
    """The bytes of a file that do not depend on its rows; 0 if the log has no columns."""
    values = _values_per_row(snapshot)
    return _BYTES_PER_FILE + _BYTES_PER_COLUMN * values if values else 0.0


def _written_share(logged: Sequence[LoggedCompaction], bytes_per_file: float) -> float:
    """The share of `merged_bytes` that compactions wrote, with one imagined run of share 1."""
    shares = [
        run.bytes_added / _work_of(run).merged_bytes(bytes_per_file)
        for run in logged
        if run.bytes_removed
    ][-_MOST_RUNS:]
    if not shares:
        return 1.0
    weights = _weights(len(shares))
    known = sum(weights)
    return (_weighted_median(shares, weights) * known + 0.1) / (known + 0.1)


def _fit(
    rows: Sequence[Sequence[float]],
    seconds: Sequence[float],
    weights: Sequence[float],
    start: Sequence[float],
) -> Sequence[float]:
    """The rates with the smallest relative errors, none below zero (step 2 of the module)."""
    shares = [[value / actual for value in row] for row, actual in zip(rows, seconds, strict=True)]
    means = [sum(row[place] for row in shares) / len(shares) for place in range(len(start))]
    pull = [_PULL * mean * mean for mean in means]
    rates = list(start)
    for _ in range(_ROUNDS if len(rows) >= _LEAST_RUNS else 0):
        errors = [abs(_dot(rates, row) - 1) for row in shares]
        most = _FORGIVEN * max(1.4826 * _weighted_median(errors, weights), 0.02)
        trust = [
            weight * (most / max(most, error)) ** 2
            for weight, error in zip(weights, errors, strict=True)
        ]
        rates = _descend(shares, trust, pull, start, rates)
    return rates


def _descend(
    shares: Sequence[Sequence[float]],
    weights: Sequence[float],
    pull: Sequence[float],
    start: Sequence[float],
    rates: Sequence[float],
) -> list[float]:
    """Coordinate descent for least squares of `shares . rates = 1`, with a pull to `start`."""
    every = range(len(start))
    weighted = list(zip(weights, shares, strict=True))
    products = [
        [sum(weight * row[one] * row[other] for weight, row in weighted) for other in every]
        for one in every
    ]
    wanted = [sum(weight * row[place] for weight, row in weighted) for place in every]
    found = list(rates)
    for _ in range(_SWEEPS):
        for place in every:
            others = sum(products[place][other] * found[other] for other in every if other != place)
            divisor = products[place][place] + pull[place]
            if not divisor:
                found[place] = start[place]
                continue
            pulled = wanted[place] - others + pull[place] * start[place]
            found[place] = max(0.0, pulled / divisor)
    return found


def _weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    half = sum(weights) / 2
    seen = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        seen += weight
        if seen >= half:
            return value
    return 0.0
