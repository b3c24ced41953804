"""Estimates the cost of moving files into an archive, and the storage cost that this saves."""

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
# The speed of a run, measured with the tables of the tests.
_SECONDS_PER_FILE = 0.02  # to copy a file, and to compare the copy
_COPIED_BYTES_PER_SECOND = 100 * 1024 * 1024
_REWRITTEN_BYTES_PER_SECOND = 10 * 1024 * 1024  # by Spark
_STATEMENT_SECONDS = 1.0  # for the DELETE, and for reading the log


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEstimate:
    """The predicted cost of a run. On a disk, storage and requests cost nothing.

    - `usd`: the cost of the machine and of the requests.
    - `kept_ms`: how long the original files are still stored, until a vacuum deletes them. `None`
      if the table's retention is unknown.
    - `usd_of_both_copies`: the cost of storing the original files for `kept_ms`, while their copies
      are stored, too; 0 if `kept_ms` is unknown.
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

    `properties` are the table's properties. `classes` maps S3's storage classes to their prices; it
    is empty for a lake on a disk.
    """
    retention_ms = retention_ms_of(properties)
    kept_ms = None if retention_ms is None else retention_ms + _UNTIL_VACUUM_MS
    archive_class = classes.get(archive.storage_class)
    standard = classes.get("STANDARD")
    seconds = _seconds_of_move(partitions, on_disk=archive_class is None) if partitions else 0.0
    without_storage = ArchiveEstimate(
        seconds=seconds,
        requests={},
        usd=seconds * prices.vcpus * prices.usd_per_vcpu_hour * 1_000 / HOUR_MS,
        usd_of_both_copies=0,
        usd_per_month_saved=0,
        kept_ms=kept_ms,
    )
    if not partitions or archive_class is None or standard is None:
        return without_storage
    sizes = [file.size_bytes for files, _ in partitions for file in files]
    requests = _requests_of_move(len(sizes))
    usd_per_month = sum(sizes) / _GIB * standard.usd_per_gb_month
    kept_days = 0 if kept_ms is None else kept_ms / DAY_MS
    return replace(
        without_storage,
        requests=requests,
        usd=without_storage.usd + _usd_of_requests(requests, prices, archive_class),
        usd_of_both_copies=usd_per_month * kept_days / _MONTH_DAYS,
        usd_per_month_saved=usd_per_month - _usd_of_archive(sizes, archive, archive_class),
    )


def _seconds_of_move(
    partitions: Sequence[tuple[Sequence[DataFile], bool]], *, on_disk: bool
) -> float:
    """The duration of the run. S3 copies objects itself, so copied bytes count only on a disk."""
    file_count = 0
    total_bytes = 0
    rewritten_bytes = 0
    for files, is_rewritten in partitions:
        size_bytes = sum(file.size_bytes for file in files)
        file_count += len(files)
        total_bytes += size_bytes
        # Spark writes rewritten rows to staged files, which are then copied like other files.
        rewritten_bytes += size_bytes if is_rewritten else 0
    copied_bytes = total_bytes if on_disk else 0
    return (
        _STATEMENT_SECONDS
        + file_count * _SECONDS_PER_FILE
        + copied_bytes / _COPIED_BYTES_PER_SECOND
        + rewritten_bytes / _REWRITTEN_BYTES_PER_SECOND
    )


def _requests_of_move(file_count: int) -> dict[str, int]:
    """The requests of a run: per file, 2 HEADs each of original and copy, a COPY and a GET."""
    return {
        "HeadObject": 4 * file_count,
        "CopyObject": file_count,
        "GetObject": file_count,
        "PutObject": 1,
        "ListObjectsV2": 2,
    }


def _usd_of_requests(
    requests: Mapping[str, int], prices: Prices, archive_class: ClassPrices
) -> float:
    # The PUT price of a storage class is not known. The price of a transition into the class stands
    # for it, and is 0 for STANDARD.
    usd_per_1000_copies = max(archive_class.usd_per_1000_transitions, prices.usd_per_1000_puts)
    puts = requests["PutObject"] + requests["ListObjectsV2"]
    gets = requests["HeadObject"] + requests["GetObject"]
    return (
        requests["CopyObject"] * usd_per_1000_copies
        + puts * prices.usd_per_1000_puts
        + gets * prices.usd_per_1000_gets
    ) / 1_000


def _usd_of_archive(sizes: Sequence[int], archive: Archive, archive_class: ClassPrices) -> float:
    """USD per month for copies of these sizes, including the minimums of their storage class.

    Small copies are billed for the minimum size. Copies that are kept for fewer days than the
    minimum are billed for the minimum. This bill is spread over `keep_days`.
    """
    billed_bytes = sum(max(size_bytes, archive_class.minimum_bytes) for size_bytes in sizes)
    billed_to_kept_days = max(1.0, archive_class.minimum_days / max(archive.keep_days, 1))
    return billed_bytes / _GIB * archive_class.usd_per_gb_month * billed_to_kept_days
