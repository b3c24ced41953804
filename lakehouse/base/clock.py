"""The clock, and pauses. Plans get the time as an argument."""

import random
import time


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def pause_about(seconds: float) -> None:
    """Sleeps for a random time between 0.5 and 1.5 times `seconds`."""
    time.sleep(random.uniform(0.5, 1.5) * seconds)  # random, so that retries do not collide
