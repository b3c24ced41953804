"""Pauses of tables, as records of the lake."""

from dataclasses import asdict

from lakehouse.declare.journal_records import Pause
from lakehouse.lake.lake import Lake
from lakehouse.lake.records import put_records, read_records

_KIND = "pause"


def pause_table(lake: Lake, pause: Pause) -> None:
    """Records a pause, replacing an earlier one."""
    content = asdict(pause)
    del content["table"]
    put_records(lake, _KIND, {(pause.table, ""): content})


def resume_table(lake: Lake, table_key: str) -> None:
    """Ends the pause of a table."""
    put_records(lake, _KIND, {(table_key, ""): None})


def pauses(lake: Lake, table_key: str | None = None) -> dict[str, Pause]:
    """Every pause by its table, including expired pauses; only that of one table, if given.

    Raises:
        Broken: the lake's records cannot be read.
    """
    return {
        each.table: Pause(table=each.table, **each.value)
        for each in read_records(lake, _KIND, table_key)
    }


def pause_of(lake: Lake, table_key: str) -> Pause | None:
    """The pause of one table, even if expired. Raises as `pauses`."""
    return pauses(lake, table_key).get(table_key)
