"""The declaration of a table, and how its rows are written, by this lake or by other programs.

An invalid value is refused when the declaration is created.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from inspect import getsource, signature
from math import inf
from textwrap import dedent
from typing import Any, Literal

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import parse_address
from lakehouse.base.text import first_names
from lakehouse.declare.knobs import check_knobs, knob
from lakehouse.declare.landing import ChangeSource, Landing
from lakehouse.declare.policies import (
    CLUSTERING_MARK,
    LAYERS,
    Archive,
    BinPacking,
    BySensor,
    Compaction,
    LiquidClustering,
    Scheduled,
    Ttl,
    Vacuum,
    ZOrder,
    policy_for,
)
from lakehouse.declare.prices import DEFAULT_PRICES, Prices
from lakehouse.delta.columns import check_columns, check_renamed, field_names, type_word

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
# Source: delta-io/delta v4.4.0, DeltaSQLConf, clusteredTable.numClusteringColumnsLimit.
_CLUSTERING_COLUMNS = 4
_TIME_TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
# Column types that can give a partition its time. A string can hold an ISO date.
_PARTITION_TYPES = (*_TIME_TYPES, "STRING")
# With this property, Delta forgets which batches were loaded, so they would be loaded again.
# Source: PROTOCOL.md, "Transaction Identifiers"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
# Changes with the way in which hashes of transforms are made. Hashes of different kinds are not
# compared.
_CODE_KIND = "source1"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")
Orphans = Literal["keep", "delete"]


@frozen
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
        check_knobs(self)
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
    none. The name is the table's folder. If that key is taken, parent folders are prefixed.

    Raises:
        Refused: all these keys are taken.
    """
    parts = [part for part in address.removeprefix("s3://").split("/") if part]
    layer = next((part for part in reversed(parts[:-1]) if part in LAYERS), "silver")
    names = [_name(part) for part in reversed(parts)]
    for size in range(1, len(names) + 1):
        joined = "_".join(reversed(names[:size]))
        key = f"{layer}/{_name(joined[-98:])}"
        if key not in taken:
            return key
    raise Refused(f"no key is free for {address}. Use adopted.toml to give it a key of your own.")


def folders_above(address: str) -> Iterator[str]:
    """The parent folders of an address, innermost first; the bucket is included, `/` is not."""
    parent = address.rpartition("/")[0]
    while parent not in ("", "s3:/"):
        yield parent
        parent = parent.rpartition("/")[0]


def _name(part: str) -> str:
    name = _NOT_IN_NAMES.sub("_", part.lower()).strip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"


@frozen
class Append:
    """Each batch of landed files, or of changes of the first input, adds rows."""

    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_columns("Append.partition_by", self.partition_by)


@frozen
class Merge:
    """Keeps one row per combination of `keys`: the row with the greatest `order_by` values.

    Change data has no `order_by`: its source defines the order. `deletes` is the effect of a
    deletion in change data.
    """

    keys: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    deletes: Literal["hard", "soft"] = knob(
        "hard",
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


@frozen
class Overwrite:
    """Each run replaces all rows."""


WriteMode = Append | Merge | Overwrite | Adopted


@dataclass(frozen=True, kw_only=True)
class Table:
    """One Delta table: where its rows come from, how they are written, and its upkeep.

    Its rows come either from a `source` (landed files), or from a `transform` of `inputs` (other
    tables). An `Adopted` table has neither. A `Merge` or `Append` reads only the changes of its
    first input, and all rows of the others. `transform` takes one DataFrame per input, by its name.

    Rows that were written with the same `code_version` count as computed by the same code. The
    default is a hash of the transform's source.
    Set it to say that another change matters, or that a change of the text does not.

    `evolution` decides which changes of the declaration the next write applies to the table: safe
    changes (`"ask"`), also renamed columns and wider types (`"automatic"`), or no changes
    (`"refuse"`). `renamed` maps earlier column names to present names. `location` is the
    folder (`layer/name`) of a table that had another key before. The rows, the ledger and the
    quarantine stay there. Internally, `key` is then this folder, and `declared_key`, which is never
    given, the declared key.

    `fresh_within_hours` becomes a Dagster freshness policy. `owner` pays for the table.
    """

    key: str
    write: WriteMode
    source: Landing | None = None
    inputs: tuple["Table", ...] = ()
    transform: Callable[..., Any] | None = None
    compaction: Compaction = field(default_factory=Compaction)
    vacuum: Vacuum = field(default_factory=Vacuum)
    archive: Archive | None = None
    ttl: Ttl | None = None
    properties: dict[str, str] = field(default_factory=dict[str, str])
    fresh_within_hours: float | None = None
    prices: Prices = DEFAULT_PRICES
    description: str = ""
    column_descriptions: dict[str, str] = field(default_factory=dict[str, str])
    evolution: Literal["automatic", "ask", "refuse"] = "ask"
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    code_version: str = ""
    location: str = ""
    declared_key: str = ""
    owner: str = ""

    def __post_init__(self) -> None:
        check_key("Table.key", self.key)
        if self.location and self.location != self.key:
            check_key("Table.location", self.location)
            object.__setattr__(self, "declared_key", self.key)
            object.__setattr__(self, "key", self.location)
        check_knobs(self, f"Table {self.asset_key}: ")
        if self.adopted:
            self._check_adopted()
        elif (self.source is None) == (self.transform is None):
            raise self._refused(
                "use either source= (landed files) or a transform with inputs=, not both or neither"
            )
        if self.fresh_within_hours is not None and not 0 < self.fresh_within_hours < inf:
            raise self._refused(
                f"fresh_within_hours is {self.fresh_within_hours}. Use a number above 0."
            )
        if self.code_version and self.transform is None:
            raise self._refused(
                "code_version is set, but the table has no transform. Leave it out."
            )
        if self.source is not None:
            self._check_landed(self.source)
        elif self.transform is not None:
            self._check_derived()
        # The columns of a table that is not loaded from landed files are unknown (`None`).
        columns = None if self.source is None else self.source.column_names
        check_renamed(f"Table {self.asset_key}: renamed", self.renamed, columns)
        self._check_layout(columns)
        self._check_retention(columns)
        self._check_properties()

    def _check_layout(self, columns: Sequence[str] | None) -> None:
        layout = self.compaction.data_layout
        if isinstance(layout, BinPacking):
            return
        if isinstance(layout, LiquidClustering) and self.partition_by:
            raise self._refused(
                "LiquidClustering cannot be combined with Append.partition_by"
                f" {self.partition_by}. Either remove partition_by, or use ZOrder, which supports"
                " partitions."
            )
        if isinstance(layout, LiquidClustering) and len(layout.columns) > _CLUSTERING_COLUMNS:
            raise self._refused(
                f"LiquidClustering has {len(layout.columns)} columns. Use at most"
                f" {_CLUSTERING_COLUMNS}."
            )
        partition_names = {name.lower() for name in self.partition_by}
        shared = [name for name in layout.columns if name.lower() in partition_names]
        if isinstance(layout, ZOrder) and shared:
            raise self._refused(
                f"ZOrder.columns contains the partition column {shared[0]!r}. Use columns that are"
                " not in partition_by."
            )
        subject = f"Table {self.asset_key}: {type(layout).__name__}.columns"
        check_columns(subject, layout.columns, among=columns)

    def _check_retention(self, columns: Sequence[str] | None) -> None:
        types: Mapping[str, str] = {}
        if self.source is not None:
            types = self.source.field_types  # those of derived columns are unknown
        if self.ttl is not None and self.archive is not None:
            raise self._refused(
                "archive and ttl are both set. The archive deletes rows after keep_days, and a TTL"
                " could delete rows that the archive has not taken yet. Use archive alone"
            )
        if self.ttl is not None:
            check_columns(f"Table {self.asset_key}: ttl", (self.ttl.column,), among=columns)
            self._check_ttl(self.ttl, types.get(self.ttl.column))
        if self.archive is not None:
            self._check_archive(types)

    def _check_ttl(self, ttl: Ttl, type_: str | None) -> None:
        """Refuses a TTL of an Overwrite table, or of a column that is no DATE or TIMESTAMP.

        If the column's type is unknown (`None`), it is checked later, when a run is planned.
        """
        if self.is_overwrite:
            raise self._refused(
                "ttl is set, but each run of an Overwrite table writes all rows again. Use a filter"
                " in its transform instead."
            )
        if type_ is not None and type_word(type_) not in _TIME_TYPES:
            raise self._refused(f"ttl: {ttl.column} is {type_}. Use a DATE or TIMESTAMP column.")

    def _check_archive(self, types: Mapping[str, str]) -> None:
        """Refuses an archive of a table without partitions that can have a time.

        A partition column of unknown type may give a time. The partitions of an `Adopted` table are
        checked when a run is planned.
        """
        if self.adopted:
            return
        if not self.partition_by:
            raise self._refused(
                "archive is set, but only whole partitions are archived, and the table has no"
                " partitions. Use Append(partition_by=…) with a date."
            )
        for name in self.partition_by:
            type_ = types.get(name)
            if type_ is None or name.lower() == "year" or type_word(type_) in _PARTITION_TYPES:
                return
        raise self._refused(
            f"archive is set, but no column of partition_by {self.partition_by} can give a"
            " partition its time. Use a DATE or TIMESTAMP column, a STRING column with values like"
            " 2026-01-31, or columns named year, month, day, hour."
        )

    def _check_properties(self) -> None:
        reserved = {
            CLUSTERING_MARK: "which the lake sets itself",
            TRANSACTION_RETENTION.lower(): "which makes the table's log forget the loaded batches,"
            " so that they are loaded again",
        }
        for name in self.properties:
            if name.lower() in reserved:
                raise self._refused(
                    f"properties holds {name!r}, {reserved[name.lower()]}. Leave it out."
                )
        for name, value in self.vacuum.retention_properties(self.properties).items():
            if self.properties.get(name, value) != value:
                raise self._refused(
                    f"properties sets {name} to {self.properties[name]!r}, but"
                    f" Vacuum.retention_hours to {value!r}. Set it in one place."
                )

    def _check_adopted(self) -> None:
        names = ("source", "inputs", "transform", "properties", "renamed", "location")
        options: dict[str, object] = {name: getattr(self, name) for name in names}
        options["Vacuum.retention_hours"] = self.vacuum.retention_hours
        not_empty = [name for name, value in options.items() if value]
        if not_empty:
            raise self._refused(
                f"{not_empty[0]} is set, but other programs write the rows and properties of an"
                " Adopted table. Leave it out."
            )
        strategy = self.compaction.strategy
        if not isinstance(strategy, BySensor | Scheduled):
            raise self._refused(
                f"{type(strategy).__name__} is a strategy of the writer, but other programs write"
                " this table. Use BySensor or Scheduled."
            )

    def _check_landed(self, source: Landing) -> None:
        columns = source.column_names
        described_columns = [*self.column_descriptions]
        check_columns(f"Table {self.key}: column_descriptions", described_columns, among=columns)
        if self.inputs:
            raise self._refused(
                "inputs= is set, but with source= there is no transform to read them. Leave it out."
            )
        if source.changes is not None:
            self._check_changes(source, source.changes)
        elif self.merge:
            raise self._refused(
                "landed files are written by Append or Overwrite. Either merge in a table"
                " downstream, or use Landing(changes=…)."
            )
        if isinstance(self.write, Append):
            check_columns(
                f"Table {self.key}: Append.partition_by", self.write.partition_by, among=columns
            )
            if len(self.write.partition_by) == len(columns):
                raise self._refused(
                    f"all {len(columns)} columns are in partition_by. Leave at least one out."
                )

    def _check_changes(self, source: Landing, changes: ChangeSource) -> None:
        if not self.merge:
            raise self._refused("change data is written by Merge. Use Merge, or no changes=.")
        if self.merge.order_by:
            raise self._refused(
                "Merge.order_by is set, but changes= has its own order. Use Merge(keys=…) alone."
            )
        fields = changes.row_fields(field_names(source.schema))
        check_columns(f"Table {self.key}: Merge.keys", self.merge.keys, among=fields)

    def _check_derived(self) -> None:
        if self.merge and not self.merge.order_by:
            raise self._refused(
                "Merge.order_by is empty. Use at least one column that increases from an older row"
                " to a newer one."
            )
        if self.merge and self.merge.deletes != "hard":
            raise self._refused(
                f"Merge.deletes is {self.merge.deletes!r}, but a transform deletes no rows. Leave"
                " it out."
            )
        if not self.inputs:
            raise self._refused("inputs is empty. Use the tables that the transform reads.")
        names = [source.name for source in self.inputs]
        duplicates = [name for name in names if names.count(name) > 1]
        if duplicates:
            raise self._refused(
                f"inputs holds two tables named {duplicates[0]!r}, but the transform takes its"
                " inputs by name. Use tables with different names."
            )
        assert self.transform is not None
        try:
            signature(self.transform).bind(**dict.fromkeys(names))
        except TypeError as error:
            name = getattr(self.transform, "__name__", "transform")
            raise self._refused(
                f"its transform is {name}{signature(self.transform)}. Use one that takes"
                f" {', '.join(names)} ({error})."
            ) from error

    def _refused(self, why: str) -> Refused:
        return Refused(f"Table {self.asset_key}: {why}")

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def adopted(self) -> Adopted | None:
        """The place of the table if other programs write it, otherwise `None`."""
        return self.write if isinstance(self.write, Adopted) else None

    @property
    def merge(self) -> Merge | None:
        """How rows are merged by keys; `None` if they are not merged."""
        return self.write if isinstance(self.write, Merge) else None

    @property
    def is_overwrite(self) -> bool:
        """Whether each run replaces all rows."""
        return isinstance(self.write, Overwrite)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The declared partition columns."""
        return self.write.partition_by if isinstance(self.write, Append) else ()

    @property
    def landing(self) -> Landing:
        """The landing that the rows come from. Only valid for landed tables."""
        assert self.source is not None, f"{self.key} has no landing"
        return self.source

    @property
    def transform_code(self) -> str | None:
        """The code version of the transform, which is recorded with the rows it computes.

        It is `code_version` or, by default, a hash of the function's source: from `def` to its end,
        or the statement that contains a lambda. Functions that the transform calls, constants and
        decorators do not count. `None` without a transform, or if its source is not available.
        """
        if self.transform is None:
            return None
        if self.code_version:
            return f"{_CODE_KIND}:version {self.code_version}"
        function: Any = self.transform
        while isinstance(function, partial):
            function = function.func
        try:
            source = dedent(getsource(function))
        except (OSError, TypeError):
            return None
        lines = source.splitlines()
        begins = [line.startswith(("def ", "async def ")) for line in lines]
        first = begins.index(True) if True in begins else 0
        text = "\n".join(line.rstrip() for line in lines[first:])
        return f"{_CODE_KIND}:{blake2b(text.encode(), digest_size=8).hexdigest()}"

    @property
    def compaction_policy(self) -> Compaction:
        """The compaction policy in force, with the layer's defaults (`policy_for`)."""
        return policy_for(self.layer, self.compaction)

    @property
    def read_whole(self) -> tuple["Table", ...]:
        """The inputs that each run reads completely. Their small files slow the run down."""
        return self.inputs if self.is_overwrite else self.inputs[1:]

    @property
    def asset_key(self) -> str:
        """The key as it was declared, also with `location=`: the table's name for people."""
        return self.declared_key or self.key

    @property
    def layer(self) -> str:
        """bronze, silver or gold."""
        return self.asset_key.split("/")[0]

    @property
    def name(self) -> str:
        """The table's name within its layer."""
        return self.asset_key.split("/")[1]


def check_key(what: str, key: str) -> None:
    """Refuses a key that is not `layer/name`. The message calls the key `what`."""
    layer, _, name = key.partition("/")
    if layer not in LAYERS or not _NAME.fullmatch(name):
        raise Refused(
            f"{what} is {key!r}. Use layer/name: a layer of {', '.join(LAYERS)}, and a"
            " name of a-z, 0-9 and _ that begins with a letter."
        )


def table(
    *, key: str, inputs: Iterable[Table], write: WriteMode, **options: Any
) -> Callable[[Callable[..., Any]], Table]:
    """Decorates a transform of DataFrames as a `Table`. The docstring becomes its description."""

    def declare(transform: Callable[..., Any]) -> Table:
        described: dict[str, Any] = {"description": (transform.__doc__ or "").strip(), **options}
        return Table(key=key, inputs=tuple(inputs), write=write, transform=transform, **described)

    return declare


_NAMED = 10
_IN_LAYER = re.compile(f"({'|'.join(LAYERS)})/[^/]+")


def undeclared_among(keys: Iterable[str], declared: Iterable[Table]) -> tuple[str, ...]:
    """The keys `layer/name` that no table declares, sorted."""
    unknown = {*keys} - {table.key for table in declared}
    return tuple(sorted(filter(_IN_LAYER.fullmatch, unknown)))


def undeclared_sentence(keys: Sequence[str]) -> str:
    """A sentence that names the undeclared tables and what to do."""
    names = first_names(keys, most=_NAMED)
    return (
        f"undeclared tables in the lake, which nothing maintains: {names}. Declare them again, "
        "or set location= on the tables that replace them"
    )
