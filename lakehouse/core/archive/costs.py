"""Estimates what it costs to move files into an archive, and what the move saves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.core.declaration.archive import Archive
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.tiers.storage_class_costs import ClassPrices
from lakehouse.core.units import DAY_MS, HOUR_MS

_GIB = 1024**3
_MONTH_DAYS = 30
# The daily vacuum deletes files at most a day after their retention.
_UNTIL_VACUUM_MS = DAY_MS
# Measured with the tests' tables. The first two cover a copy and its comparison, the third one
# Spark's rewriting of rows, and the last one the DELETE and the reading of the log.
_SECONDS_PER_FILE = 0.02
_COPIED_BYTES_PER_SECOND = 100 * 1024 * 1024
_REWRITTEN_BYTES_PER_SECOND = 10 * 1024 * 1024
_STATEMENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEstimate:
    """The predicted cost of a run. On a disk, storage and requests cost nothing.

    - `usd`: the cost of the machine and of the requests.
    - `kept_ms`: the time until a vacuum deletes the original files; `None` if the table's retention
      is unknown.
    - `usd_of_both_copies`: the cost of storing the original files for this time.
    - `usd_per_month_saved`: the storage cost of the original files minus that of their copies.
    """

    seconds: float
    requests: Mapping[str, int]
    usd: float
    usd_of_both_copies: float
    usd_per_month_saved: float
    kept_ms: int | None

    def as_json(self) -> dict[str, Any]:
        """The figures, as a plan's JSON has them."""
        return {
            "seconds": round(self.seconds, 3),
            "requests": dict(self.requests),
            "usd": round(self.usd, 9),
            "usd_of_both_copies": round(self.usd_of_both_copies, 9),
            "usd_per_month_saved": round(self.usd_per_month_saved, 9),
        }


def estimate_move(
    prices: Prices,
    partitions: Sequence[tuple[Sequence[DataFile], bool]],
    properties: Mapping[str, str],
    archive: Archive,
    classes: Mapping[str, ClassPrices],
) -> ArchiveEstimate:
    """Estimates the move of partitions, each given as its files and whether Spark rewrites them.

    `properties` are the table's properties. `classes` are S3's storage classes; empty on a disk.
    """
    retention_ms = retention_ms_of(properties)
    kept_ms = None if retention_ms is None else retention_ms + _UNTIL_VACUUM_MS
    into = classes.get(archive.storage_class)
    standard = classes.get("STANDARD")
    seconds = _seconds_of_move(partitions, on_disk=into is None) if partitions else 0.0
    on_disk = ArchiveEstimate(
        seconds=seconds,
        requests={},
        usd=seconds * prices.vcpus * prices.usd_per_vcpu_hour * 1_000 / HOUR_MS,
        usd_of_both_copies=0,
        usd_per_month_saved=0,
        kept_ms=kept_ms,
    )
    if not partitions or into is None or standard is None:
        return on_disk
    sizes = [file.size_bytes for files, _ in partitions for file in files]
    requests = _requests_of_move(len(sizes))
    table_usd = sum(sizes) / _GIB * standard.usd_per_gb_month
    kept_days = 0 if kept_ms is None else kept_ms / DAY_MS
    return replace(
        on_disk,
        requests=requests,
        usd=on_disk.usd + _usd_of_requests(requests, prices, into),
        usd_of_both_copies=table_usd * kept_days / _MONTH_DAYS,
        usd_per_month_saved=table_usd - _usd_of_archive(sizes, archive, into),
    )


def _seconds_of_move(
    partitions: Sequence[tuple[Sequence[DataFile], bool]], *, on_disk: bool
) -> float:
    """The duration of the run. On S3, the bytes of a copy do not pass through this machine."""
    files = [file for each, _ in partitions for file in each]
    rewritten = [file for each, is_rewritten in partitions if is_rewritten for file in each]
    copied_bytes = sum(file.size_bytes for file in files) if on_disk else 0
    rewritten_bytes = sum(file.size_bytes for file in rewritten)
    return (
        _STATEMENT_SECONDS
        + len(files) * _SECONDS_PER_FILE
        + copied_bytes / _COPIED_BYTES_PER_SECOND
        + rewritten_bytes / _REWRITTEN_BYTES_PER_SECOND
    )


def _requests_of_move(file_count: int) -> dict[str, int]:
    """Per file: two HEADs of the original, two of the copy, one COPY, one GET of its footer."""
    return {
        "HeadObject": 4 * file_count,
        "CopyObject": file_count,
        "GetObject": file_count,
        "PutObject": 1,
        "ListObjectsV2": 2,
    }


def _usd_of_requests(requests: Mapping[str, int], prices: Prices, into: ClassPrices) -> float:
    per_copy = max(into.usd_per_1000_transitions, prices.usd_per_1000_puts)
    puts = requests["PutObject"] + requests["ListObjectsV2"]
    gets = requests["HeadObject"] + requests["GetObject"]
    return (
        requests["CopyObject"] * per_copy
        + puts * prices.usd_per_1000_puts
        + gets * prices.usd_per_1000_gets
    ) / 1_000


def _usd_of_archive(sizes: Sequence[int], archive: Archive, into: ClassPrices) -> float:
    """USD per month for copies of these sizes, including the minimums of their storage class.

    Small copies are billed for the minimum size. Copies that are deleted before the minimum number
    of days are billed for these days, which makes each month more expensive.
    """
    charged_bytes = sum(max(size_bytes, into.minimum_bytes) for size_bytes in sizes)
    billed_to_kept = max(1.0, into.minimum_days / max(archive.keep_days, 1))
    return charged_bytes / _GIB * into.usd_per_gb_month * billed_to_kept
