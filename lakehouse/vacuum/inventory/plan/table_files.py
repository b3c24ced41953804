"""The files that a table's log names, inside and outside the table's folder."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import unquote

from lakehouse.base.paths import is_absolute, name_in_table, vector_path
from lakehouse.base.stored_objects import FOLDER_SUFFIX
from lakehouse.delta.commits import Commit
from lakehouse.delta.protocol import retention_ms_of
from lakehouse.delta.snapshot import Snapshot, last_removals

# Maps a decoded URI to its name relative to the lake, or to `None` if the URI seems to be outside.
ResolvePath = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A file that the newest version reads.

    `size_bytes` is `None` if the log lacks the size. `written_ms` is `None` for a file in a folder
    that is a symbolic link. Such a file never counts as missing, because no listing shows it there.
    """

    size_bytes: int | None
    written_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """A table's files, by decoded names relative to the table's folder.

    - `retention_ms`: of the table's own properties. A vacuum replaces it by a declared retention
      (`vacuum/table_facts.py`). `None` if unknown; in this case, all files are kept.
    - `live`, `vectors`: the data files and deletion vectors that the newest version reads.
    - `tombstones`, `removed_vectors`: removed files and deletion vectors, with the time of removal.
    - `dropped_tombstones`: files in the table's folder that a commit within the retention removed,
      but that no longer have a tombstone.
    - `real_folder`: the table's folder relative to the lake, with symbolic links resolved; empty if
      unknown.
    - `elsewhere`: files in other folders of the lake that the newest version reads (names relative
      to the lake). `kept_elsewhere`: such files that only older versions read, according to the
      removals in the log.
    - `outside`: files that the newest version reads outside the lake, where no inventory looks.
    - `unplaced`: base names of all files outside the lake, including removed files. Such a file may
      be inside the lake after all, under the path of a mount, a bucket alias or another machine.
    """

    table: str
    version: int
    retention_ms: int | None
    live: Mapping[str, Reference]
    vectors: Mapping[str, Reference]
    tombstones: Mapping[str, int | None]
    removed_vectors: Mapping[str, int | None]
    dropped_tombstones: frozenset[str] = frozenset()
    real_folder: str = ""
    partition_columns: tuple[str, ...] = ()
    elsewhere: Mapping[str, Reference] = field(default_factory=dict[str, Reference])
    kept_elsewhere: frozenset[str] = frozenset()
    outside: tuple[str, ...] = ()
    unplaced: frozenset[str] = frozenset()

    def name_in_lake(self, name: str) -> str:
        """The name of one of the table's files, relative to the lake, with links resolved."""
        return f"{self.real_folder or self.table}/{name}"

    def borrowed(self, tables: Iterable[str]) -> Set[str]:
        """The files in other folders of the lake that any version of this table may read.

        `tables` are all tables of the lake. The folder of a table that is nested in this table's
        folder counts as another folder.
        """
        borrowed = {*self.elsewhere, *self.kept_elsewhere}
        inner = tuple(f"{table}/" for table in tables if table.startswith(f"{self.table}/"))
        if not inner:
            return borrowed
        for own_name in chain(
            self.live,
            self.vectors,
            self.tombstones,
            self.removed_vectors,
            self.dropped_tombstones,
        ):
            name = f"{self.table}/{own_name}"
            if name.startswith(inner):
                borrowed.add(name)
        return borrowed


def fold_table_files(
    snapshot: Snapshot, *, resolve: ResolvePath, commits: Iterable[Commit] = (), now_ms: int = 0
) -> TableFiles:
    """The files of a table at the snapshot's version.

    Files that `commits` within the retention removed are included even if they have no tombstone,
    because an older version reads them. A checkpoint drops expired tombstones, and the retention
    may have been shorter when the checkpoint was written.
    """
    names = _Names(snapshot, resolve)
    retention_ms = retention_ms_of(snapshot.properties)
    since_ms = 0 if retention_ms is None else now_ms - retention_ms
    live: dict[str, Reference] = {}
    vectors: dict[str, Reference] = {}
    # No action records when a deletion vector was written. The newest commit is an upper bound.
    vector_reference = Reference(size_bytes=None, written_ms=snapshot.committed_ms)
    for file in snapshot.files:
        reference = Reference(size_bytes=file.size_bytes, written_ms=file.modified_ms)
        name = names.own(file.path, reference)
        if name:
            live[name] = replace(reference, written_ms=None) if name in names.linked else reference
        if file.deletion_vector:
            vector_name = names.own_vector(file.deletion_vector, vector_reference)
            if vector_name:
                vectors[vector_name] = vector_reference
    tombstones = {stone.path for stone in snapshot.tombstones}
    recent = (each.removed_paths for each in commits if each.committed_ms >= since_ms)
    dropped = {names.own(path) for path in chain.from_iterable(recent) if path not in tombstones}
    return TableFiles(
        table=snapshot.table,
        version=snapshot.version,
        retention_ms=retention_ms,
        live=live,
        vectors=vectors,
        tombstones=last_removals(
            [names.own(stone.path) for stone in snapshot.tombstones],
            (stone.deleted_ms for stone in snapshot.tombstones),
        ),
        dropped_tombstones=frozenset(name for name in dropped if name),
        removed_vectors=last_removals(
            [*map(names.own_vector, snapshot.removed_vectors)], snapshot.removed_vectors.values()
        ),
        real_folder=resolve(snapshot.uri) or "",
        partition_columns=snapshot.partition_columns,
        elsewhere=names.elsewhere,
        kept_elsewhere=frozenset(names.kept_elsewhere),
        outside=tuple(sorted(names.outside)),
        unplaced=frozenset(names.unplaced),
    )


class _Names:
    """Names the files inside a table's folder, and collects the files in other places.

    For example, a shallow clone reads files in other places.
    """

    def __init__(self, snapshot: Snapshot, resolve: ResolvePath) -> None:
        self._uri = snapshot.uri
        self._resolve = resolve
        self._table = resolve(snapshot.uri)
        self._folders: dict[str, str | None] = {}
        self.elsewhere: dict[str, Reference] = {}
        self.kept_elsewhere: set[str] = set()
        self.outside: set[str] = set()
        self.unplaced: set[str] = set()
        self.linked: set[str] = set()

    def own(self, path: str, reference: Reference | None = None) -> str | None:
        """The name of `path` relative to the table, or `None` for a file in another place.

        A file in another place is collected. `reference` is given if the newest version reads it.
        """
        name = name_in_table(path)
        if name is not None:
            self._follow_links(name, reference)
            return name
        decoded = unquote(path)
        lake_name = self._resolve(decoded if is_absolute(path) else f"{self._uri}/{decoded}")
        table = self._table
        if lake_name is not None and table is not None and lake_name.startswith(f"{table}/"):
            return lake_name.removeprefix(f"{table}/")
        self._collect(lake_name, decoded, reference)
        return None

    def own_vector(self, vector: str, reference: Reference | None = None) -> str | None:
        """As `own`, for a deletion vector's file; also `None` for a vector stored in the log."""
        path = vector_path(vector)
        return None if path is None else self.own(path, reference)

    def _follow_links(self, name: str, reference: Reference | None) -> None:
        """If a file's folder is a link, also records the file under its real name.

        The link may lead to another table's folder.
        """
        folder, _, last = name.rpartition("/")
        if not folder or self._table is None:
            return
        if folder not in self._folders:
            self._folders[folder] = self._resolve(f"{self._uri}/{folder}")
        real_folder = self._folders[folder]
        if real_folder != f"{self._table}/{folder}":
            self.linked.add(name)
            lake_name = None if real_folder is None else f"{real_folder}/{last}"
            self._collect(lake_name, name, reference)

    def _collect(self, lake_name: str | None, name: str, reference: Reference | None) -> None:
        if lake_name is None:
            self.unplaced.add(name.rpartition("/")[2])
            if reference is not None:
                self.outside.add(name)
        elif reference is None:
            self.kept_elsewhere.add(lake_name)
        else:
            self.elsewhere[lake_name] = reference


_LOG = "/_delta_log/"


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that contain a Delta log: all tables, declared or not, but no archives.

    `names` are the names of objects, relative to the lake. Folder markers do not count as a log.
    """
    in_logs = (name for name in names if _LOG in name)
    return {name.partition(_LOG)[0] for name in in_logs if _is_log(name)}


def _is_log(name: str) -> bool:
    return not name.startswith("archive/") and not name.endswith(FOLDER_SUFFIX)


class Owners:
    """Finds the table that an object belongs to: the innermost table whose folder it is in."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)
        self._depths = sorted({table.count("/") + 1 for table in self._tables}, reverse=True)

    def table_of(self, name: str) -> str | None:
        """The table that the object `name` (relative to the lake) belongs to, or `None`.

        The marker of a table's folder (`<table>/`) belongs to this table.
        """
        parts = name.split("/")
        for depth in self._depths:
            folder = "/".join(parts[:depth])
            if len(parts) > depth and folder in self._tables:
                return folder
        return None
