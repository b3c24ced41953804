"""The declaration of a table's archive."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.column_names import check_columns
from lakehouse.core.declaration.knobs import check_knobs, knob, one_of, whole
from lakehouse.core.declaration.write_modes import Append, Overwrite, WriteMode
from lakehouse.core.errors import Refused

# The types of a partition column that can hold a date. Texts can hold an ISO date.
_TIMES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "string")
# Objects in these classes of S3 can be read at once. The Glacier classes that need a restore would
# make every read of the archive fail until its files have been restored.
_CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A table's archive: partitions move to Parquet files in `archive/`, and are deleted later."""

    older_than_days: int = knob(
        31, whole(1), "whole partitions move this many days after their end"
    )
    keep_days: int = knob(
        183,
        whole(0),
        "archived partitions are kept for this many days, counted from their move, and deleted"
        " afterwards",
    )
    clock: Literal["now", "newest_row"] = knob(
        "now",
        one_of("now", "newest_row"),
        "the time from which days are counted back. With `newest_row`, a table that gets no new"
        " rows keeps its rows",
    )
    late: Literal["append", "keep", "refuse"] = knob(
        "append",
        one_of("append", "keep", "refuse"),
        "rows that arrive for an archived partition: the next run archives them, they stay in the"
        " table, or they go to quarantine",
    )
    storage_class: str = knob(
        "STANDARD",
        one_of(*_CLASSES),
        "S3's storage class of the archived files. On a disk, it has no effect",
    )

    def __post_init__(self) -> None:
        check_knobs(self)


def check_archive(
    what: str, archive: Any, write: WriteMode, types: Mapping[str, str | None] | None
) -> None:
    """Refuses an archive of a table whose partitions have no time.

    `types` are the declared columns with their types, or `None` if the table has no landed rows,
    and so no quarantine. The partitions of an `Adopted` table are checked when an archive run is
    planned.
    """
    if not isinstance(archive, Archive):
        raise Refused(f"{what} is {archive!r}. Use Archive(older_than_days=…, keep_days=…).")
    if types is None and archive.late == "refuse":
        raise Refused(
            f"{what} has late='refuse', but only landed rows can go to quarantine. Use 'append' or"
            " 'keep'."
        )
    if isinstance(write, Adopted):
        return
    partition_by = write.partition_by if isinstance(write, Append) else ()
    if not partition_by:
        raise Refused(
            f"{what} is set, but only whole partitions are archived, and the table has none. Use"
            " Append(partition_by=…) with a date."
        )
    if not any(_can_have_a_time(name, (types or {}).get(name)) for name in partition_by):
        raise Refused(
            f"{what} is set, but no column of partition_by {partition_by} can have a time. Use a"
            " DATE, a TIMESTAMP, a text like 2026-01-31, or columns named year, month, day, hour."
        )


def _can_have_a_time(name: str, type_: str | None) -> bool:
    """Whether the column may give partitions a time; true if its type is unknown (`None`)."""
    if type_ is None or name.lower() == "year":
        return True
    first_word = type_.split("(")[0].split(maxsplit=1)[0]
    return first_word.lower() in _TIMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Ttl:
    """Deletes rows whose `column`, a DATE or TIMESTAMP, is `days` ago. Rows with null are kept."""

    column: str
    days: int
    clock: Literal["now", "newest_row"] = knob(
        "now",
        one_of("now", "newest_row"),
        "the time from which days are counted back. With `newest_row`, a table that gets no new"
        " rows keeps its rows",
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        check_columns("Ttl.column", (self.column,))
        if not whole(1).test(self.days):
            raise Refused(f"Ttl.days is {self.days!r}. Use {whole(1).words}.")


def check_ttl(
    what: str, ttl: Any, write: WriteMode, types: Mapping[str, str | None] | None
) -> None:
    """Refuses a TTL whose rows would come back, or whose column has no time.

    `types` are the declared columns with their types. If they are unknown (`None`), or a type is,
    the column is checked when a run is planned.
    """
    if not isinstance(ttl, Ttl):
        raise Refused(f"{what} is {ttl!r}. Use Ttl(column=…, days=…).")
    if isinstance(write, Overwrite):
        raise Refused(
            f"{what} is set, but each run of an Overwrite brings all rows back. Use a filter in its"
            " transform instead."
        )
    if types is None:
        return
    check_columns(what, (ttl.column,), among=[*types])
    type_ = types[ttl.column]
    if type_ is not None and type_.split("(")[0].split(maxsplit=1)[0].lower() not in _TIMES[:-1]:
        raise Refused(f"{what}: {ttl.column} is {type_}. Use a DATE or TIMESTAMP column.")
