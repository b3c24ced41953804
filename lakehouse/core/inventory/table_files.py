"""The files that a table's log names, and the table that a name belongs to."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import unquote

from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.paths import is_absolute, name_in_table, vector_path
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import Snapshot, last_removals
from lakehouse.core.inventory.objects import FOLDER_SUFFIX

_LOG = "/_delta_log/"
# The name, relative to the lake, of the place that a decoded URI leads to; `None` for a place
# outside the lake, as far as can be told.
ResolvePath = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that a version refers to.

    `size_bytes` is `None` if the log does not record it.

    `written_ms` is `None` for a file in a folder that is a link: no listing of the table shows it.
    """

    size_bytes: int | None
    written_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """A table's files by their names relative to its folder, decoded. `retention_ms` is `None`
    where it cannot be told: all is kept.

    `place` is the name of the folder itself, which `table` may be a link to; empty if unknown.
    `stones` and `removed_vectors` have the time of removal. `elsewhere` are files in other folders
    of the lake (names relative to the lake) that the newest version reads, `kept_elsewhere` those
    that it does not read any more, while its log tells of their removal: an older version does.
    `dropped_stones` are own files of which only a commit within the retention tells that it removed
    them. `outside` are those outside the lake, where no inventory of it looks. `unplaced` are the
    last parts of the paths of all files outside, removed ones too: a mount, an alias of the bucket
    or another machine may lead from there into the lake.
    """

    table: str
    version: int
    retention_ms: int | None
    live: Mapping[str, Reference]
    vectors: Mapping[str, Reference]
    stones: Mapping[str, int | None]
    removed_vectors: Mapping[str, int | None]
    dropped_stones: frozenset[str] = frozenset()
    place: str = ""
    partition_columns: tuple[str, ...] = ()
    elsewhere: Mapping[str, Reference] = field(default_factory=dict[str, Reference])
    kept_elsewhere: frozenset[str] = frozenset()
    outside: tuple[str, ...] = ()
    unplaced: frozenset[str] = frozenset()

    def place_of(self, name: str) -> str:
        """A file of the table by its name in the lake, with the folder's link resolved."""
        return f"{self.place or self.table}/{name}"

    def borrowed(self, tables: Iterable[str]) -> Set[str]:
        """The files of other tables that any version of this one may read.

        Some of the `tables` may lie in its own folder.
        """
        inner = tuple(f"{table}/" for table in tables if table.startswith(f"{self.table}/"))
        names = (
            chain(self.live, self.vectors, self.stones, self.removed_vectors, self.dropped_stones)
            if inner
            else ()
        )
        within = {name for own in names if (name := f"{self.table}/{own}").startswith(inner)}
        return self.elsewhere.keys() | self.kept_elsewhere | within


def fold_table_files(
    snapshot: Snapshot, *, place: ResolvePath, commits: Iterable[Commit] = (), now_ms: int = 0
) -> TableFiles:
    """The books of a table at one version; `place` tells where URIs lie in the lake.

    Of the `commits` that its log still has, those within the retention count: an older version
    reads what they removed, though a checkpoint dropped the tombstones by a retention that was
    shorter then.
    """
    names, retention_ms = _Names(snapshot, place), retention_ms_of(snapshot.properties)
    since_ms = 0 if retention_ms is None else now_ms - retention_ms
    live: dict[str, Reference] = {}
    for file in snapshot.files:
        reference = Reference(size_bytes=file.size_bytes, written_ms=file.modified_ms)
        if name := names.own(file.path, reference):
            live[name] = replace(reference, written_ms=None) if name in names.linked else reference
    # No action tells the time at which a vector was written: no later than the newest commit.
    fresh = Reference(size_bytes=None, written_ms=snapshot.committed_ms)
    vectors = {
        name: fresh
        for file in snapshot.files
        if file.deletion_vector and (name := names.own_vector(file.deletion_vector, fresh))
    }
    told = {stone.path for stone in snapshot.tombstones}
    dropped = (
        path
        for commit in commits
        if commit.committed_ms >= since_ms
        for path in commit.removed_paths
        if path not in told
    )
    return TableFiles(
        table=snapshot.table,
        version=snapshot.version,
        retention_ms=retention_ms,
        live=live,
        vectors=vectors,
        stones=last_removals(
            [names.own(stone.path) for stone in snapshot.tombstones],
            (stone.deleted_ms for stone in snapshot.tombstones),
        ),
        dropped_stones=frozenset(name for path in dropped if (name := names.own(path))),
        removed_vectors=last_removals(
            [*map(names.own_vector, snapshot.removed_vectors)], snapshot.removed_vectors.values()
        ),
        place=place(snapshot.uri) or "",
        partition_columns=snapshot.partition_columns,
        elsewhere=names.elsewhere,
        kept_elsewhere=frozenset(names.kept_elsewhere),
        outside=tuple(sorted(names.outside)),
        unplaced=frozenset(names.unplaced),
    )


class _Names:
    """Tells the files inside a table's folder from those elsewhere, and remembers the latter (a
    shallow clone's).
    """

    def __init__(self, snapshot: Snapshot, place: ResolvePath) -> None:
        self._uri, self._place = snapshot.uri, place
        self._table = place(snapshot.uri)
        self._folders: dict[str, str | None] = {}
        self.elsewhere: dict[str, Reference] = {}
        self.kept_elsewhere: set[str] = set()
        self.outside: set[str] = set()
        self.unplaced: set[str] = set()
        self.linked: set[str] = set()

    def own(self, path: str, reference: Reference | None = None) -> str | None:
        """`path` relative to the table; `None` for a file that is not in its folder, remembered
        with its `reference` if it is read now.
        """
        name = name_in_table(path)
        if name is not None:
            self._follow_links(name, reference)
            return name
        place = self._place(unquote(path) if is_absolute(path) else f"{self._uri}/{unquote(path)}")
        if place is not None and self._table is not None and place.startswith(f"{self._table}/"):
            return place.removeprefix(f"{self._table}/")
        self._remember(place, unquote(path), reference)
        return None

    def own_vector(self, vector: str, reference: Reference | None = None) -> str | None:
        """The same for the file of a deletion vector; `None` also for one inside the log."""
        path = vector_path(vector)
        return None if path is None else self.own(path, reference)

    def _follow_links(self, name: str, reference: Reference | None) -> None:
        """A folder of the table may be a link, also to another table's: what is read through it is
        that table's file, too.
        """
        folder, _, last = name.rpartition("/")
        if not folder or self._table is None:
            return
        if folder not in self._folders:
            self._folders[folder] = self._place(f"{self._uri}/{folder}")
        place = self._folders[folder]
        if place != f"{self._table}/{folder}":
            self.linked.add(name)
            self._remember(place and f"{place}/{last}", name, reference)

    def _remember(self, place: str | None, name: str, reference: Reference | None) -> None:
        if place is None:
            self.unplaced.add(name.rpartition("/")[2])
            if reference is not None:
                self.outside.add(name)
        elif reference is None:
            self.kept_elsewhere.add(place)
        else:
            self.elsewhere[place] = reference


class Owners:
    """Finds the table that an object belongs to.

    `a/b` never claims `a/bc`, and a nested table keeps its own objects.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._depths = sorted({table.count("/") + 1 for table in self._tables}, reverse=True)

    def table_of(self, name: str) -> str | None:
        """The table that the object `name` (relative to the lake) belongs to; `None` for none.

        The folder's own marker is its, too.
        """
        parts = name.split("/")
        for depth in self._depths:
            if len(parts) > depth and (table := "/".join(parts[:depth])) in self._tables:
                return table
        return None


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that hold a Delta log, by the names of all objects: every table, declared or not.

    Markers of folders do not count.
    """
    return {
        name.partition(_LOG)[0]
        for name in names
        if _LOG in name and not name.endswith(FOLDER_SUFFIX)
    }
