"""Predicts compactions by default rates, scaled by the newest compactions.

The seconds of a compaction are a fixed time, plus a time per file added, per file removed and per
byte removed. The default rates were measured on two cores. All four are multiplied by one factor:
the median, over the table's newest ten compactions, of the actual seconds per expected second.
Without such a compaction, the median of the lake's newest ten compactions is taken.

For the bytes added, a fixed size (footer, pages, column statistics) is subtracted from the bytes
removed, once for each file by which the number of files falls. The rest is multiplied by a share:
the median of how much of it the table's newest ten compactions wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from lakehouse.core.declaration.column_names import struct_types
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.commits import Commits, LoggedCompaction
from lakehouse.core.delta.snapshot import Snapshot

# The size of a Parquet file with few rows, and the size that each column adds. Measured on files of
# 1 to 14 columns that Spark and deltalake wrote: each merged file saved 430 to 4,600 bytes.
_BYTES_PER_FILE = 100
_BYTES_PER_COLUMN = 325
# The additional time of a server's first statement, which loads and compiles Delta's classes.
# Measured on two cores: 3 to 8 s instead of 1 s.
COLD_START_SECONDS = 4.0
# Older runs no longer say how fast this machine is, or how well this table's files compress.
RUNS_COUNTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWork:
    """The work of a compaction: files and bytes removed, files added.

    `live_share` is the share of the bytes whose rows are not deleted.
    """

    files_removed: int
    bytes_removed: int
    files_added: int = 1
    live_share: float = 1.0

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

    - `factor`: multiplies the default rates. The defaults are Spark's for planning and the commit,
      the job of an added file, opening a removed file and reading its footer, and rewriting a byte.
    - `bytes_per_file`: the fixed size of a file, whatever its content.
    - `written_share`: the share of `merged_bytes` that is written.
    - `cold_start_seconds`: additional seconds, for the first compaction of a Spark server.
    - `run_count`: the number of the table's compactions on which the factor is based.
    """

    seconds_fixed: float = 0.4
    seconds_per_file_added: float = 0.08
    seconds_per_file: float = 0.001
    seconds_per_byte: float = 1 / 100e6
    factor: float = 1.0
    bytes_per_file: float = 0.0
    written_share: float = 1.0
    cold_start_seconds: float = 0.0
    run_count: int = 0
    source: Literal["defaults", "lake", "history"] = "defaults"
    prices: Prices = DEFAULT_PRICES

    def warm_seconds(self, work: MergeWork) -> float:
        """The predicted seconds up to the commit, without a cold start."""
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
SECONDS_PER_OPENING = DEFAULT_RATES.seconds_per_file


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
    values = _values_per_row(snapshot)
    bytes_per_file = _BYTES_PER_FILE + _BYTES_PER_COLUMN * values if values else 0.0
    rates = replace(
        _defaults_of(engine),
        bytes_per_file=bytes_per_file,
        written_share=_written_share(logged, bytes_per_file),
        prices=prices,
    )
    factors = speed_factors(logged, engine)
    if factors:
        return replace(rates, factor=median(factors), run_count=len(factors), source="history")
    if lake_factor is not None:
        return replace(rates, factor=lake_factor, source="lake")
    return rates


def speed_factors(logged: Sequence[LoggedCompaction], engine: str) -> list[float]:
    """The actual seconds per expected second of the newest ten compactions, oldest first."""
    defaults = _defaults_of(engine)
    timed = [run for run in logged if run.seconds is not None and run.files_removed]
    return [
        (run.seconds or 0.0) / defaults.warm_seconds(_work_of(run)) for run in timed[-RUNS_COUNTED:]
    ]


def _defaults_of(engine: str) -> Rates:
    return _DELTALAKE_RATES if engine == "deltalake" else DEFAULT_RATES


def _work_of(run: LoggedCompaction) -> MergeWork:
    return MergeWork(
        files_removed=run.files_removed,
        bytes_removed=run.bytes_removed,
        files_added=run.files_added,
    )


def _values_per_row(snapshot: Snapshot) -> int:
    """The number of values per row in a file. Values of partition columns are only in the log."""
    partition_columns = snapshot.partition_columns
    columns = [column for column in snapshot.columns if column.name not in partition_columns]
    return sum(_value_count(column.type) for column in columns)


def _value_count(type_: str) -> int:
    """The number of values per row in a column: one per struct field, or one for other types."""
    return sum(map(_value_count, struct_types(type_).values())) or 1


def _written_share(logged: Sequence[LoggedCompaction], bytes_per_file: float) -> float:
    """The median share of `merged_bytes` that the newest compactions wrote; 1 if there are none."""
    runs = [run for run in logged if run.bytes_removed][-RUNS_COUNTED:]
    shares = [run.bytes_added / _work_of(run).merged_bytes(bytes_per_file) for run in runs]
    return median(shares) if shares else 1.0
