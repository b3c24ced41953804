"""The files of our own old scans that may go.

**Safety properties** (tests in `core/inventory/test_checks.py`)
- Only names of the layout that our scan writes are chosen, in the folder of our own configuration:
  never a report of AWS.
- A report goes when it is older than `KEPT_DAYS` by its own stamp. The newest complete one never
  does.
- A data file, or the rest of a killed write, goes a day later than reports of its age: by then,
  every scan that ran when it was written has ended.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from lakehouse.core.inventory.objects import UNFINISHED
from lakehouse.core.units import DAY_MS

# A fortnight of days to look back at; the inventory table keeps what the reports said.
KEPT_DAYS = 14
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d-\d\dZ)/manifest\.(?:json|checksum)"
    r"|hive/dt=(\d{4}-\d\d-\d\d)-(\d\d-\d\d)/symlink\.txt"
)
_DATA = re.compile(r"data/[0-9a-f-]{36}\.parquet")


def expired(
    files: Iterable[tuple[str, int]], *, newest: str | None, now_ms: int
) -> tuple[str, ...]:
    """Of names relative to the configuration's folder, each with its time of modification, those
    that may go, checksums first.

    `newest` is the stamp of the newest complete report; without a young one nothing goes.
    """
    reports_ms, data_ms = now_ms - KEPT_DAYS * DAY_MS, now_ms - (KEPT_DAYS + 1) * DAY_MS
    kept_ms = stamp_ms(newest or "")
    if kept_ms is None or kept_ms < reports_ms:
        return ()
    found: list[str] = []
    for name, modified_ms in files:
        if match := _STAMP.fullmatch(name):
            began_ms = stamp_ms(match[1] or f"{match[2]}T{match[3]}Z")
            if began_ms is not None and began_ms < reports_ms:
                found.append(name)
        elif (
            _DATA.fullmatch(name) or UNFINISHED.fullmatch(name.rpartition("/")[2])
        ) and modified_ms < data_ms:
            found.append(name)
    # Without its checksum a report is none: what is read while the rest goes is refused or passed
    # over, never half.
    return tuple(sorted(found, key=lambda name: (not name.endswith("manifest.checksum"), name)))


def stamp_ms(stamp: str) -> int | None:
    """The time at which the report of this stamp began; `None` for what is no stamp."""
    try:
        return int(
            datetime.strptime(stamp, "%Y-%m-%dT%H-%MZ").replace(tzinfo=UTC).timestamp() * 1_000
        )
    except ValueError:
        return None
