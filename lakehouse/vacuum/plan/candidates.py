"""Selects the objects that may be deleted, by the listing and by the log.

**Safety properties** (tests in `vacuum/plan/test_vacuum.py`)
- A file that a commit within the retention removed is kept, even if its tombstone is gone.
- A file is kept if a commit that is still in the log added it and no later commit removed it,
  even if a checkpoint lacks the file.

What an object is to its table (live, removed within or before the retention, an orphan) is decided
in `vacuum/inventory/plan/reconcile.py`. Files that a kept version reads are kept here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from urllib.parse import unquote

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.paths import name_in_table, vector_path
from lakehouse.base.stored_objects import RECLAIMABLE, Part, StoredObject, plausible_ms
from lakehouse.base.text import DAY_MS, HOUR_MS
from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.delta.commits import Commit
from lakehouse.delta.protocol import unknown_features
from lakehouse.vacuum.inventory.plan.reconcile import ObjectClassifier
from lakehouse.vacuum.inventory.plan.table_files import Owners, TableFiles, table_roots
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


# A vacuum collects at most this many candidates. Each takes about 300 bytes of memory, so a million
# takes 300 MB.
MOST_FILES = 1_000_000
# An inventory whose times are all at least this much too early may have local times instead of UTC,
# because time zones are at least half an hour apart.
_ZONE_MS = 1_800_000
# Names that Delta or S3 rejects in a request. A single such name would make the whole vacuum fail.
# Source: Hadoop, Path(String): a colon before the first slash ends a scheme; W3C, XML 1.0, Char,
# because a DeleteObjects request is XML.
_UNSUPPORTED_NAME = re.compile(
    r"[^/]*:|.*[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file to delete, with its name relative to the table.

    `size_bytes` is 0 if only the log names the file, and the log lacks the size. For a Hadoop
    checksum, `goes_with` is the name of the data file; for all other files, `goes_with` is empty.
    """

    name: str
    size_bytes: int
    modified_ms: int
    part: Part
    goes_with: str = ""


class Selection:
    """Collects the objects of one table that may be deleted. Objects of nested tables are kept.

    The first `MOST_FILES` objects are collected, which bounds memory; `over_limit_count` counts the
    remaining objects, which wait for the next vacuum.
    """

    def __init__(self, facts: VacuumFacts, classifier: ObjectClassifier) -> None:
        self._facts = facts
        self._classifier = classifier
        self._owners = Owners({facts.table, *facts.tables})
        self._removed_since = RemovedSince(facts, classifier.horizon_ms)
        self._added = AddedByLog(facts)
        self._collected: dict[str, Candidate] = {}
        self._checksums: dict[str, StoredObject] = {}
        self._nested: set[str] = set()  # the folders of tables that the listing itself shows
        self._lead_ms: int | None = None  # see `_compare_times`
        self.over_limit_count = 0
        self.borrowed: set[str] = set()
        self.kept: set[str] = set()  # the files that only a kept version needs
        # The files of the newest version that no listed object has shown so far.
        self.unseen: set[str] = {*facts.table_files.live, *facts.table_files.vectors}

    def take(self, objects: Iterable[StoredObject]) -> None:
        """Examines listed objects, and collects the objects that may be deleted.

        Live files of this table count as seen, even in another table's folder. All other files in
        another table's folder are kept.
        """
        lake_prefix = self._facts.lake_prefix
        folder = f"{lake_prefix}{self._facts.table}/"
        for stored in objects:
            if not stored.key.startswith(folder):
                continue
            name = stored.key.removeprefix(folder)
            part = self._classifier.part_of(name, stored)
            if part in (Part.LIVE, Part.VECTORS_LIVE):
                self.unseen.discard(name)
                self._compare_times(name, stored)
                continue
            owner = self._owners.table_of(stored.key.removeprefix(lake_prefix))
            if owner == self._facts.table:
                self._nested |= table_roots([name])
                self._take_own(name, stored, part)

    def _take_own(self, name: str, stored: StoredObject, part: Part) -> None:
        """Collects an object of the table if it may be deleted; notes some of the others."""
        if part is Part.LENT and self._facts.log_only:
            self.borrowed.add(name)
        elif part is Part.HIDDEN and name.endswith(".crc"):
            self._checksums[name] = stored
        elif not self._may_be_deleted(name, stored, part):
            return
        elif name in self._facts.kept_for_versions:
            self.kept.add(name)
        elif name not in self._collected and len(self._collected) >= MOST_FILES:
            self.over_limit_count += 1
        else:
            self._collected[name] = Candidate(
                name=name,
                size_bytes=stored.size_bytes,
                modified_ms=stored.modified_ms or 0,
                part=part,
            )

    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates, sorted by name, each followed by its Hadoop checksum.

        Files of nested tables are excluded, even if a nested table was created after the lake's
        tables were listed.
        """
        candidates: list[Candidate] = []
        for name in self._without_nested(self._collected):
            candidate = self._collected[name]
            candidates.append(candidate)
            stored = self._checksums.get(checksum_name(name))
            if stored is not None:
                candidates.append(
                    Candidate(
                        name=checksum_name(name),
                        size_bytes=stored.size_bytes,
                        modified_ms=stored.modified_ms or candidate.modified_ms,
                        part=Part.HIDDEN,
                        goes_with=name,
                    )
                )
        return tuple(candidates)

    def _without_nested(self, names: Iterable[str]) -> Iterable[str]:
        nested = Owners(self._nested)
        return (name for name in sorted(names) if not nested.table_of(name))

    def _compare_times(self, name: str, stored: StoredObject) -> None:
        """Keeps the largest difference (listed minus logged) between the times of a live file."""
        live = self._facts.table_files.live.get(name)
        if stored.modified_ms is not None and live is not None and live.written_ms is not None:
            lead_ms = stored.modified_ms - live.written_ms
            self._lead_ms = lead_ms if self._lead_ms is None else max(lead_ms, self._lead_ms)

    def refuse_local_times(self, inventory: str) -> None:
        """Refuses an inventory in which all live files are half an hour older than in the log.

        With such times, files would count as older than the retention too early.
        """
        if self._lead_ms is not None and self._lead_ms <= -_ZONE_MS:
            raise Refused(
                f"vacuum of {self._facts.table} by mode INVENTORY: in inventory {inventory}, every "
                f"live file is at least {-self._lead_ms / HOUR_MS:.1f} h older than in the log. "
                "It may have local times instead of UTC. Use a report in UTC, or mode FULL"
            )

    def _may_be_deleted(self, name: str, stored: StoredObject, part: Part) -> bool:
        """Whether the object is reclaimable, older than the horizon, and validly named.

        An object is kept if its age is unknown, if a version within the retention reads it, or if a
        commit in the log added it, and only a missing commit may have removed it.

        Raises:
            Broken: a commit added the object, none removed it, and no commit is missing.
        """
        horizon_ms = self._classifier.horizon_ms
        modified_ms = plausible_ms(stored.modified_ms, now_ms=horizon_ms)
        if part not in RECLAIMABLE or modified_ms is None or modified_ms >= horizon_ms:
            return False
        if self._removed_since.holds(name):
            return False
        has_plain_parts = {"", ".", ".."}.isdisjoint(name.split("/"))
        is_valid_name = has_plain_parts and not _UNSUPPORTED_NAME.match(name)
        return is_valid_name and not self._added.must_stay(name)


class LastCheck:
    """Re-checks the candidates of a plan against fresh facts, right before deletion.

    `horizon_ms` is the plan's horizon, and `now_ms` is the time of this check.
    """

    def __init__(self, facts: VacuumFacts, *, horizon_ms: int, now_ms: int) -> None:
        self._classifier = classifier_of(facts, now_ms=now_ms, horizon_ms=horizon_ms)
        self._removed_since = RemovedSince(facts, self._classifier.horizon_ms)
        self._kept_for_versions = facts.kept_for_versions
        is_known = not unknown_features(facts.log.snapshot.features)
        self._allows_any = facts.table_files.retention_ms is not None and is_known

    def allow(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The files that may still be deleted: none if the retention or a feature is unknown.

        A Hadoop checksum may be deleted only if its data file may.
        """
        if not self._allows_any:
            return []
        return [each for each in candidates if self._allows(each)]

    def _allows(self, candidate: Candidate) -> bool:
        name = candidate.goes_with or candidate.name
        stored = StoredObject(
            bucket="",
            key="",
            size_bytes=candidate.size_bytes,
            modified_ms=candidate.modified_ms,
        )
        is_reclaimable = self._classifier.part_of(name, stored) in RECLAIMABLE
        is_needed = name in self._kept_for_versions or self._removed_since.holds(name)
        return is_reclaimable and not is_needed


def classifier_of(facts: VacuumFacts, *, now_ms: int, horizon_ms: int | None) -> ObjectClassifier:
    """The classifier for the objects in the table's folder."""
    return ObjectClassifier(
        facts.table_files, facts.other_uses, now_ms=now_ms, horizon_ms=horizon_ms
    )


def checksum_name(name: str) -> str:
    """The name of a local file's Hadoop checksum.

    Source: Hadoop, ChecksumFileSystem.getChecksumFile.
    """
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"
