"""Stores the totals behind the counters, in `_lakehouse/metrics/totals.json`.

The first reading at least an hour after the end of a day (UTC) adds the operations of that day. By
then, logs and journal contain all of them. If two readers do this at the same time, both write the
same totals, because both compute them from the same records.
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

    `count` needs all operations that ended at or after `since_ms`.
    """

    def __init__(self, store: Store, *, now_ms: int, first_ms: int, oldest_ms: int) -> None:
        """Reads the stored totals.

        Operations of a table without stored totals are counted from `first_ms` on. Operations
        before `oldest_ms` are never counted, even if the last reading is longer ago.

        Raises:
            Broken: the totals are damaged.
        """
        self._store = store
        self._first_ms = first_ms
        # The end of the last day that ended at least an hour ago.
        self._closed_ms = (now_ms - HOUR_MS) // DAY_MS * DAY_MS
        self._stored = _read(store)
        self._changed = dict[str, TableTotals]()
        counted_until_ms = [each.until_ms for each in self._stored.values()]
        self.since_ms = max(oldest_ms, min([first_ms, *counted_until_ms]))

    def since_of(self, table: str) -> int:
        """The time in ms from which on `count` needs all operations of this table."""
        stored = self._stored.get(table)
        return max(self.since_ms, self._first_ms if stored is None else stored.until_ms)

    def count(
        self, table: str, operations: Sequence[UpkeepOperation], *, now_ms: int
    ) -> TableTotals:
        """The totals of a table up to `now_ms`, of which `keep` stores those up to `_closed_ms`."""
        stored = self._stored.get(table, TableTotals(until_ms=self._first_ms))
        closed = stored.through(operations, self._closed_ms)
        if closed.until_ms != stored.until_ms or table not in self._stored:
            self._changed[table] = closed
        return closed.through(operations, now_ms + 1)

    def keep(self) -> None:
        """Stores the totals up to `_closed_ms`, if they have changed."""
        if self._changed:
            self._store.put(_NAME, encoded(encode_totals({**self._stored, **self._changed})))


def _read(store: Store) -> Mapping[str, TableTotals]:
    try:
        return decode_totals(json.loads(store.read(_NAME)))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(_NAME, error) from error
