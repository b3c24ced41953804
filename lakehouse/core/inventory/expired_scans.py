"""Selects the files of this program's old scans that may be deleted.

**Safety properties** (tests in `core/inventory/test_checks.py`)
- A file is selected only if it is in the folder of our own inventory configuration, and if its name
  has the form that our scans use. A report by AWS is never selected.
- A report is selected only if its stamp, the time at which its scan began, is older than
  `KEPT_DAYS`. The newest complete report is never selected.
- A data file, or the leftover of a killed write, is kept a day longer than a report of the same
  age. By then, every scan that was running when the file was written has ended.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from lakehouse.core.inventory.objects import UNFINISHED
from lakehouse.core.units import DAY_MS

# Reports remain available for two weeks. The inventory table keeps the content of older reports.
KEPT_DAYS = 14
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d-\d\dZ)/manifest\.(?:json|checksum)"
    r"|hive/dt=(\d{4}-\d\d-\d\d)-(\d\d-\d\d)/symlink\.txt"
)
_DATA = re.compile(r"data/[0-9a-f-]{36}\.parquet")


def expired(
    files: Iterable[tuple[str, int]], *, newest: str | None, now_ms: int
) -> tuple[str, ...]:
    """The names of the files that may be deleted, checksums first.

    `files` are names relative to the configuration's folder, with modification times. `newest` is
    the stamp of the newest complete report. Without a complete report, or if the newest one has
    expired itself, no file may be deleted.
    """
    reports_ms = now_ms - KEPT_DAYS * DAY_MS
    data_ms = now_ms - (KEPT_DAYS + 1) * DAY_MS
    kept_ms = stamp_ms(newest or "")
    if kept_ms is None or kept_ms < reports_ms:
        return ()
    names: list[str] = []
    for name, modified_ms in files:
        match = _STAMP.fullmatch(name)
        if match is not None:
            began_ms = stamp_ms(match[1] or f"{match[2]}T{match[3]}Z")
            is_expired = began_ms is not None and began_ms < reports_ms
        else:
            is_ours = _DATA.fullmatch(name) or UNFINISHED.fullmatch(name.rpartition("/")[2])
            is_expired = is_ours is not None and modified_ms < data_ms
        if is_expired:
            names.append(name)
    # Readers ignore a report without a checksum. Because checksums are deleted first, no reader
    # uses a partly deleted report.
    return tuple(sorted(names, key=lambda name: (not name.endswith("manifest.checksum"), name)))


def stamp_ms(stamp: str) -> int | None:
    """The time at which the report with this stamp began; `None` if the stamp is invalid."""
    try:
        time = datetime.strptime(stamp, "%Y-%m-%dT%H-%MZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(time.timestamp() * 1_000)
