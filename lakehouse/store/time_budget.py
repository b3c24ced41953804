"""Limits the time of a sensor tick's storage requests, and decides which tables come first.

Dagster ends a tick after 60 s, and the tick's results are lost (dagster-io/dagster#14830). Outside
of ticks, a client makes three attempts of 60 s, so a request to a server that accepts connections
but never answers takes 181 s. With such a client, Dagster would end every tick at the same table.

1. The S3 clients of a tick wait a few seconds for a response, and try twice.
2. A late tick does not start with another table. The next tick serves the remaining tables first,
   and the slow tables last.
3. When the time is used up, no more requests are sent. An attempt that was already sent ends within
   seconds, by its timeouts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lakehouse.base.errors import Transient

# With the default timeouts, a request that is never answered takes 13 s: two attempts of 6 s, and a
# pause.
ATTEMPTS = 2


@dataclass(slots=True, kw_only=True)
class TimeBudget:
    """The time budget of one sensor's ticks.

    After `late_seconds`, a tick starts no more work. After `most_seconds`, it sends no more
    requests, so it ends within 41 s: 32 s, plus the timeouts of the last attempt. The timeouts of
    an attempt (`connect_seconds`, `read_seconds`) allow for a listing by a busy server, which takes
    up to 3 s.

    If two ticks run at the same time, both use the budget of the tick that began later.
    """

    late_seconds: float = 18.0
    most_seconds: float = 32.0
    connect_seconds: float = 3.0
    read_seconds: float = 6.0
    clock: Callable[[], float] = time.monotonic
    _began: float = field(default=float("inf"), init=False)

    def begin(self) -> None:
        """Starts the budget of a tick."""
        self._began = self.clock()

    @property
    def client_options(self) -> dict[str, Any]:
        """The options of `s3_client` for clients of a tick."""
        return {
            "connect_seconds": self.connect_seconds,
            "read_seconds": self.read_seconds,
            "max_attempts": ATTEMPTS,
        }

    @property
    def spent_seconds(self) -> float:
        """Seconds since the tick began; negative infinity before the first tick."""
        return self.clock() - self._began

    def is_late(self, share: float = 1.0) -> bool:
        """Whether this `share` of `late_seconds` is used up, so that no more work should start."""
        return self.spent_seconds >= share * self.late_seconds

    def check(self, **_: Any) -> None:
        """Called before a request is sent.

        Raises:
            Transient: the time is used up.
        """
        if self.spent_seconds >= self.most_seconds:
            raise Transient(
                f"storage is slow, and the {self.most_seconds:g} s of this tick are used up; "
                "the next tick tries again"
            )


class FairOrder:
    """The order in which the ticks of one process serve keys: unserved keys first, slow keys last.

    A key that the last tick did not serve comes first even if the key was slow before, so every key
    is served eventually.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [*keys]

    def within(self, budget: TimeBudget, *, share: float = 1.0) -> Iterator[str]:
        """Yields keys in order until the tick is late: until `share` of `late_seconds` is used up.

        At least one key is yielded, so that every tick makes progress.
        """
        order = [*self._keys]
        slow = list[str]()
        served = 0
        for key in order:
            if served and budget.is_late(share):
                break
            started = budget.spent_seconds
            yield key
            served += 1
            # At least as long as one timeout.
            if budget.spent_seconds - started >= min(budget.connect_seconds, budget.read_seconds):
                slow.append(key)
        quick = [key for key in order[:served] if key not in slow]
        self._keys = [*order[served:], *quick, *slow]
