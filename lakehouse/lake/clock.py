"""Compares this machine's clock with the storage's clock, before anything is deleted by age."""

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.lake.lake import Lake

# The store's modification time of this file shows the storage's time.
_CLOCK = "_lakehouse/clock"
_MAX_DIFFERENCE_MS = 300_000


def check_clock(lake: Lake, table_key: str) -> None:
    """Refuses if this machine's clock and the storage's clock differ by more than five minutes.

    Otherwise, a file could be past the retention by one clock, but not by the other. For a table in
    a bucket outside the lake, this bucket's clock (the date of a response) is checked, too.
    """
    lake.store.put(_CLOCK, b"")
    stored = lake.store.stat(_CLOCK)
    lake_ms = None if stored is None else stored.modified_ms
    table_ms = lake.clock_ms(table_key)
    differences_ms = [abs(now_ms() - ms) for ms in (lake_ms, table_ms) if ms is not None]
    difference_ms = max(differences_ms, default=0)
    if difference_ms > _MAX_DIFFERENCE_MS:
        raise Refused(
            f"{table_key}: this machine's clock and the storage's clock differ by "
            f"{difference_ms / 1_000:.0f} s (limit {_MAX_DIFFERENCE_MS / 1_000:.0f} s). "
            "Synchronize this machine's clock with a time server, then try again"
        )
