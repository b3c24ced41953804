"""What a table's log says of the files that should be in storage, by name."""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from urllib.parse import unquote

from lakehouse.core.inventory.parts import DAY_MS
from lakehouse.core.layout import Layout
from lakehouse.core.uri import bare_uri, is_absolute
from lakehouse.core.vector import vector_file

_UNITS_MS = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "second": 1_000, "millisecond": 1, "microsecond": 0}
_SPAN = re.compile(r"(\d+)\s+([a-z]+?)s?(?=\s|$)")
_INTERVAL = re.compile(r"(?:interval\s+)?(?:\d+\s+[a-z]+(?:\s+|$))+")
# The property of a table that says how long removed files are kept. Source: PROTOCOL.md, and Delta's default.
RETENTION, _DEFAULT_RETENTION = "delta.deletedFileRetentionDuration", "interval 1 week"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that a version refers to: its size, and when it was written, each `None` where the log does not tell."""

    size_bytes: int | None
    written_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBooks:
    """A table's files by their names relative to its folder, decoded. `retention_ms` is `None` where it cannot be told: all is kept.

    `stones` and `removed_vectors` have the time of removal. `elsewhere` are files in other folders of the lake (names relative to the
    lake) that the newest version reads, `kept_elsewhere` those that it does not read any more, while its log tells of their removal: an
    older version does. `outside` are those outside the lake, where no inventory of it looks.
    """

    table: str
    version: int
    retention_ms: int | None
    live: Mapping[str, Reference]
    vectors: Mapping[str, Reference]
    stones: Mapping[str, int | None]
    removed_vectors: Mapping[str, int | None]
    partition_columns: tuple[str, ...] = ()
    elsewhere: Mapping[str, Reference] = field(default_factory=dict[str, Reference])
    kept_elsewhere: frozenset[str] = frozenset()
    outside: tuple[str, ...] = ()

    @property
    def borrowed(self) -> Set[str]:
        """The files of other tables that any of its versions may read."""
        return self.elsewhere.keys() | self.kept_elsewhere


def keep_books(layout: Layout, *, lake_uri: str) -> TableBooks:
    """The books of a table at one version; `lake_uri` is the lake's root as the log's absolute paths spell it."""
    names = _Names(layout, lake_uri)
    live: dict[str, Reference] = {}
    for file in layout.files:
        reference = Reference(size_bytes=file.size_bytes, written_ms=file.modified_ms)
        if name := names.own(unquote(file.path), reference):
            live[name] = reference
    # When a vector was written no action tells: no later than the newest commit.
    fresh = Reference(size_bytes=None, written_ms=layout.committed_ms)
    vectors = {name: fresh for file in layout.files if file.deletion_vector and (name := names.own_vector(file.deletion_vector, fresh))}
    return TableBooks(
        table=layout.table,
        version=layout.version,
        retention_ms=retention_ms_of(layout.properties),
        live=live,
        vectors=vectors,
        stones=_last((names.own(unquote(stone.path)), stone.deleted_ms) for stone in layout.tombstones),
        removed_vectors=_last((names.own_vector(vector), ms) for vector, ms in layout.removed_vectors.items()),
        partition_columns=layout.partition_columns,
        elsewhere=names.elsewhere,
        kept_elsewhere=frozenset(names.kept_elsewhere),
        outside=tuple(sorted(names.outside)),
    )


def retention_ms_of(properties: Mapping[str, str]) -> int | None:
    """How long removed files are kept, by the table's property; `None` where it is spelled in a way unknown here."""
    return span_ms_of(properties.get(RETENTION, _DEFAULT_RETENTION))


def span_ms_of(interval: str) -> int | None:
    """The length of `interval 30 days`; `None` for a spelling unknown here."""
    text = interval.strip().lower()
    if not _INTERVAL.fullmatch(text):
        return None
    spans = [(int(count), _UNITS_MS.get(unit)) for count, unit in _SPAN.findall(text)]
    return None if not spans or any(ms is None for _, ms in spans) else sum(count * (ms or 0) for count, ms in spans)


def _last(removals: Iterable[tuple[str | None, int | None]]) -> dict[str, int | None]:
    """The last removal of each file, unknown if any is: several vectors may share a file, and a path may have several spellings."""
    last: dict[str, int | None] = {}
    for name, ms in removals:
        if name:
            before = last.get(name, 0)
            last[name] = None if ms is None or before is None else max(before, ms)
    return last


class _Names:
    """Tells the files inside a table's folder from those elsewhere, and remembers the latter (a shallow clone's)."""

    def __init__(self, layout: Layout, lake_uri: str) -> None:
        self._table, self._lake = f"{bare_uri(layout.uri)}/", f"{bare_uri(lake_uri)}/"
        self.elsewhere: dict[str, Reference] = {}
        self.kept_elsewhere: set[str] = set()
        self.outside: set[str] = set()

    def own(self, path: str, reference: Reference | None = None) -> str | None:
        """`path` relative to the table; `None` for a file that is not in its folder, remembered with its `reference` if it is read now."""
        if not is_absolute(path):
            return path
        bare = bare_uri(path)
        if bare.startswith(self._table):
            return bare.removeprefix(self._table)
        if bare.startswith(self._lake):
            name = bare.removeprefix(self._lake)
            if reference is None:
                self.kept_elsewhere.add(name)
            else:
                self.elsewhere[name] = reference
        elif reference is not None:
            self.outside.add(path)
        return None

    def own_vector(self, vector: str, reference: Reference | None = None) -> str | None:
        """The same for the file of a deletion vector; `None` also for one inside the log."""
        name = vector_file(vector)
        return None if name is None else self.own(unquote(name) if vector.startswith("p") else name, reference)


def hidden_rule(partition_columns: tuple[str, ...]) -> re.Pattern[str]:
    """Matches names of which a component is hidden from Delta's own listing.

    Source: delta-io/delta v4.4.0, `DeltaTableUtils.isHiddenDirectory`: names that start with `.` or `_`, but for `_change_data`,
    `_delta_index` and folders of partition columns.
    """
    spared = "|".join(["_delta_index(?:/|$)", "_change_data(?:/|$)", *(f"{re.escape(column)}=" for column in partition_columns)])
    return re.compile(rf"(?:^|.*/)(?!{spared})[._]", re.DOTALL)
