"""The declaration of a table's archive."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.knobs import check_knobs, knob, one_of, whole
from lakehouse.declare.write_modes import Append, Overwrite, WriteMode
from lakehouse.delta.columns import check_columns

_TIME_TYPES = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")
# Column types that can give a partition its time. A string can hold an ISO date.
_PARTITION_TYPES = (*_TIME_TYPES, "string")
# Objects in these S3 storage classes can be read immediately. In the other Glacier classes, every
# read of the archive would fail until its files are restored.
_CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR")


def _clock() -> Any:
    return knob(
        "now",
        one_of("now", "newest_row"),
        "the time from which days are counted back. With `newest_row`, a table that gets no new"
        " rows keeps its rows",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A table's archive: partitions move to a Delta table in `archive/`, and are deleted later."""

    older_than_days: int = knob(
        31,
        whole(1),
        "a partition moves to the archive, as a whole, this many days after the next one started",
    )
    keep_days: int = knob(
        183,
        whole(0),
        "an archived partition is deleted this many days after its rows were last archived",
    )
    clock: Literal["now", "newest_row"] = _clock()
    storage_class: str = knob(
        "STANDARD",
        one_of(*_CLASSES),
        "the S3 storage class of the archived files. On a disk, it has no effect",
    )

    def __post_init__(self) -> None:
        check_knobs(self)


def check_archive(
    what: str, archive: Any, write: WriteMode, types: Mapping[str, str | None] | None
) -> None:
    """Refuses an archive of a table without partitions that can have a time.

    `types` maps the declared columns to their types. It is `None` for a table that is not loaded
    from landed files. The partitions of an `Adopted` table are checked when a run is planned.
    """
    if not isinstance(archive, Archive):
        raise Refused(f"{what} is {archive!r}. Use Archive(older_than_days=…, keep_days=…).")
    if isinstance(write, Adopted):
        return
    partition_by = write.partition_by if isinstance(write, Append) else ()
    if not partition_by:
        raise Refused(
            f"{what} is set, but only whole partitions are archived, and the table has no"
            " partitions. Use Append(partition_by=…) with a date."
        )
    known_types = types or {}
    if not any(_can_give_time(name, known_types.get(name)) for name in partition_by):
        raise Refused(
            f"{what} is set, but no column of partition_by {partition_by} can give a partition its"
            " time. Use a DATE or TIMESTAMP column, a STRING column with values like 2026-01-31, or"
            " columns named year, month, day, hour."
        )


def _can_give_time(name: str, type_: str | None) -> bool:
    """Whether the column can give a partition its time; true if its type is unknown (`None`)."""
    if type_ is None or name.lower() == "year":
        return True
    return _type_name(type_) in _PARTITION_TYPES


def _type_name(type_: str) -> str:
    """The type in lower case, without parameters and suffixes such as `NOT NULL`."""
    return type_.split("(")[0].split(maxsplit=1)[0].lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ttl:
    """Deletes rows whose `column` lies more than `days` days before `clock`.

    `column` is a DATE or TIMESTAMP. Rows with null are kept.
    """

    column: str
    days: int
    clock: Literal["now", "newest_row"] = _clock()

    def __post_init__(self) -> None:
        check_knobs(self)
        check_columns("Ttl.column", (self.column,))
        if not whole(1).test(self.days):
            raise Refused(f"Ttl.days is {self.days!r}. Use {whole(1).words}.")


def check_ttl(
    what: str, ttl: Any, write: WriteMode, types: Mapping[str, str | None] | None
) -> None:
    """Refuses a TTL of an Overwrite table, or of a column that is not a declared DATE or TIMESTAMP.

    `types` maps the declared columns to their types. If `types` or the type of `ttl.column` is
    `None` (unknown), the column is checked later, when a run is planned.
    """
    if not isinstance(ttl, Ttl):
        raise Refused(f"{what} is {ttl!r}. Use Ttl(column=…, days=…).")
    if isinstance(write, Overwrite):
        raise Refused(
            f"{what} is set, but each run of an Overwrite table writes all rows again. Use a filter"
            " in its transform instead."
        )
    if types is None:
        return
    check_columns(what, (ttl.column,), among=[*types])
    type_ = types[ttl.column]
    if type_ is not None and _type_name(type_) not in _TIME_TYPES:
        raise Refused(f"{what}: {ttl.column} is {type_}. Use a DATE or TIMESTAMP column.")
