"""The words a user declares tables with: values, of which a faulty one is refused as soon as it is made."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from inspect import signature
from itertools import permutations
from math import inf
from types import ModuleType
from typing import Any

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.change_sources import HISTORY_COLUMNS, Dms, type_of_changes
from lakehouse.core.declaration.column_names import check_columns, field_names
from lakehouse.core.declaration.compaction_policy import (
    LAYERS,
    Compaction,
    LiquidClustering,
    ZOrder,
)
from lakehouse.core.declaration.knobs import check_knobs, knob, one_of
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.declaration.strategies import BySensor, Scheduled
from lakehouse.core.declaration.strategy_properties import MARKS, desired_properties
from lakehouse.core.declaration.vacuum_policy import Vacuum
from lakehouse.core.errors import Refused

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
# Source: delta-io/delta v4.4.0, DeltaSQLConf, clusteredTable.numClusteringColumnsLimit.
_CLUSTERING_COLUMNS = 4
# With it Delta forgets which batches a table holds, and they would be loaded again. Source: PROTOCOL.md, "Transaction Identifiers"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Each batch or increment adds rows."""

    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_columns("Append.partition_by", self.partition_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """One row per `keys`; another row takes its place only if its `order_by` columns are greater, compared in turn.

    Change data has its own order instead, and deletes rows: `"hard"` takes them out of the table, `"soft"` marks them in `_deleted`.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    deletes: str = knob(
        "hard",
        one_of("hard", "soft"),
        "a deletion takes the row out, or marks it in the column `_deleted`",
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if not self.keys:
            raise Refused(
                "Merge.keys is empty; accepted: at least one column that tells rows apart"
            )
        check_columns("Merge.keys", self.keys)
        check_columns("Merge.order_by", self.order_by)
        if both := sorted(set(self.keys) & set(self.order_by)):
            raise Refused(
                f"Merge.order_by holds the key {both[0]!r}, which is the same in all rows of one key; accepted: other columns"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Each run replaces all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Every version of the rows of `keys`, from landed change data (slowly changing dimension, type 2).

    A version holds from `valid_from` to before `valid_to`, null for the one that `is_current`. A deletion is a version of no length.
    """

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise Refused(
                "History.keys is empty; accepted: at least one column that tells rows apart"
            )
        check_columns("History.keys", self.keys)


type_of_write = Append | Merge | History | Overwrite | Adopted


@dataclass(frozen=True, kw_only=True)
class Table:
    """One Delta table: where its rows come from, how they are written, and its upkeep.

    Exactly one of `source` (landed files) or `transform` with `inputs` (other tables) is given; neither for an `Adopted` table. A `Merge`
    or `Append` reads its first input by its changes; all else is read whole. `transform` takes one DataFrame per input, by its name.
    """

    key: str
    write: type_of_write
    source: Landing | None = None
    inputs: tuple["Table", ...] = ()
    transform: Callable[..., Any] | None = None
    compaction: Compaction = field(default_factory=Compaction)
    vacuum: Vacuum = field(default_factory=Vacuum)
    properties: dict[str, str] = field(default_factory=dict[str, str])
    fresh_within_hours: float | None = None
    prices: Prices = DEFAULT_PRICES
    description: str = ""
    column_descriptions: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        parts = self.key.split("/")
        if (
            len(parts) != 2
            or not all(_NAME.fullmatch(part) for part in parts)
            or parts[0] not in LAYERS
        ):
            layers = ", ".join(LAYERS)
            raise Refused(
                f"Table.key is {self.key!r}; accepted: layer/name, a layer of {layers}, a name of a-z, 0-9 and _ after a letter"
            )
        if isinstance(self.write, Adopted):
            self._check_adopted()
        elif (self.source is None) == (self.transform is None):
            raise self._refused(
                "give either source= (landed files) or a transform with inputs=, not both or neither"
            )
        if self.fresh_within_hours is not None and not 0 < self.fresh_within_hours < inf:
            raise self._refused(
                f"fresh_within_hours is {self.fresh_within_hours}; accepted: more than 0"
            )
        if self.source is not None:
            self._check_landed(self.source)
        elif self.transform is not None:
            self._check_derived()
        self._check_upkeep()

    def _check_upkeep(self) -> None:
        layout, by = (
            self.compaction.data_layout,
            self.write.partition_by if isinstance(self.write, Append) else (),
        )
        if isinstance(layout, LiquidClustering) and by:
            raise self._refused(
                f"LiquidClustering beside Append.partition_by {by}; accepted: one of the two, or ZOrder"
            )
        if isinstance(layout, LiquidClustering) and len(layout.columns) > _CLUSTERING_COLUMNS:
            raise self._refused(
                f"LiquidClustering has {len(layout.columns)} columns; accepted: at most {_CLUSTERING_COLUMNS}"
            )
        if isinstance(layout, ZOrder) and (
            both := [
                name for name in layout.columns if name.lower() in {each.lower() for each in by}
            ]
        ):
            raise self._refused(
                f"ZOrder holds the partition column {both[0]!r}; accepted: columns that are in no partition_by"
            )
        if isinstance(layout, ZOrder | LiquidClustering) and self.source is not None:
            check_columns(
                f"Table {self.key}: {type(layout).__name__}.columns",
                layout.columns,
                among=self.source.known_columns,
            )
        self._check_properties()

    def _check_properties(self) -> None:
        if own := sorted(set(self.properties) & set(MARKS)):
            raise self._refused(
                f"properties holds {own[0]!r}, which the lake writes itself; accepted: other names"
            )
        if forgets := [
            name for name in self.properties if name.lower() == TRANSACTION_RETENTION.lower()
        ]:
            raise self._refused(
                f"properties holds {forgets[0]!r}, with which it forgets which batches it holds, and loads them again; accepted: without it"
            )
        strategy = self.compaction.strategy
        of_vacuum = self.vacuum.properties_beside(self.properties)
        for setter, wanted in (
            ("Vacuum.retention_hours", of_vacuum),
            (type(strategy).__name__, desired_properties(strategy)),
        ):
            for name, value in wanted.items():
                if self.properties.get(name, value) != value:
                    raise self._refused(
                        f"properties sets {name} to {self.properties[name]!r}, {setter} to {value!r}; accepted: one"
                    )

    def _check_adopted(self) -> None:
        given: dict[str, object] = {
            name: getattr(self, name) for name in ("source", "inputs", "transform", "properties")
        }
        given["Vacuum.retention_hours"] = self.vacuum.retention_hours
        if found := [name for name, value in given.items() if value]:
            raise self._refused(
                f"{found[0]} beside Adopted, whose rows and properties are others' to write; accepted: without"
            )
        if not isinstance(strategy := self.compaction.strategy, BySensor | Scheduled):
            raise self._refused(
                f"{type(strategy).__name__} is a strategy of whoever writes; accepted: BySensor or Scheduled"
            )

    def _check_landed(self, source: Landing) -> None:
        check_columns(
            f"Table {self.key}: column_descriptions",
            [*self.column_descriptions],
            among=(columns := source.known_columns),
        )
        if self.inputs:
            raise self._refused(
                "inputs is given beside source=; accepted: inputs only beside a transform"
            )
        if source.changes is not None:
            self._check_changes(source, source.changes)
        elif isinstance(self.write, Merge | History):
            raise self._refused(
                "landed files are written by Append or Overwrite; accepted: a merge downstream, or Landing(changes=…)"
            )
        if isinstance(self.write, Append):
            check_columns(
                f"Table {self.key}: Append.partition_by", self.write.partition_by, among=columns
            )
            if columns is not None and len(self.write.partition_by) == len(columns):
                raise self._refused(
                    f"all {len(columns)} columns are in partition_by; accepted: at least one that is not"
                )

    def _check_changes(self, source: Landing, changes: type_of_changes) -> None:
        if not isinstance(self.write, Merge | History):
            raise self._refused(
                "change data is written by Merge or History; accepted: one of these, or no changes="
            )
        if isinstance(self.write, Merge) and self.write.order_by:
            raise self._refused(
                "Merge.order_by beside changes=, which has its own order; accepted: Merge(keys=…) alone"
            )
        fields = changes.row_fields(field_names(source.schema))
        check_columns(
            f"Table {self.key}: {type(self.write).__name__}.keys", self.write.keys, among=fields
        )
        if isinstance(self.write, History):
            if taken := sorted(
                {name.lower() for name in source.column_names} & set(HISTORY_COLUMNS)
            ):
                raise self._refused(
                    f"the column {taken[0]!r} is one that History adds; accepted: another name"
                )
            if isinstance(changes, Dms) and changes.committed_at is None:
                raise self._refused(
                    "History needs the time of each change; accepted: Dms(committed_at=…), a column"
                )

    def _check_derived(self) -> None:
        if isinstance(self.write, History):
            raise self._refused(
                "History is written from landed change data; accepted: Merge, Append or Overwrite"
            )
        if isinstance(self.write, Merge) and not self.write.order_by:
            raise self._refused(
                "Merge.order_by is empty; accepted: at least one column that tells an older row from a newer"
            )
        if isinstance(self.write, Merge) and self.write.deletes != "hard":
            raise self._refused(
                f"Merge.deletes is {self.write.deletes!r} beside a transform; accepted: to leave it out"
            )
        if not self.inputs:
            raise self._refused("inputs is empty; accepted: the tables that its transform reads")
        names = [source.name for source in self.inputs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise self._refused(
                f"inputs holds the name {twice[0]!r} twice; accepted: inputs of different names, as its transform takes"
            )
        assert self.transform is not None  # __post_init__ has seen to it
        try:
            signature(self.transform).bind(**dict.fromkeys(names))
        except TypeError as error:
            found = f"{getattr(self.transform, '__name__', 'transform')}{signature(self.transform)}"
            raise self._refused(
                f"its transform is {found}; accepted: one that takes {', '.join(names)} ({error})"
            ) from error

    def _refused(self, why: str) -> Refused:
        return Refused(f"Table {self.key}: {why}")

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def landing(self) -> Landing:
        """The landing that its rows come from; for landed tables only."""
        assert self.source is not None, f"{self.key} is no landed table"
        return self.source

    @property
    def read_whole(self) -> tuple["Table", ...]:
        """The inputs of which each run reads every file; small files slow these reads, and no read of changes."""
        return self.inputs if isinstance(self.write, Overwrite) else self.inputs[1:]

    @property
    def layer(self) -> str:
        """bronze, silver or gold."""
        return self.key.split("/")[0]

    @property
    def name(self) -> str:
        """The table's name within its layer."""
        return self.key.split("/")[1]


def table(
    *, key: str, inputs: Iterable[Table], write: type_of_write, **options: Any
) -> Callable[[Callable[..., Any]], Table]:
    """A decorator that turns a transform of DataFrames into a `Table`; the docstring becomes its description."""

    def declare(transform: Callable[..., Any]) -> Table:
        described: dict[str, Any] = {"description": (transform.__doc__ or "").strip(), **options}
        return Table(key=key, inputs=tuple(inputs), write=write, transform=transform, **described)

    return declare


def find_tables(modules: Iterable[ModuleType]) -> dict[str, Table]:
    """Every `Table` that the modules hold at top level, by key, inputs before their readers; those that do not fit together are refused."""
    found: dict[str, Table] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Table) and found.setdefault(value.key, value) is not value:
                raise Refused(
                    f"Table.key {value.key!r} is declared twice, the second time in {module.__name__}"
                )
    _check_shared_landings(found)
    ordered: dict[str, Table] = {}
    for key in sorted(found):
        _add_after_inputs(found[key], found=found, ordered=ordered)
    return ordered


def _check_shared_landings(found: dict[str, Table]) -> None:
    """Refuse that loaded files of one table are taken away while another table reads below the same prefix."""
    landed = [(key, each.source) for key, each in sorted(found.items()) if each.source is not None]
    for (key, source), (other, its) in permutations(landed, 2):
        overlaps = source.prefix.startswith(its.prefix) or its.prefix.startswith(source.prefix)
        if overlaps and source.after_load != "keep":
            raise Refused(
                f"Table {key}: after_load is {source.after_load!r}, and {other} reads {its.prefix}, too; accepted: 'keep', or prefixes of "
                "which none is below another"
            )


def _add_after_inputs(wanted: Table, *, found: dict[str, Table], ordered: dict[str, Table]) -> None:
    if wanted.key in ordered:
        return
    for source in wanted.inputs:
        if found.get(source.key) is not source:
            where = (
                "in no module of the tables package"
                if source.key not in found
                else "there as another table of that key"
            )
            raise Refused(f"Table {wanted.key}: its input {source.key} is declared {where}")
        _add_after_inputs(source, found=found, ordered=ordered)
    ordered[wanted.key] = wanted
