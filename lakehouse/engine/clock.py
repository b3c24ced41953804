"""The only module that reads the clock. Functions in core get the time as an argument."""

import random
import time
from typing import TYPE_CHECKING

from lakehouse.core.errors import Refused

if TYPE_CHECKING:
    from lakehouse.engine.lake import Lake

_CLOCK = "_lakehouse/clock"
_CLOCK_OFF_MS = 300_000


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def pause_about(seconds: float) -> None:
    """Sleeps for a random time between 0.5 and 1.5 times `seconds`."""
    time.sleep(random.uniform(0.5, 1.5) * seconds)


def check_clock(lake: "Lake", table_key: str) -> None:
    """Refuses if this machine's clock and the storage's clock differ by more than five minutes.

    By one clock, a file may be past the retention, but not by the other clock. For a table in a
    bucket outside the lake, this bucket's clock (the date of a response) is checked, too.
    """
    lake.store.put(_CLOCK, b"")
    stored = lake.store.stat(_CLOCK)
    times_ms = (stored.modified_ms if stored else None, lake.clock_ms(table_key))
    off_ms = max((now_ms() - ms for ms in times_ms if ms is not None), key=abs, default=0)
    if abs(off_ms) > _CLOCK_OFF_MS:
        raise Refused(
            f"{table_key}: this machine's clock and the storage's clock differ by "
            f"{abs(off_ms) / 1_000:.0f} s (limit {_CLOCK_OFF_MS / 1_000:.0f} s). Synchronize this "
            "machine's clock with a time server, then try again"
        )
