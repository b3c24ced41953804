"""A table's log as a vacuum read it, and the check whether the log has changed since then."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.paths import is_absolute
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken, LakehouseError, Refused
from lakehouse.core.inventory.table_files import Owners, TableFiles, fold_table_files
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import newest_first
from lakehouse.engine.delta_log.checkpoint import (
    UNREADABLE,
    batches,
    read_checkpoint,
    texts_of,
    vectors_of,
)
from lakehouse.engine.delta_log.log_segment import (
    LogChanged,
    LogContradiction,
    UnreadableCheckpoint,
    find_segment,
    log_folder,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.store import Store, StoredFile

_NO_VERSION = -1  # lower than every version: no commit has been read yet


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """The facts in a table's log, and the table's files according to the log."""

    facts: TableFacts
    table_files: TableFiles

    @property
    def file_count(self) -> int:
        """The number of files that the log names, live and removed."""
        return len(self.table_files.live) + len(self.table_files.tombstones)


def read_log(lake: Lake, table: str, *, resolve: PathResolver) -> KnownLog | None:
    """Reads the current log of a table; `None` if there is no table."""
    facts = lake.facts(table)
    if facts is None:
        return None
    table_files = fold_table_files(
        facts.snapshot, resolve=resolve, commits=facts.history.commits, now_ms=now_ms()
    )
    return KnownLog(facts=facts, table_files=table_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadLog:
    """A log that cannot be read, and the reason.

    `folders` are the lake's folders that contain files named in the readable part of the log. If
    the readable part does not suffice, `folders` is `None`, and the table may read any file.
    `unplaced` are the base names of files whose paths may or may not lead into the lake.
    """

    reason: str
    folders: frozenset[str] | None = None
    unplaced: frozenset[str] = frozenset()

    def may_borrow_from(self, table: str, tables: Iterable[str]) -> bool:
        """Whether the table with this log may read files of `table`, one of the lake's `tables`."""
        if self.folders is None:
            return True
        owners = Owners({table, *tables})
        return any(owners.table_of(folder) == table for folder in self.folders)


def salvage_log(
    lake: Lake, table: str, error: LakehouseError, *, resolve: PathResolver
) -> UnreadLog:
    """Finds the folders of a table's files in the readable part of its log.

    The unreadable part is assumed to name files in the same folders.
    """
    try:
        paths = readable_paths(lake.store, table, trusts_checkpoints=not _is_contradiction(error))
    except (LakehouseError, FileNotFoundError):
        paths = None
    if paths is None:
        return UnreadLog(reason=str(error))
    folders = set[str]()
    unplaced = set[str]()
    uri = lake.table_uri(table)
    for path in paths:
        decoded_path = unquote(path)
        address = decoded_path if is_absolute(path) else f"{uri}/{decoded_path}"
        name = resolve(address)
        if name is None:
            unplaced.add(decoded_path.rpartition("/")[2])
        else:
            folders.add(f"{name.rpartition('/')[0]}/")
    return UnreadLog(reason=str(error), folders=frozenset(folders), unplaced=frozenset(unplaced))


def _is_contradiction(error: BaseException) -> bool:
    """Whether the error or one of its causes is a `LogContradiction`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LogContradiction):
            return True
        cause = cause.__cause__
    return False


def has_newer_version(lake: Lake, facts: TableFacts) -> bool:
    """Whether the log has a newer version than `facts`.

    Raises:
        Broken: the newest commit in `facts` is gone or was replaced. Then the log was reset to an
            older state, and it is unknown which files the table needs.
    """
    table = facts.snapshot.table
    newest = facts.newest
    if change := lake.changed(table, newest):
        raise Broken(
            f"vacuum of {table}: the commit of version {newest.version} has changed since it was "
            f"read: {newest.name} {change}. The log may have been reset to an older state, so no "
            "more files were deleted. Check the log, then run the vacuum again"
        )
    return lake.has_version(table, newest.version + 1)


class OlderCommits:
    """A table's commits before its known history, even beyond a gap.

    Each commit is read once. All commits are read again only if a call's history does not continue
    the history of the previous call.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: list[Commit] = []  # newest first
        self._rest: Iterator[Commit] = iter(())

    def below(self, history: Commits) -> Iterator[Commit]:
        """All commits, newest first: the commits of `history`, then older commits.

        Raises as `newest_first`.
        """
        newest = self._read[0].version if self._read else _NO_VERSION
        newer = [commit for commit in reversed(history.commits) if commit.version > newest]
        is_unread = not newer and not self._read
        has_gap = bool(newer) and newer[-1].version > newest + 1
        if is_unread or has_gap:
            self._read = []
            self._rest = newest_first(self._store, history, over_gaps=True)
        else:
            self._read = [*newer, *self._read]
        yield from self._read
        for commit in self._rest:
            self._read.append(commit)
            yield commit


_LEAVES = ("path", "deletionVector.storageType", "deletionVector.pathOrInlineDv")
_FIRST_COMMIT = f"{0:020}.json"
# A truncated string has no closing quote, so it does not match.
_PATH = re.compile(r'"(path|pathOrInlineDv)"\s*:\s*("(?:[^"\\]|\\.)*")')


def readable_paths(
    store: Store, key: str, *, trusts_checkpoints: bool = True
) -> frozenset[str] | None:
    """The paths in the readable part of a log; `None` if it may lack files of other tables.

    These are the paths of data files and the absolute paths of deletion vectors, as the log spells
    them. A shallow clone names the files of other tables in its first commit, and every checkpoint
    repeats these names. Therefore, the readable part is sufficient if it names any file and
    includes the first commit or a complete checkpoint. Use `trusts_checkpoints=False` if the log
    contradicts itself: then only the first commit is sufficient.
    """
    listing = store.list(log_folder(key))
    paths = set[str]()
    is_sufficient = trusts_checkpoints and _has_complete_checkpoint(store, key, listing)
    for file in listing:
        if file.name.endswith(".parquet"):
            paths |= _paths_in_checkpoint(store.read(file.name))
        elif file.name.endswith((".json", ".crc")):
            data = store.read(file.name)
            paths.update(_paths_in(data))
            if file.name.endswith(f"/{_FIRST_COMMIT}") and _is_complete(data):
                is_sufficient = True
    return frozenset(paths) if is_sufficient and paths else None


def _has_complete_checkpoint(store: Store, key: str, listing: Sequence[StoredFile]) -> bool:
    """Whether the whole checkpoint of any version can be read, and names a live file."""
    by_version: defaultdict[str, list[StoredFile]] = defaultdict(list)
    for file in listing:
        name = file.name.removeprefix(log_folder(key))
        if ".checkpoint" in name:
            by_version[name[:20]].append(file)
    for files in by_version.values():
        with suppress(LogChanged, UnreadableCheckpoint, FileNotFoundError, Refused):
            segment = find_segment(files, key)
            if segment is not None and read_checkpoint(store, segment).add_count:
                return True
    return False


def _paths_in(data: bytes) -> Iterator[str]:
    for kind, quoted in _PATH.findall(data.decode("utf-8", "replace")):
        try:
            path: str = json.loads(quoted, strict=False)
        except ValueError:
            continue
        if kind == "path" or is_absolute(path):
            yield path


def _is_complete(data: bytes) -> bool:
    """Whether every line of a commit can be read."""
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return False
    return bool(lines) and all(isinstance(line, dict) for line in lines)


def _paths_in_checkpoint(data: bytes) -> set[str]:
    """The paths that can be read from a checkpoint's Parquet file, which may be damaged."""
    paths = set[str]()
    with suppress(*UNREADABLE), pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in ("add", "remove"):
            for rows in batches(file, kind, _LEAVES):
                paths.update(texts_of(rows, "path").to_pylist())
                vectors = [vector for _, vector in vectors_of(rows)]
                paths.update(
                    vector["pathOrInlineDv"] for vector in vectors if vector["storageType"] == "p"
                )
    return paths
