"""Write modes: how the rows of a table are written."""

from dataclasses import dataclass

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.column_names import check_columns
from lakehouse.core.declaration.knobs import check_knobs, knob, one_of
from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Each batch or increment adds rows."""

    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_columns("Append.partition_by", self.partition_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Keeps one row per value of `keys`. A row with greater `order_by` columns replaces it.

    Change data is ordered by its source instead, and its deletions are applied as `deletes` says.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    deletes: str = knob(
        "hard",
        one_of("hard", "soft"),
        "a deletion removes the row, or marks it in the column `_deleted`",
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if not self.keys:
            raise Refused("Merge.keys is empty. Use at least one column that identifies a row.")
        check_columns("Merge.keys", self.keys)
        check_columns("Merge.order_by", self.order_by)
        if both := sorted(set(self.keys) & set(self.order_by)):
            raise Refused(
                f"Merge.order_by holds the key {both[0]!r}, which is equal in all rows of one key."
                " Use other columns."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Each run replaces all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Every version of each row, from landed change data (slowly changing dimension, type 2).

    A version is valid from `valid_from` until `valid_to`, which is null if `is_current`. A deletion
    is a version of zero duration.
    """

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise Refused("History.keys is empty. Use at least one column that identifies a row.")
        check_columns("History.keys", self.keys)


WriteMode = Append | Merge | History | Overwrite | Adopted
