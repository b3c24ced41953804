"""Keeps the totals behind the counters, in `_lakehouse/metrics/totals.json`.

The first reading after a day is over adds its operations, once logs and journal surely have them.
Two readers that do so at the same time write the same totals: these follow from the same records.
"""

import json
from collections.abc import Mapping, Sequence

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.metrics.totals import TableTotals, decode_totals, encode_totals
from lakehouse.core.units import DAY_MS, HOUR_MS
from lakehouse.engine.journal.records import damaged, encoded
from lakehouse.engine.store import Store

_NAME = "_lakehouse/metrics/totals.json"


class Counters:
    """The totals of a lake's tables.

    Operations that ended since `since_ms` must be passed to `count`.
    """

    def __init__(self, store: Store, *, now_ms: int, first_ms: int, oldest_ms: int) -> None:
        """Reads the totals. Tables without any count from `first_ms` on.

        A table that was not read for long counts from `oldest_ms` on.

        Raises:
            Broken: the totals are damaged.
        """
        self._store = store
        self._first_ms = first_ms
        self._closed_ms = (now_ms - HOUR_MS) // DAY_MS * DAY_MS
        self._kept = _read(store)
        self._new = dict[str, TableTotals]()
        waiting = [each.until_ms for each in self._kept.values()]
        self.since_ms = max(oldest_ms, min([first_ms, *waiting]))

    def since_of(self, table: str) -> int:
        """The time since which `count` needs all operations of this table."""
        kept = self._kept.get(table)
        return max(self.since_ms, self._first_ms if kept is None else kept.until_ms)

    def count(
        self, table: str, operations: Sequence[UpkeepOperation], *, now_ms: int
    ) -> TableTotals:
        """The totals of a table up to now."""
        kept = self._kept.get(table, TableTotals(until_ms=self._first_ms))
        closed = kept.through(operations, self._closed_ms)
        if closed.until_ms != kept.until_ms or table not in self._kept:
            self._new[table] = closed
        return closed.through(operations, now_ms + 1)

    def keep(self) -> None:
        """Writes the totals of days that are over, if any are new."""
        if self._new:
            self._store.put(_NAME, encoded(encode_totals({**self._kept, **self._new})))


def _read(store: Store) -> Mapping[str, TableTotals]:
    try:
        return decode_totals(json.loads(store.read(_NAME)))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(_NAME, error) from error
