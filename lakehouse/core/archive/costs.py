"""What it costs to move files into an archive, and what that saves."""

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
# Measured with the tests' tables: a copy and its comparison, the DELETE with the reading of the
# log, and the rate at which Spark writes rows again.
_SECONDS_PER_FILE = 0.02
_COPIED_BYTES_PER_SECOND = 100 * 1024 * 1024
_REWRITTEN_BYTES_PER_SECOND = 10 * 1024 * 1024
_STATEMENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEstimate:
    """What a run is predicted to cost.

    - `usd`: machine and requests.
    - `usd_of_both_copies`: storage of the original files until a vacuum deletes them.
      `kept_ms` is that time, `None` if the table's retention is unknown.
    - `usd_per_month_saved`: storage of the moved files, less that of their copies. On a disk, all
      amounts for storage and requests are 0.
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
    """The estimate for partitions: their files, and whether Spark writes them again.

    `properties` are the table's. `classes` are the storage classes of S3, empty on a disk.
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
    """The time of the run. On S3, the bytes of a copy do not pass through this machine."""
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
    """USD per month for copies of these sizes: at least the minimum size and days of their class.

    Copies that are deleted earlier are billed for the minimum days.
    """
    charged_bytes = sum(max(size_bytes, into.minimum_bytes) for size_bytes in sizes)
    longer = max(1.0, into.minimum_days / max(archive.keep_days, 1))
    return charged_bytes / _GIB * into.usd_per_gb_month * longer
