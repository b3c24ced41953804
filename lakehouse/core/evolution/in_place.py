"""Plans changes of columns by metadata alone, with Delta's column mapping and type widening.

Both features raise the table's protocol, and older readers refuse such a table. Therefore, they are
used only if the table already has them, or if a person asks for it (`lakehouse evolve apply
--in-place`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.evolution.column_types import is_nested
from lakehouse.core.evolution.plan import Change, EvolutionPlan, Kind

COLUMN_MAPPING = "delta.columnMapping.mode"
TYPE_WIDENING = "delta.enableTypeWidening"
# Source: delta-io/delta v4.4.0, PROTOCOL.md; deltalake 1.6.6, table.py and its kernel's features
_MAPPING_LOSES = (
    "column mapping needs readers of protocol version 2 (Delta 1.2 or later); deltalake 1.6 reads"
    " the table through its SQL engine, not as a PyArrow dataset"
)
_WIDENING_LOSES = (
    "type widening needs readers that support it (Delta 3.2 or later); deltalake 1.6 cannot read"
    " the table any more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """The changes of a plan that need only new metadata.

    `renamed` has pairs of an existing and a new name. `properties` are table properties to set
    before the changes, because they enable the features. `loses` states for each feature to enable
    which readers it excludes.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    widened: tuple[Change, ...] = ()
    dropped: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    loses: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not (self.renamed or self.widened or self.dropped)

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each change, to report once it is made."""
        renamed = [f"renamed {before} to {after}" for before, after in self.renamed]
        widened = [
            f"widened {change.column.name} to {change.column.type}"
            for change in self.widened
            if change.column is not None
        ]
        dropped = [f"dropped {name}" for name in self.dropped]
        return (*renamed, *widened, *dropped)


def in_place_changes(
    plan: EvolutionPlan, snapshot: Snapshot, *, drop: Sequence[str] = (), is_asked: bool = False
) -> InPlace:
    """The changes to make in place, and the features to enable for them.

    Columns in `drop` are dropped. Without `is_asked`, only features that the table already has are
    used, and other changes (also in `drop`) are left out.
    """
    has_mapping = snapshot.properties.get(COLUMN_MAPPING, "none") != "none"
    has_widening = snapshot.properties.get(TYPE_WIDENING) == "true"
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    if has_mapping or is_asked:
        renamed = tuple(
            (change.before, change.column.name)
            for change in plan.of(Kind.COLUMN_RENAMED)
            if change.before is not None and change.column is not None
        )
        dropped = tuple(drop)
    widened: tuple[Change, ...] = ()
    if has_widening or is_asked:
        # Members of structs are widened by a rebuild.
        widened = tuple(
            change
            for change in plan.of(Kind.TYPE_WIDENED)
            if change.column is not None and not is_nested(change.column.type)
        )
    properties = list[tuple[str, str]]()
    loses = list[str]()
    if (renamed or dropped) and not has_mapping:
        properties.append((COLUMN_MAPPING, "name"))
        loses.append(_MAPPING_LOSES)
    if widened and not has_widening:
        properties.append((TYPE_WIDENING, "true"))
        loses.append(_WIDENING_LOSES)
    return InPlace(
        renamed=renamed,
        widened=widened,
        dropped=dropped,
        properties=tuple(properties),
        loses=tuple(loses),
    )
