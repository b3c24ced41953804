"""Write modes: how the rows of a table are written, by this lake or by other programs."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from lakehouse.base.errors import Refused
from lakehouse.base.paths import name_below, parse_address
from lakehouse.base.text import either
from lakehouse.declare.knobs import check_knobs, knob, one_of
from lakehouse.delta.columns import check_columns

_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")
LAYERS = ("bronze", "silver", "gold")
Orphans = Literal["keep", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A table that other programs write and this lake maintains.

    - `uri`: an absolute folder, or `s3://bucket/folder`.
    - `orphans`: with `keep`, a vacuum keeps files that the log never named, because they may belong
      to other programs.
    - `asset_key` and `pool`: the key and the pool of the asset that writes the table, if that asset
      belongs to the same Dagster project.
    """

    uri: str
    orphans: Orphans = "keep"
    asset_key: tuple[str, ...] = ()
    pool: str = ""

    def __post_init__(self) -> None:
        if self.orphans not in get_args(Orphans):
            words = either([repr(word) for word in get_args(Orphans)])
            raise Refused(f"Adopted.orphans is {self.orphans!r}. Use {words}.")
        address = parse_address(self.uri, base="/")
        if address != self.uri:
            is_absolute = self.uri.startswith("/") or ":" in self.uri
            expected = repr(address) if is_absolute else "an absolute folder, or s3://bucket/folder"
            raise Refused(f"Adopted.uri is {self.uri!r}. Use {expected}.")

    @property
    def on_s3(self) -> bool:
        """Whether the table is on S3."""
        return self.uri.startswith("s3://")


def key_of(address: str, taken: Collection[str]) -> str:
    """A key `layer/name` that is derived from the address and not yet `taken`.

    The layer is the innermost folder above the table whose name is a layer, or silver if there is
    none. The name is the table's folder. If that key is taken, up to two parent folders are
    prefixed. If all these keys are taken, a number is appended to the first one.
    """
    parts = [part for part in address.removeprefix("s3://").split("/") if part]
    layer = next((part for part in reversed(parts[:-1]) if part in LAYERS), "silver")
    names = [_name(part) for part in reversed(parts)]
    for count in range(1, min(len(names), 3) + 1):
        joined = "_".join(reversed(names[:count]))
        key = f"{layer}/{_name(joined[-98:])}"
        if key not in taken:
            return key
    first = f"{layer}/{names[0][:90]}" if names else f"{layer}/table"
    number = 2
    while f"{first}_{number}" in taken:
        number += 1
    return f"{first}_{number}"


def is_inside(address: str, other: str) -> bool:
    """Whether the address is below the other one."""
    return name_below(address, other) is not None


def folders_above(address: str) -> Iterator[str]:
    """The parent folders of an address, innermost first; the bucket is included, `/` is not."""
    parent = address.rpartition("/")[0]
    while parent not in ("", "s3:/"):
        yield parent
        parent = parent.rpartition("/")[0]


def _name(part: str) -> str:
    name = _NOT_IN_NAMES.sub("_", part.lower()).strip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"


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
