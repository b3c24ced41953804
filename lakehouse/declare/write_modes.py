"""Write modes: how the rows of a table are written."""

from dataclasses import dataclass

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.knobs import check_knobs, knob, one_of
from lakehouse.delta.columns import check_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Each batch of landed files, or of changes of the first input, adds rows."""

    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_columns("Append.partition_by", self.partition_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Keeps one row per combination of `keys`: the row with the greatest `order_by` values.

    Change data has no `order_by`: its source defines the order. `deletes` is the effect of a
    deletion in change data.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    deletes: str = knob(
        "hard",
        one_of("hard", "soft"),
        '`"hard"`: a deletion removes the row. `"soft"`: it marks the row in the column `_deleted`',
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if not self.keys:
            raise Refused("Merge.keys is empty. Use at least one column that identifies a row.")
        check_columns("Merge.keys", self.keys)
        check_columns("Merge.order_by", self.order_by)
        shared = sorted(set(self.keys) & set(self.order_by))
        if shared:
            raise Refused(
                f"Merge.order_by holds the key {shared[0]!r}, which cannot order rows with equal"
                " keys. Use other columns."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Each run replaces all rows."""


WriteMode = Append | Merge | Overwrite | Adopted
