"""Reads from the log when files were removed, and which files were never removed.

**Safety properties** (tests in `vacuum/plan/test_vacuum.py`)
- A file that a commit within the retention removed is kept, even if its tombstone is gone.
- A file is kept if a commit that is still in the log added it and no later commit removed it,
  even if a checkpoint lacks the file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from urllib.parse import unquote

from lakehouse.base.errors import Broken
from lakehouse.base.paths import name_in_table, vector_path
from lakehouse.base.stored_objects import StoredObject
from lakehouse.base.units import DAY_MS
from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.delta.commits import Commit
from lakehouse.vacuum.inventory.plan.table_files import TableFiles
from lakehouse.vacuum.plan.facts import VacuumFacts, written_once


def log_covers(facts: VacuumFacts) -> bool:
    """Whether the known commits name every file removed since the last complete vacuum's horizon.

    Without a complete vacuum, they must reach back to version 0.
    """
    commits = facts.log.history.commits
    if not commits:
        return False
    last = facts.last_complete
    reaches_last = last is not None and commits[0].committed_ms <= last.horizon_ms
    return commits[0].version == 0 or reaches_last


def removed_by_log(facts: VacuumFacts) -> dict[str, int]:
    """Maps files removed since the last complete vacuum's horizon to the time of removal.

    Names are relative to the table. Files that the last complete vacuum kept or failed to delete
    are included, also if they were removed earlier; 0 stands for an unknown time. An orphan among
    them is omitted if a writer may have used its name again, which the log does not show; the next
    search for orphans finds it. If only the log decides (`log_only`) and the known history does not
    reach back to the horizon, older commits are read, too, because no listing finds the files that
    they removed.
    """
    last = facts.last_complete
    since_ms = 0 if last is None else last.horizon_ms
    removed = {} if last is None else _not_deleted_by(last, facts.table_files)
    commits: Iterable[Commit] = facts.log.history.commits
    if facts.log_only and facts.older_commits and not log_covers(facts):
        removed |= _since(facts.table_files.tombstones, since_ms)
        older = takewhile(
            lambda commit: commit.committed_ms >= since_ms - DAY_MS,
            facts.older_commits(facts.log.history),
        )
        commits = reversed([*older])
    for commit in commits:
        if commit.committed_ms < since_ms:
            continue
        for name in _names_in_table(commit.removed_paths):
            removed[name] = commit.committed_ms
    return removed | _since(facts.table_files.removed_vectors, since_ms)


def _since(removed: Mapping[str, int | None], since_ms: int) -> dict[str, int]:
    return {name: ms for name, ms in removed.items() if ms is not None and ms >= since_ms}


def _not_deleted_by(last: VacuumRecord, table_files: TableFiles) -> dict[str, int]:
    """The files that a vacuum failed to delete or had to keep, with the time of removal."""
    remaining = dict[str, int]()
    for name in (*last.failed, *last.kept):
        is_written_once = written_once(name)
        # The log does not show whether a name without a tombstone was written again.
        if name not in table_files.tombstones and not is_written_once:
            continue
        removed_ms = table_files.tombstones.get(name, table_files.removed_vectors.get(name))
        # The vacuum could have deleted only files from before its horizon. So, if the time is
        # unknown, the horizon stands for it, but only if the name is never used twice.
        default_ms = last.horizon_ms if is_written_once else 0
        remaining[name] = removed_ms or default_ms
    return remaining


def objects_by_log(facts: VacuumFacts, *, bucket: str) -> Iterable[StoredObject]:
    """The removed files that may still be in storage, according to the log.

    A size of 0 means unknown. `modified_ms` is the time of removal, since the log lacks the time of
    the last write, which was earlier.
    """
    sizes = {name_in_table(stone.path): stone.size_bytes for stone in facts.log.snapshot.tombstones}
    for name, removed_ms in removed_by_log(facts).items():
        yield StoredObject(
            bucket=bucket,
            key=f"{facts.lake_prefix}{facts.table}/{name}",
            size_bytes=sizes.get(name) or 0,
            modified_ms=removed_ms,
        )


class RemovedSince:
    """The files that commits at the horizon or later removed, which retained versions still read.

    Deletion vectors that these commits removed, and their change data, are included. Tombstones do
    not suffice: a checkpoint drops expired tombstones, and the retention may have been shorter when
    the checkpoint was written. Commits before the known history are read only for files without a
    tombstone. An absolute path, or a path that begins with `..`, may lead into the table, so every
    file with the same base name is kept.
    """

    def __init__(self, facts: VacuumFacts, horizon_ms: int) -> None:
        self._facts = facts
        self._horizon_ms = horizon_ms
        self._known = self._names(facts.log.history.commits)

    def holds(self, name: str) -> bool:
        """Whether a version within the retention may read this file."""
        table_files = self._facts.table_files
        names = {name, f"/{name.rpartition('/')[2]}"}
        if not names.isdisjoint(self._known):
            return True
        has_tombstone = name in table_files.tombstones or name in table_files.removed_vectors
        return not has_tombstone and not names.isdisjoint(self._older)

    @cached_property
    def _older(self) -> frozenset[str]:
        history = self._facts.log.history
        older_commits = self._facts.older_commits
        # Commit times are not strictly ascending, because the clocks of machines differ.
        since_ms = self._horizon_ms - DAY_MS
        if older_commits is None:
            return frozenset()
        if history.commits and history.commits[0].committed_ms < since_ms:
            return frozenset()
        return self._names(
            takewhile(lambda commit: commit.committed_ms >= since_ms, older_commits(history))
        )

    def _names(self, commits: Iterable[Commit]) -> frozenset[str]:
        """Names of files in the table; for other paths, a slash and the base name."""
        names = set[str]()
        for commit in commits:
            if commit.committed_ms < self._horizon_ms:
                continue
            vector_paths = [vector_path(vector) for vector in commit.removed_vectors]
            for path in (*commit.removed_paths, *commit.change_paths, *vector_paths):
                if path:
                    names.add(name_in_table(path) or f"/{unquote(path).rpartition('/')[2]}")
        return frozenset(names)


class AddedByLog:
    """The files that a commit still in the log added, and that no later commit removed.

    These files are live, even if a checkpoint lacks them. Commits before the known history are read
    only for files without a tombstone.
    """

    def __init__(self, facts: VacuumFacts) -> None:
        self._facts = facts
        self._known = _last_additions(facts.log.history.commits[::-1])

    def must_stay(self, name: str) -> bool:
        """Whether the file must be kept, because it is unknown whether a missing commit removed it.

        Raises:
            Broken: no commit is missing, so the newest checkpoint lacks this file. It may also lack
                files that no commit names.
        """
        table_files = self._facts.table_files
        has_tombstone = name in table_files.tombstones or name in table_files.removed_vectors
        version = (self._known if has_tombstone else self._all).get(name)
        if version is None:
            return False
        if version < self._first_without_gap:
            return True
        checkpoint = self._facts.log.snapshot.log.checkpoint_version
        of_version = "" if checkpoint is None else f" of version {checkpoint}"
        raise Broken(
            f"vacuum of {table_files.table}: the checkpoint{of_version} lacks the file {name}. "
            f"Version {version} added the file, and no commit up to version {table_files.version} "
            "removed it. Nothing was deleted. Restore the checkpoint from a backup. If all commits "
            "since version 0 are in the log, delete the checkpoint and _last_checkpoint instead"
        )

    @cached_property
    def _commits(self) -> Sequence[Commit]:
        """All commits of the log, newest first."""
        history = self._facts.log.history
        older_commits = self._facts.older_commits
        return history.commits[::-1] if older_commits is None else [*older_commits(history)]

    @cached_property
    def _all(self) -> Mapping[str, int]:
        return _last_additions(self._commits)

    @cached_property
    def _first_without_gap(self) -> int:
        """The oldest version after which no commit is missing."""
        oldest = self._facts.table_files.version + 1
        for commit in self._commits:
            if commit.version < oldest - 1:
                break
            oldest = commit.version
        return oldest


def _last_additions(newest_first: Iterable[Commit]) -> dict[str, int]:
    """The files that these commits added and did not remove later, with the version of the add."""
    last: dict[str, int | None] = {}
    for commit in newest_first:
        added = set(_names_in_table(commit.added_paths))
        removed = set(_names_in_table(commit.removed_paths))
        for name in added:
            last.setdefault(name, commit.version)
        for name in removed - added:
            last.setdefault(name, None)
    return {name: version for name, version in last.items() if version is not None}


def _names_in_table(paths: Iterable[str]) -> Iterator[str]:
    """The names of the files inside the table; other paths are omitted."""
    for path in paths:
        name = name_in_table(path)
        if name:
            yield name
