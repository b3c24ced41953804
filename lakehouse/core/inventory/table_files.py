"""The files that a table's log names, and the table that a file belongs to."""

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
# Maps a decoded URI to its name relative to the lake, or to `None` if it seems to be outside.
ResolvePath = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that a version refers to.

    `size_bytes` is `None` if the log does not record it. `written_ms` is `None` for a file in a
    folder that is a link, because no listing of the table shows such a file.
    """

    size_bytes: int | None
    written_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """A table's files, by decoded names relative to its folder.

    - `retention_ms`: `None` if unknown; then all files are kept.
    - `stones`, `removed_vectors`: removed files and deletion vectors, with the time of removal.
    - `dropped_stones`: own files that a commit within the retention removed, but that no longer
      have a tombstone.
    - `place`: the real folder, if `table` is a link to it; empty if unknown.
    - `elsewhere`: files in other folders of the lake that the newest version reads (names relative
      to the lake). `kept_elsewhere`: such files that only older versions read. The log still
      records their removal.
    - `outside`: files that the newest version reads outside the lake, where no inventory looks.
    - `unplaced`: base names of all files outside, including removed ones. Such a file
      may lie inside the lake after all, under the path of a mount, a bucket alias or another
      machine.
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
        """The name of a table's file relative to the lake, with the folder's link resolved."""
        return f"{self.place or self.table}/{name}"

    def borrowed(self, tables: Iterable[str]) -> Set[str]:
        """The files of other tables that any version of this table may read.

        `tables` are all tables of the lake; some may be nested in this table's folder.
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
    """The files of a table at one version; `place` resolves URIs to names in the lake.

    Files that `commits` within the retention removed are kept even if they have no tombstone,
    because an older version reads them. A checkpoint drops tombstones by the retention of its time,
    which may have been shorter.
    """
    names = _Names(snapshot, place)
    retention_ms = retention_ms_of(snapshot.properties)
    since_ms = 0 if retention_ms is None else now_ms - retention_ms
    live: dict[str, Reference] = {}
    for file in snapshot.files:
        reference = Reference(size_bytes=file.size_bytes, written_ms=file.modified_ms)
        if name := names.own(file.path, reference):
            live[name] = replace(reference, written_ms=None) if name in names.linked else reference
    # No action records when a vector was written. The newest commit is an upper bound.
    fresh = Reference(size_bytes=None, written_ms=snapshot.committed_ms)
    vectors = {
        name: fresh
        for file in snapshot.files
        if file.deletion_vector and (name := names.own_vector(file.deletion_vector, fresh))
    }
    tombstones = {stone.path for stone in snapshot.tombstones}
    dropped = (
        path
        for commit in commits
        if commit.committed_ms >= since_ms
        for path in commit.removed_paths
        if path not in tombstones
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
    """Names the files inside a table's folder, and collects the files elsewhere.

    Files elsewhere occur in shallow clones, for example.
    """

    def __init__(self, snapshot: Snapshot, place: ResolvePath) -> None:
        self._uri = snapshot.uri
        self._place = place
        self._table = place(snapshot.uri)
        self._folders: dict[str, str | None] = {}
        self.elsewhere: dict[str, Reference] = {}
        self.kept_elsewhere: set[str] = set()
        self.outside: set[str] = set()
        self.unplaced: set[str] = set()
        self.linked: set[str] = set()

    def own(self, path: str, reference: Reference | None = None) -> str | None:
        """The name of `path` relative to the table, or `None` for a file elsewhere.

        A file elsewhere is recorded, with its `reference` if the newest version reads it.
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
        """`own` for the file of a deletion vector; `None` also for a vector stored in the log."""
        path = vector_path(vector)
        return None if path is None else self.own(path, reference)

    def _follow_links(self, name: str, reference: Reference | None) -> None:
        """Records a file that is read through a linked folder under its real name, too.

        A folder of the table may be a link, even to another table's folder.
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
        """The table that the object `name` (relative to the lake) belongs to, or `None`.

        The marker of a table's folder belongs to that table.
        """
        parts = name.split("/")
        for depth in self._depths:
            if len(parts) > depth and (table := "/".join(parts[:depth])) in self._tables:
                return table
        return None


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that hold a Delta log: every table, declared or not.

    `names` are the names of all objects. Folder markers do not count.
    """
    return {
        name.partition(_LOG)[0]
        for name in names
        if _LOG in name and not name.endswith(FOLDER_SUFFIX)
    }
