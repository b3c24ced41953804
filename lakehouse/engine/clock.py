"""The only clock. Core reads no clock; it gets the time as an argument."""

import random
import time


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def pause_about(seconds: float) -> None:
    """Waits for a random 0.5 to 1.5 times `seconds` before a request is repeated."""
    time.sleep(random.uniform(0.5, 1.5) * seconds)
