"""Assigns every object of an inventory to one `Part` of one table, or to no table.

This takes one pass over the objects. The memory that it needs depends on the number of files in the
tables' logs, but not on the number of objects.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from urllib.parse import unquote

from lakehouse.base.frozen import frozen
from lakehouse.base.paths import is_absolute, name_in_table, vector_path
from lakehouse.base.reasons import CheckResult
from lakehouse.base.stored_objects import FOLDER_SUFFIX, Part, StoredObject, total_bytes
from lakehouse.base.text import count_of, first_names
from lakehouse.delta.commits import Commit
from lakehouse.delta.protocol import retention_ms_of
from lakehouse.delta.snapshot import Snapshot, TableFacts, last_removals

# Maps a decoded URI to its name relative to the lake, or to `None` if the URI seems to be outside.
ResolvePath = Callable[[str], str | None]


@frozen
class Reference:
    """A file that the newest version reads.

    `size_bytes` is `None` if the log lacks the size. `written_ms` is `None` for a file in a folder
    that is a symbolic link. Such a file never counts as missing, because no listing shows it there.
    """

    size_bytes: int | None
    written_ms: int | None

    def is_older_than(self, ms: int) -> bool:
        """Whether the file is known to be written before a time."""
        return self.written_ms is not None and self.written_ms < ms


@frozen
class TableFiles:
    """A table's files, by decoded names relative to the table's folder.

    - `retention_ms`: of the table's own properties. A vacuum replaces it by a declared retention
      (`vacuum/facts.py`). `None` if unknown; in this case, all files are kept.
    - `live`: the data files and deletion vectors that the newest version reads.
    - `removed`: the files that only older versions or their change data need, with the time of the
      last removal (`None` if unknown). The name of a live file may be among them.
    - `real_folder`: the table's folder relative to the lake, with symbolic links resolved as far as
      they are known.
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
    removed: Mapping[str, int | None]
    real_folder: str
    partition_columns: tuple[str, ...]
    elsewhere: Mapping[str, Reference]
    kept_elsewhere: Set[str]
    outside: tuple[str, ...]
    unplaced: Set[str]

    def borrowed(self, tables: Iterable[str]) -> Set[str]:
        """The files in other folders of the lake that any version of this table may read.

        `tables` are all tables of the lake. The folder of a table that is nested in this table's
        folder counts as another folder.
        """
        borrowed = {*self.elsewhere, *self.kept_elsewhere}
        inner = tuple(f"{table}/" for table in tables if table.startswith(f"{self.table}/"))
        if inner:
            names = (f"{self.table}/{name}" for name in chain(self.live, self.removed))
            borrowed.update(name for name in names if name.startswith(inner))
        return borrowed


def fold_table_files(facts: TableFacts, *, resolve: ResolvePath, now_ms: int) -> TableFiles:
    """The files of a table at the snapshot's version.

    Files that the known commits removed are included even if they have no tombstone, because an
    older version reads them: a checkpoint drops expired tombstones, and the retention may have been
    shorter when the checkpoint was written. Files in other places are included only if they were
    removed within the retention.
    """
    snapshot = facts.snapshot
    names = _Names(snapshot, resolve)
    live: dict[str, Reference] = {}
    # No action records when a deletion vector was written. The newest commit is an upper bound.
    vector_reference = Reference(size_bytes=None, written_ms=snapshot.committed_ms)
    for file in snapshot.files:
        reference = Reference(size_bytes=file.size_bytes, written_ms=file.modified_ms)
        name = names.own(file.path, reference)
        if name:
            live[name] = replace(reference, written_ms=None) if name in names.linked else reference
        if file.deletion_vector:
            vector = vector_path(file.deletion_vector)
            vector_name = vector and names.own(vector, vector_reference)
            if vector_name:
                live[vector_name] = vector_reference
    retention_ms = retention_ms_of(snapshot.properties)
    since_ms = 0 if retention_ms is None else now_ms - retention_ms
    removed_ms = _removal_times(snapshot, facts.history.commits, since_ms)
    return TableFiles(
        table=snapshot.table,
        version=snapshot.version,
        retention_ms=retention_ms,
        live=live,
        removed=last_removals([names.own(path) for path in removed_ms], removed_ms.values()),
        real_folder=resolve(snapshot.uri) or snapshot.table,
        partition_columns=snapshot.partition_columns,
        elsewhere=names.elsewhere,
        kept_elsewhere=names.kept_elsewhere,
        outside=tuple(sorted(names.outside)),
        unplaced=names.unplaced,
    )


def _removal_times(
    snapshot: Snapshot, commits: Iterable[Commit], since_ms: int
) -> dict[str, int | None]:
    """The last removal of each path in the log that the newest version does not need any more."""
    vectors = [(vector_path(vector), ms) for vector, ms in snapshot.removed_vectors.items()]
    times = last_removals(
        [*(stone.path for stone in snapshot.tombstones), *(path for path, _ in vectors)],
        [*(stone.deleted_ms for stone in snapshot.tombstones), *(ms for _, ms in vectors)],
    )
    for commit in commits:
        for path in paths_until(commit):
            known_ms = times.get(path, 0)
            is_recent = commit.committed_ms >= since_ms
            if known_ms is not None and (is_recent or name_in_table(path) is not None):
                times[path] = max(known_ms, commit.committed_ms)
    return times


def paths_until(commit: Commit) -> Iterator[str]:
    """The paths of the files that versions before the commit, or readers of its changes, need."""
    vectors = filter(None, map(vector_path, commit.removed_vectors))
    return chain(commit.removed_paths, commit.change_paths, vectors)


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


_LOG_FOLDER = "/_delta_log/"


def table_roots(names: Iterable[str]) -> set[str]:
    """The folders that contain a Delta log: all tables, declared or not, but no archives.

    `names` are the names of objects, relative to the lake. Folder markers do not count as a log.
    """
    logs = (name for name in names if _LOG_FOLDER in name and not name.endswith(FOLDER_SUFFIX))
    return {name.partition(_LOG_FOLDER)[0] for name in logs if not name.startswith("archive/")}


class Owners:
    """Finds the table that an object belongs to: the innermost table whose folder it is in."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = frozenset(tables)

    def table_of(self, name: str) -> str | None:
        """The table that the object `name` (relative to the lake) belongs to, or `None`.

        The marker of a table's folder (`<table>/`) belongs to this table.
        """
        folder = name.rpartition("/")[0]
        while folder and folder not in self._tables:
            folder = folder.rpartition("/")[0]
        return folder or None


_LOG = "_delta_log/"
_CHANGES = "_change_data/"
# Source: PROTOCOL.md, "Deletion Vector File Storage Format".
_VECTOR = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]{36}\.bin", re.DOTALL)


def is_data_file(name: str) -> bool:
    """Whether a file that the log names holds rows: it is no deletion vector or change data."""
    return not name.startswith(_CHANGES) and not _VECTOR.fullmatch(name)


@frozen
class OtherUses:
    """What other tables use in a table's folder.

    - `borrowed`: files that other tables read (names relative to the lake).
    - `unplaced`: base names of further files that other tables may read (`TableFiles.unplaced`).
    - `landed`: prefixes, relative to the lake, that declared tables load from.
    """

    borrowed: frozenset[str] = frozenset()
    unplaced: frozenset[str] = frozenset()
    landed: tuple[str, ...] = ()

    def with_more(self, *, borrowed: Set[str] = frozenset(), unplaced: Set[str]) -> "OtherUses":
        """These uses, and those of another table."""
        if borrowed <= self.borrowed and unplaced <= self.unplaced:
            return self
        return replace(self, borrowed=self.borrowed | borrowed, unplaced=self.unplaced | unplaced)

    def may_read(self, table_files: TableFiles, name: str) -> bool:
        """Whether another table reads, or may read, a file of this table."""
        is_borrowed = f"{table_files.real_folder}/{name}" in self.borrowed
        return is_borrowed or name.rpartition("/")[2] in self.unplaced


def is_current(each: StoredObject) -> bool:
    """Whether reading the key returns this object; always true in a report without versions."""
    return each.is_latest is not False and not each.is_delete_marker


def archived_table(name: str) -> str | None:
    """The table whose archive (`archive/<layer>/<name>/`) a file is in; `None` for other files.

    `name` is relative to the lake.
    """
    top, *below = name.split("/", 3)
    return "/".join(below[:2]) if top == "archive" and len(below) == 3 else None


def archived_part(each: StoredObject) -> Part:
    """The `Part` to which an object in a table's archive belongs."""
    if each.is_delete_marker:
        return Part.DELETE_MARKERS
    return Part.ARCHIVED if is_current(each) else Part.NONCURRENT


class ObjectClassifier:
    """Assigns each object in a table's folder to a `Part`.

    A removed file is past the retention if it was removed before the horizon; a file that was never
    in the table, if it was last modified before the horizon. The horizon is `now_ms` minus the
    retention, or the argument `horizon_ms` if the argument is earlier. If the retention is unknown,
    the horizon is 0, and no file is past the retention.
    """

    def __init__(
        self,
        table_files: TableFiles,
        other_uses: OtherUses,
        *,
        now_ms: int,
        horizon_ms: int | None = None,
    ) -> None:
        self._table_files = table_files
        self._uses = other_uses.with_more(unplaced=table_files.unplaced)
        kept_since_ms = 0 if table_files.retention_ms is None else now_ms - table_files.retention_ms
        self.horizon_ms = kept_since_ms if horizon_ms is None else min(kept_since_ms, horizon_ms)
        # Hidden files are the files that Delta's own listing omits, and `metadata/`, which Apache
        # XTable and UniForm write for Iceberg readers. `_delta_index` also counts as hidden, though
        # Delta lists it: Databricks stores indexes of live files there.
        # Source: delta-io/delta v4.4.0, `DeltaTableUtils.isHiddenDirectory`
        partitions = [f"{re.escape(column)}=" for column in table_files.partition_columns]
        listed = "|".join(["_change_data(?:/|$)", *partitions])
        self._hidden = re.compile(rf"metadata/|(?:^|.*/)(?!{listed})[._]", re.DOTALL)

    def part_of(self, name: str, each: StoredObject) -> Part:
        """The `Part` to which an object belongs; `name` is relative to the table."""
        if each.is_delete_marker:
            return Part.DELETE_MARKERS
        if not is_current(each):
            return Part.NONCURRENT
        if name in self._table_files.live:
            return Part.VECTORS_LIVE if _VECTOR.fullmatch(name) else Part.LIVE
        if name.startswith(_LOG):
            return Part.LOG
        if each.is_dir:
            return Part.FOLDERS
        if self._uses.may_read(self._table_files, name):
            return Part.LENT
        if f"{self._table_files.real_folder}/{name}".startswith(self._uses.landed):
            return Part.LANDED
        return self._not_read_now(name, each)

    def _not_read_now(self, name: str, each: StoredObject) -> Part:
        """The `Part` of a file that the newest version does not read."""
        was_removed = name in self._table_files.removed
        ms = self._table_files.removed[name] if was_removed else each.modified_ms
        is_kept = ms is None or ms >= self.horizon_ms
        if name.startswith(_CHANGES):
            return Part.CHANGE_DATA if is_kept else Part.CHANGE_DATA_PAST
        if _VECTOR.fullmatch(name) and (was_removed or not is_kept):
            return Part.VECTORS_KEPT if is_kept else Part.VECTORS_DEAD
        if was_removed:
            return Part.TOMBSTONED_KEPT if is_kept else Part.TOMBSTONED_PAST
        if self._hidden.match(name):
            return Part.HIDDEN
        return Part.ORPHANED_YOUNG if is_kept else Part.ORPHANED_OLD


# Below this size, a data file counts as small if its table's log is not read: three quarters of
# 16 MiB, the smallest target size that is chosen automatically.
_SMALL_BYTES = 12 * 1024 * 1024
_NEEDED_NOW = (Part.LIVE, Part.VECTORS_LIVE)

_PARTS_IN_ORDER = (None, *Part)


@dataclass(slots=True, kw_only=True)
class UsageShare:
    """Objects of one part and one storage class. `reconcile` counts them.

    `part` is `None` if the objects belong to no table. `folder` is the table or, for objects of no
    table, `_top_folder`. `small_count` is the number of small data files; it is
    counted only for objects of no table, or of a table whose log cannot be read.
    """

    part: Part | None
    storage_class: str | None
    folder: str
    file_count: int = 0
    size_bytes: int = 0
    small_count: int = 0


@frozen
class TableShares:
    """All objects in one table's folder and in its archive's folder, by part.

    - `version` is `None` if the log cannot be read. In this case, `problem` is the reason.
    - `missing`: live files (files that the newest version reads) that are not in storage, without
      those behind a symbolic link, which no report shows. Names are relative to the table; for
      files in other folders of the lake, to the lake.
    - `archived`: live files that must be restored before they can be read.
    - `cold_files`: maps live files that cost a fee to read (`StoredObject.is_cold`) to their class.
    - `resized`: live files whose size in storage differs from the log.
    """

    table: str
    version: int | None = None
    retention_ms: int | None = None
    shares: Sequence[UsageShare]
    missing: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    cold_files: Mapping[str, str] = {}
    resized: tuple[str, ...] = ()
    problem: str = ""

    @property
    def file_count(self) -> int:
        """The number of objects in the table's folder and archive, without nested tables."""
        return sum(share.file_count for share in self.shares)

    @property
    def size_bytes(self) -> int:
        """The total size of the objects that `file_count` counts."""
        return total_bytes(self.shares)


@frozen
class Reconciliation:
    """The whole inventory: the tables, sorted by name, and the objects outside all tables."""

    tables: Sequence[TableShares]
    unclaimed: tuple[UsageShare, ...]

    @property
    def file_count(self) -> int:
        """The number of objects in the inventory."""
        return sum(each.file_count for each in (*self.tables, *self.unclaimed))

    @property
    def size_bytes(self) -> int:
        """The total size of the objects in the inventory."""
        return total_bytes((*self.tables, *self.unclaimed))


@frozen
class KnownTables:
    """The tables of a lake.

    The lake's keys begin with `lake_prefix`, which is empty or ends in `/`. `unread` maps tables
    whose log cannot be read to the reason. Declared tables load from the prefixes in `landed`.
    """

    files: Sequence[TableFiles]
    unread: Mapping[str, str]
    landed: tuple[str, ...]
    lake_prefix: str


def reconcile(
    tables: KnownTables, objects: Iterable[StoredObject], *, settled_ms: int, now_ms: int
) -> Reconciliation:
    """Assigns each object of an inventory of the lake to one `Part` of one table, or to no table.

    A live file that was written before `settled_ms` and that the inventory lacks is missing. The
    tables' logs must be read after the inventory was created. Then, files of the inventory that
    were removed in the meantime have a tombstone, and files that were added are not taken for
    orphans.
    """
    table_keys = [*(each.table for each in tables.files), *tables.unread]
    uses = _other_uses(tables, table_keys)
    by_key = {each.table: _Table(each, uses, now_ms) for each in tables.files}
    owners = Owners(table_keys)
    borrowed_in_storage = set[str]()
    shares: dict[tuple[str, Part | None, str | None], UsageShare] = {}
    for each in objects:
        name = each.key.removeprefix(tables.lake_prefix)
        owner = owners.table_of(name)
        if name in uses.borrowed and is_current(each):
            borrowed_in_storage.add(name)
        folder = owner or archived_table(name) or ""
        is_small = False
        if folder in by_key:  # in the folder of a table, or in its archive
            part = by_key[folder].take(name, each) if owner else archived_part(each)
        else:  # in no table, or in one whose log cannot be read
            part = Part.UNREAD if owner else None
            folder = owner or _top_folder(name)
            is_small = _is_small_data(each)
        usage = (folder, part, each.storage_class)
        if usage not in shares:
            shares[usage] = UsageShare(folder=folder, part=part, storage_class=each.storage_class)
        shares[usage].file_count += 1
        shares[usage].size_bytes += each.size_bytes
        shares[usage].small_count += is_small
    ordered = sorted(shares.values(), key=_order)
    by_table = defaultdict[str, list[UsageShare]](list)
    for share in ordered:
        if share.part is not None:
            by_table[share.folder].append(share)
    reconciled = [
        table.shares(by_table[key], borrowed_in_storage, settled_ms=settled_ms)
        for key, table in by_key.items()
    ]
    for key, why in tables.unread.items():
        reconciled.append(TableShares(table=key, shares=by_table[key], problem=why))
    return Reconciliation(
        tables=sorted(reconciled, key=lambda table: table.table),
        unclaimed=tuple(share for share in ordered if share.part is None),
    )


def _other_uses(tables: KnownTables, table_keys: Sequence[str]) -> OtherUses:
    return OtherUses(
        borrowed=frozenset[str]().union(*(each.borrowed(table_keys) for each in tables.files)),
        unplaced=frozenset[str]().union(*(each.unplaced for each in tables.files)),
        landed=tables.landed,
    )


def _order(share: UsageShare) -> tuple[str, int, str]:
    return share.folder, _PARTS_IN_ORDER.index(share.part), share.storage_class or ""


class _Table:
    """Tracks which live files of a table are missing, archived, cold, or of another size."""

    def __init__(self, table_files: TableFiles, uses: OtherUses, now_ms: int) -> None:
        self._table_files = table_files
        self._classifier = ObjectClassifier(table_files, uses, now_ms=now_ms)
        folder = f"{table_files.table}/"
        # By names relative to the lake.
        self._unseen = {f"{folder}{name}": each for name, each in table_files.live.items()}
        self._unseen |= table_files.elsewhere
        self._resized: list[str] = []
        self._archived: list[str] = []
        self._cold: dict[str, str] = {}

    def take(self, name: str, each: StoredObject) -> Part:
        """Records an object as seen, and returns its part. `name` is relative to the lake."""
        own = name.removeprefix(f"{self._table_files.table}/")
        part = self._classifier.part_of(own, each)
        if part in _NEEDED_NOW:
            self._unseen.pop(name, None)
            if each.is_archived:
                self._archived.append(own)
            if each.storage_class is not None and each.is_cold:
                self._cold[own] = each.storage_class
            live = self._table_files.live.get(own)
            logged_bytes = None if live is None else live.size_bytes
            if logged_bytes is not None and logged_bytes != each.size_bytes:
                self._resized.append(own)
        return part

    def shares(
        self, shares: Sequence[UsageShare], borrowed_in_storage: Set[str], *, settled_ms: int
    ) -> TableShares:
        """The table's shares, after all objects were taken.

        `borrowed_in_storage` are the borrowed files, of all tables, that the inventory contains.
        """
        table_files = self._table_files
        missing = [
            name.removeprefix(f"{table_files.table}/")
            for name, reference in self._unseen.items()
            if name not in borrowed_in_storage and reference.is_older_than(settled_ms)
        ]
        return TableShares(
            table=table_files.table,
            version=table_files.version,
            retention_ms=table_files.retention_ms,
            shares=shares,
            missing=tuple(sorted(missing)),
            archived=tuple(sorted(self._archived)),
            cold_files=self._cold,
            resized=tuple(sorted(self._resized)),
        )


def _is_small_data(each: StoredObject) -> bool:
    is_hidden = "/_" in f"/{each.key}" or "/." in each.key
    is_data = not each.is_dir and not is_hidden and is_current(each)
    return is_data and each.size_bytes < _SMALL_BYTES


def _top_folder(name: str) -> str:
    """The top two folders of a name, for example `landing/weather/`; at the root, the name."""
    *folders, last = name.split("/")
    return "".join(f"{folder}/" for folder in folders[:2]) or last


CHECKS = {
    "missing": "Every file that a table's newest version reads is in storage.",
    "readable": "No file that a table's newest version reads is in an archive, where reads fail.",
}


def assess_missing(reconciliation: Reconciliation) -> CheckResult:
    """Whether every live file (a file that the newest version reads) is in the inventory.

    The check also fails if a table's log cannot be read.
    """
    tables = reconciliation.tables
    missing = [f"{table.table}/{name}" for table in tables for name in table.missing]
    sentence = f"{count_of(len(tables), 'table')}: every live file is in storage"
    if missing:
        sentence = (
            f"the inventory lacks {count_of(len(missing), 'live file')}: {first_names(missing)}. "
            "Unless the inventory covers another prefix, restore the missing files from a backup"
        )
    unread = [table.table for table in tables if table.problem]
    if unread:
        sentence += f"; not checked, because the log cannot be read: {first_names(unread)}"
    numbers = {"missing_files": len(missing), "unread_tables": len(unread)}
    return CheckResult(
        name="missing",
        ok=not missing and not unread,
        sentence=sentence,
        is_error=True,
        numbers=numbers,
    )


def assess_readable(reconciliation: Reconciliation, *, address: str) -> CheckResult:
    """Whether every live file in the inventory can be read without a restore.

    `address` is the lake's address, for example `s3://bucket/lake`.
    """
    tables = reconciliation.tables
    archived = [f"{table.table}/{name}" for table in tables for name in table.archived]
    sentence = f"{count_of(len(tables), 'table')}: no live file is in an archive"
    if archived:
        sentence = (
            f"{count_of(len(archived), 'live file')} in an archive: {first_names(archived)}. "
            f"{restore_advice(f'{address}/{archived[0]}')}"
        )
    return CheckResult(
        name="readable",
        ok=not archived,
        sentence=sentence,
        is_error=True,
        numbers={"archived_files": len(archived)},
    )


def restore_advice(address: str) -> str:
    """The commands that make the archived object at `s3://bucket/key` readable again."""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    quoted = shlex.quote(address)
    return (
        "First disable the lifecycle rule or the archive configuration that moves files there. "
        f"Then, for each file, use: aws s3api restore-object --bucket {bucket} --key "
        f"{shlex.quote(key)} --restore-request Days=7; hours later, after the restore, use: "
        f"aws s3 cp {quoted} {quoted} --storage-class STANDARD --force-glacier-transfer"
    )
