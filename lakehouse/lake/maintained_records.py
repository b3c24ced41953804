"""The records of tables that `maintain` maintains: `_lakehouse/maintained/<name>-<hash>.json`.

Each call of `maintain` has one record. The call's observation sensor writes the record when the
call's tables or knobs have changed, and confirms the record once a day by writing it again. A
record that was not confirmed for 30 days is no longer in force, and the next sensor that writes any
record deletes it.
"""

import json
from collections.abc import Sequence
from hashlib import sha256

from lakehouse.base.errors import Refused
from lakehouse.base.units import DAY_MS
from lakehouse.declare.maintained import maintained_document, parse_maintained
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.store import Store, StoredFile

MAINTAINED = "_lakehouse/maintained"
_CONFIRMED_EVERY_MS = DAY_MS
_IN_FORCE_MS = 30 * DAY_MS


class MaintainedRecord:
    """The record of one call of `maintain`. `name` begins the names of the call's sensors."""

    def __init__(self, lake: Lake, tables: Sequence[Table], *, name: str) -> None:
        home = str(lake.settings.home)
        document = maintained_document(tables, home=home)
        self._store = lake.store
        # Projects that share a lake may use the same name.
        self._name = f"{MAINTAINED}/{name}-{sha256(home.encode()).hexdigest()[:8]}.json"
        self._content = json.dumps(document, indent=1).encode()
        self._confirmed_ms: int | None = None

    def confirm(self, now_ms: int) -> None:
        """Writes the record if the stored one differs or is a day old.

        After a write, all records that are no longer in force are deleted. Only the first call
        reads the stored record.
        """
        if self._confirmed_ms is None:
            self._confirmed_ms = self._stored_ms()
        if 0 <= now_ms - self._confirmed_ms < _CONFIRMED_EVERY_MS:
            return
        self._store.put(self._name, self._content)
        self._confirmed_ms = now_ms
        records = self._store.list(MAINTAINED)
        self._store.delete([each.name for each in records if not _is_in_force(each, now_ms)])

    def _stored_ms(self) -> int:
        """The time at which this record was stored; 0 if it is missing or differs."""
        stored = self._store.stat(self._name)
        if stored is None or self._store.read(self._name) != self._content:
            return 0
        return stored.modified_ms


def maintained_tables(store: Store, *, now_ms: int) -> dict[str, Table]:
    """The tables in a lake's records, by key. Of two records with the same key, the newer counts.

    Raises:
        Refused: a record is not JSON, or has a knob or a value that this version does not accept.
    """
    records = [each for each in store.list(MAINTAINED) if _is_in_force(each, now_ms)]
    tables = dict[str, Table]()
    for record in sorted(records, key=lambda each: each.modified_ms):
        try:
            document = json.loads(store.read(record.name))
        except FileNotFoundError:  # a sensor has just deleted it
            continue
        except ValueError as error:
            raise Refused(
                f"{record.name} is not JSON ({error}). Delete it; the project's observation "
                "sensor writes it again once its code location is reloaded"
            ) from error
        tables |= parse_maintained(document, name=record.name)
    return tables


def _is_in_force(record: StoredFile, now_ms: int) -> bool:
    return now_ms - record.modified_ms < _IN_FORCE_MS
