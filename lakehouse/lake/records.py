"""What the lake notes about its tables: `_lakehouse/records`, a Delta table.

Of each kind, table and key, the newest row counts. A row without a value deletes the note; both
are gone after the next merge.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from lakehouse.base.clock import now_ms
from lakehouse.declare.upkeep_records import Pause
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_table import TIME, StateTable

_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("table", pa.string()),
        ("key", pa.string()),
        ("at", TIME),
        ("value", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note about a table (or the whole lake, if `table` is empty). Its `value` is JSON."""

    kind: str
    table: str
    key: str = ""
    at_ms: int
    value: Any


def read_records(lake: Lake, kind: str, table_key: str | None = None) -> list[Note]:
    """The notes of a kind; only those of one table, if given. Raises as `StateTable.read`."""
    return _current([each for each in _TABLE.read(lake, table_key) if each.kind == kind])


def put_records(lake: Lake, kind: str, values: Mapping[tuple[str, str], Any]) -> None:
    """Notes values by table and key; `None` deletes. Raises as `StateTable.append`."""
    at_ms = now_ms()
    rows = [
        Note(kind=kind, table=table, key=key, at_ms=at_ms, value=value)
        for (table, key), value in values.items()
    ]
    if rows:
        _TABLE.append(lake, rows)


_PAUSE = "pause"


def pause_table(lake: Lake, pause: Pause) -> None:
    """Records a pause, replacing an earlier one."""
    content = asdict(pause)
    del content["table"]
    put_records(lake, _PAUSE, {(pause.table, ""): content})


def resume_table(lake: Lake, table_key: str) -> None:
    """Ends the pause of a table."""
    put_records(lake, _PAUSE, {(table_key, ""): None})


def pauses(lake: Lake, table_key: str | None = None) -> dict[str, Pause]:
    """Every pause by its table, including expired pauses; only that of one table, if given.

    Raises:
        Broken: the lake's records cannot be read.
    """
    return {
        each.table: Pause(table=each.table, **each.value)
        for each in read_records(lake, _PAUSE, table_key)
    }


def pause_of(lake: Lake, table_key: str) -> Pause | None:
    """The pause of one table, even if expired. Raises as `pauses`."""
    return pauses(lake, table_key).get(table_key)


def _current(rows: list[Note]) -> list[Note]:
    newest = dict[tuple[str, str, str], Note]()
    for each in sorted(rows, key=lambda row: row.at_ms):
        newest[each.kind, each.table, each.key] = each
    return [each for each in newest.values() if each.value is not None]


def _as_row(record: Note) -> dict[str, Any]:
    text = json.dumps(record.value, separators=(",", ":"))
    return {
        "kind": record.kind,
        "table": record.table,
        "key": record.key,
        "at": record.at_ms,
        "value": None if record.value is None else text,
    }


def _from_row(row: Mapping[str, Any]) -> Note:
    return Note(
        kind=row["kind"],
        table=row["table"],
        key=row["key"],
        at_ms=row["at"],
        value=None if row["value"] is None else json.loads(row["value"]),
    )


_TABLE = StateTable(
    "_lakehouse/records",
    _SCHEMA,
    to_row=_as_row,
    from_row=_from_row,
    current=_current,
)
