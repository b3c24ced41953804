"""Past vacuums: rows of the lake's operations, each with a `VacuumRecord` as its detail."""

from contextlib import suppress

from lakehouse.base.clock import now_ms
from lakehouse.base.text import DAY_MS
from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations

# Should include the last vacuum that searched storage (mode INVENTORY or FULL), because its time
# decides whether a new search is due. Otherwise, the next vacuum searches early, which is safe.
_DAYS = 90


def vacuum_records(lake: Lake, table_key: str) -> tuple[VacuumRecord, ...]:
    """The vacuums of a table in the last `_DAYS`, oldest first.

    Records of another version of this program are omitted. If no search for orphans is left, the
    next vacuum searches again.

    Raises:
        Broken: the lake's operations cannot be read.
    """
    since_ms = now_ms() - _DAYS * DAY_MS
    records = list[VacuumRecord]()
    for each in read_operations(lake, table_key, kind="vacuum", since_ms=since_ms):
        with suppress(TypeError):
            records.append(VacuumRecord(**each.detail))
    return tuple(records)
