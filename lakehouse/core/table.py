"""The words a user declares tables with.

A `Table` is a value: nothing happens when one is made, but what is wrong with it is said then and there.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from lakehouse.core.errors import Refused
from lakehouse.core.policy import LAYERS, Compaction

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_LANDING_SUFFIXES = {"json": (".json", ".jsonl", ".json.gz", ".jsonl.gz"), "csv": (".csv", ".csv.gz")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Files that arrive from outside under `prefix`, relative to the lake's root.

    `schema` is a Spark DDL string of the fields in the files. `derived` adds columns by SQL expressions over
    them. A row whose `required` field is missing goes to quarantine, as does one that does not parse.
    """

    prefix: str
    format: str
    schema: str
    derived: dict[str, str] = field(default_factory=dict[str, str])
    required: tuple[str, ...] = ()
    null_value: str | None = None
    max_batch_files: int = 2_000

    def __post_init__(self) -> None:
        if self.format not in _LANDING_SUFFIXES:
            raise Refused(f"Landing.format is {self.format!r}; accepted: {', '.join(sorted(_LANDING_SUFFIXES))}")
        if not self.prefix.endswith("/") or self.prefix.startswith("/") or ".." in self.prefix.split("/"):
            raise Refused(f"Landing.prefix is {self.prefix!r}; accepted: a path below the lake's root that ends with '/'")
        if self.max_batch_files < 1:
            raise Refused(f"Landing.max_batch_files is {self.max_batch_files}; accepted: 1 or more")

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of the file names that this landing takes; any other file is foreign."""
        return _LANDING_SUFFIXES[self.format]


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Each batch or increment adds rows."""

    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """One row per `keys`; a row replaces the one there only if its `order_by` columns are greater, compared in turn."""

    keys: tuple[str, ...]
    order_by: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise Refused("Merge.keys is empty; accepted: at least one column that tells rows apart")
        if not self.order_by:
            raise Refused("Merge.order_by is empty; accepted: at least one column that tells an older row from a newer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """Each run replaces all rows."""


type_of_write = Append | Merge | Overwrite


@dataclass(frozen=True, kw_only=True)
class Table:
    """One Delta table: where its rows come from, how they are written, and its upkeep.

    Exactly one of `source` (landed files) or `transform` with `inputs` (other tables) is given. A `Merge` or
    `Append` reads its first input by the changes since the version consumed before, and the others whole;
    an `Overwrite` reads all of them whole. `transform` takes one DataFrame per input, by its name.
    """

    key: str
    write: type_of_write
    source: Landing | None = None
    inputs: tuple["Table", ...] = ()
    transform: Callable[..., Any] | None = None
    compaction: Compaction = field(default_factory=Compaction)
    properties: dict[str, str] = field(default_factory=dict[str, str])
    fresh_within_hours: float | None = None
    description: str = ""

    def __post_init__(self) -> None:
        parts = self.key.split("/")
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or parts[0] not in LAYERS:
            raise Refused(
                f"Table.key is {self.key!r}; accepted: layer/name with a layer of {', '.join(LAYERS)} and a name of a-z, 0-9 and _"
            )
        if (self.source is None) == (self.transform is None):
            raise Refused(f"Table {self.key}: give either source= (landed files) or a transform with inputs=, not both or neither")
        if self.transform is not None and not self.inputs:
            raise Refused(f"Table {self.key}: inputs is empty; accepted: the tables that its transform reads")
        if self.source is not None and isinstance(self.write, Merge):
            raise Refused(f"Table {self.key}: landed files are written by Append or Overwrite; merge them in a table downstream")
        if self.fresh_within_hours is not None and self.fresh_within_hours <= 0:
            raise Refused(f"Table {self.key}: fresh_within_hours is {self.fresh_within_hours}; accepted: more than 0")

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def layer(self) -> str:
        """bronze, silver or gold."""
        return self.key.split("/")[0]

    @property
    def name(self) -> str:
        """The table's name within its layer."""
        return self.key.split("/")[1]


def table(*, key: str, inputs: Iterable[Table], write: type_of_write, **options: Any) -> Callable[[Callable[..., Any]], Table]:
    """A decorator that turns a transform of DataFrames into a `Table`; the docstring becomes its description."""

    def declare(transform: Callable[..., Any]) -> Table:
        described: dict[str, Any] = {"description": (transform.__doc__ or "").strip(), **options}
        return Table(key=key, inputs=tuple(inputs), write=write, transform=transform, **described)

    return declare


def find_tables(modules: Iterable[ModuleType]) -> dict[str, Table]:
    """Every `Table` that the modules hold at top level, by key, inputs before what reads them.

    Raises:
        Refused: two tables with one key, or an input that no module holds.
    """
    found: dict[str, Table] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Table) and found.setdefault(value.key, value) is not value:
                raise Refused(f"Table.key {value.key!r} is declared twice, the second time in {module.__name__}")
    ordered: dict[str, Table] = {}
    for key in sorted(found):
        _add_after_inputs(found[key], found=found, ordered=ordered)
    return ordered


def _add_after_inputs(wanted: Table, *, found: dict[str, Table], ordered: dict[str, Table]) -> None:
    if wanted.key in ordered:
        return
    for source in wanted.inputs:
        if source.key not in found:
            raise Refused(f"Table {wanted.key}: its input {source.key} is declared in no module of the tables package")
        _add_after_inputs(source, found=found, ordered=ordered)
    ordered[wanted.key] = wanted
