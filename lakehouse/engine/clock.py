"""The one clock: core is told the time, and looks at none."""

import random
import time


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def pause_about(seconds: float) -> None:
    """Waits for 0.5 to 1.5 times `seconds`, at random, before a request is repeated."""
    time.sleep(random.uniform(0.5, 1.5) * seconds)
