"""Selects the objects that may be deleted, by the listing and by the log.

**Safety properties** (tests in `vacuum/plan/test_vacuum.py`)
- A file that a commit within the retention removed is kept, even if its tombstone is gone.
- A file is kept if a commit that is still in the log added it and no later commit removed it,
  even if a checkpoint lacks the file.

What an object is to its table (live, removed within or before the retention, an orphan) is decided
in `vacuum/inventory/plan.py`. Files that a kept version reads are kept here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain, takewhile
from math import inf
from urllib.parse import unquote

from lakehouse.base.errors import Broken
from lakehouse.base.frozen import frozen
from lakehouse.base.operation import VACUUM_MODES, VacuumMode, VacuumRecord
from lakehouse.base.paths import name_in_table
from lakehouse.base.stored_objects import RECLAIMABLE, Inventory, Part, StoredObject, plausible_ms
from lakehouse.base.text import DAY_MS, HOUR_MS
from lakehouse.declare.policies import Vacuum
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.protocol import retention_ms_of, unknown_features
from lakehouse.delta.snapshot import TableFacts
from lakehouse.vacuum.inventory.plan import (
    ObjectClassifier,
    OtherUses,
    Owners,
    Reference,
    TableFiles,
    paths_until,
    table_roots,
)

# Names with a UUID that is generated for each attempt to write, so that no name is used twice.
# Source: delta-io/delta v4.4.0, DelayedCommitProtocol.getFileName, DeletionVectorStore;
# delta-rs, PartitionWriter.
_WRITTEN_ONCE = re.compile(
    r"(?:.*/)?(?:part-\d{5,}-|cdc-\d{5,}-|deletion_vector_)"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*",
    re.DOTALL,
)


@frozen
class VacuumFacts:
    """The facts that are known before storage is listed.

    - `tables`: all tables of the lake, which is at `lake_prefix` in its bucket.
    - `records`: past vacuums, oldest first.
    - `inventory_problem`: why there is no usable `inventory`.
    - `needed_since_ms`: files that were removed at this time or later are still needed.
      `needed_because` is the sentence that explains this.
    - `all_commits`: a function that returns the commits of a history, and then all older ones,
      newest first.
    - `adopted`: other programs write the table, which may be outside the lake.
    - `log_only`: only files that the log names may be deleted, because others may belong to other
      programs.
    - `kept_for_versions`: files that a version in `Vacuum.keep_versions` needs, relative to the
      table.
    """

    table_files: TableFiles
    log: TableFacts
    other_uses: OtherUses
    inventory: Inventory | None
    inventory_problem: str
    records: tuple[VacuumRecord, ...]
    needed_since_ms: int | None
    needed_because: str
    on_s3: bool
    tables: frozenset[str]
    lake_prefix: str
    all_commits: Callable[[Commits], Iterable[Commit]]
    adopted: bool
    log_only: bool
    kept_for_versions: Set[str]

    @property
    def table(self) -> str:
        """The table's key, for example `bronze/flight_events`."""
        return self.table_files.table

    def last_complete(self, modes: Sequence[VacuumMode] = VACUUM_MODES) -> VacuumRecord | None:
        """The newest complete vacuum by one of these modes."""
        of_modes = (each for each in reversed(self.records) if each.mode in modes)
        return next((each for each in of_modes if each.is_complete), None)


def retention_in_force(policy: Vacuum, properties: Mapping[str, str]) -> int | None:
    """The longer of the table's own and the declared retention; `None` if the former is unknown.

    A declared retention becomes the table's own with the table's next write.
    """
    own_ms = retention_ms_of(properties)
    return None if own_ms is None else max(own_ms, round(policy.retention_hours * HOUR_MS))


def written_once(name: str) -> bool:
    """Whether no writer uses the name twice, so that the file cannot have been replaced."""
    return _WRITTEN_ONCE.fullmatch(name) is not None


def folders_above(names: Iterable[str]) -> set[str]:
    """All folders between a table and these files."""
    folders = set[str]()
    level = {name.rpartition("/")[0] for name in names}
    while level:
        folders |= level
        level = {folder.rpartition("/")[0] for folder in level} - folders
    return folders - {""}


def folders_to_ask(facts: VacuumFacts, mode: VacuumMode, names: Iterable[str]) -> list[str]:
    """The folders above these files that may have become tables of their own.

    A listing or an inventory shows the tables in the folder. Since then, a table may have been
    created in a folder that the table never used or does not use any more. A folder with live files
    is in use. In mode LITE, nothing shows the tables in the folder of an adopted table, so any
    folder may be one of them.
    """
    folders = folders_above(names)
    if mode != "LITE" or not facts.adopted:
        folders -= folders_above(facts.table_files.live)
    return sorted(folders)


def log_covers(facts: VacuumFacts) -> bool:
    """Whether the known commits name every file removed since the last complete vacuum's horizon.

    Without a complete vacuum, they must reach back to version 0.
    """
    commits = facts.log.history.commits
    if not commits:
        return False
    last = facts.last_complete()
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
    last = facts.last_complete()
    since_ms = 0 if last is None else last.horizon_ms
    removed = {} if last is None else _not_deleted_by(last, facts.table_files)
    if facts.log_only and not log_covers(facts):
        for commit in reversed([*_commits_since(facts, since_ms)]):
            removed |= dict.fromkeys(_names_in_table(commit.removed_paths), commit.committed_ms)
    for name, ms in facts.table_files.removed.items():
        if ms is not None and ms >= since_ms:
            removed[name] = ms
    return removed


def _commits_since(facts: VacuumFacts, since_ms: int) -> Iterator[Commit]:
    """The commits at this time or later, newest first, even before the known history."""
    # Commit times are not strictly ascending, because the clocks of machines differ.
    commits = takewhile(
        lambda commit: commit.committed_ms >= since_ms - DAY_MS,
        facts.all_commits(facts.log.history),
    )
    return (commit for commit in commits if commit.committed_ms >= since_ms)


def _not_deleted_by(last: VacuumRecord, table_files: TableFiles) -> dict[str, int]:
    """The files that a vacuum failed to delete or had to keep, with the time of removal."""
    remaining = dict[str, int]()
    for name in (*last.failed, *last.kept):
        removed_ms = table_files.removed.get(name)
        if written_once(name):
            # The vacuum could have deleted only files from before its horizon. So, if the time is
            # unknown, the horizon stands for it.
            remaining[name] = removed_ms or last.horizon_ms
        elif name in table_files.removed:
            # The log does not show whether a name that it does not name was written again.
            remaining[name] = removed_ms or 0
    return remaining


def objects_by_log(facts: VacuumFacts) -> Iterable[StoredObject]:
    """The removed files that may still be in storage, according to the log.

    A size of 0 means unknown. `modified_ms` is the time of removal, since the log lacks the time of
    the last write, which was earlier.
    """
    sizes = {name_in_table(stone.path): stone.size_bytes for stone in facts.log.snapshot.tombstones}
    for name, removed_ms in removed_by_log(facts).items():
        yield StoredObject(
            bucket="",
            key=f"{facts.lake_prefix}{facts.table}/{name}",
            size_bytes=sizes.get(name) or 0,
            modified_ms=removed_ms,
        )


def _base_name(path: str) -> str:
    return f"/{path.rpartition('/')[2]}"


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
    return filter(None, map(name_in_table, paths))


# Names that Delta or S3 rejects in a request. A single such name would make the whole vacuum fail.
# Source: Hadoop, Path(String): a colon before the first slash ends a scheme; W3C, XML 1.0, Char,
# because a DeleteObjects request is XML.
_UNSUPPORTED_NAME = re.compile(
    r"[^/]*:|.*[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.DOTALL
)


@frozen
class Candidate:
    """A file to delete, with its name relative to the table.

    `size_bytes` is 0 if only the log names the file, and the log lacks the size.
    """

    name: str
    size_bytes: int
    modified_ms: int
    part: Part


class DeletionGuard(ObjectClassifier):
    """Decides which objects in a table's folder may be deleted: in the plan, and right before.

    `horizon_ms` is the time of the retention, or the argument `horizon_ms` if it is earlier.

    Some files that only the log names must stay, too:

    - Files that a commit at the horizon or later removed. Retained versions still read them. A
      checkpoint drops expired tombstones, and the retention may have been shorter when the
      checkpoint was written. An absolute path, or a path that begins with `..`, may lead into the
      table, so every file with the same base name is kept.
    - Files that a commit added, and that no later commit removed. These files may be live, even if
      a checkpoint lacks them, or a missing commit may have removed them.

    Commits before the known history are read only for a file of which no removal is known.
    """

    def __init__(self, facts: VacuumFacts, *, now_ms: int, horizon_ms: int | None) -> None:
        super().__init__(facts.table_files, facts.other_uses, now_ms=now_ms, horizon_ms=horizon_ms)
        self._facts = facts
        self._added_lately = _last_additions(facts.log.history.commits[::-1])
        self._knows_features = not unknown_features(facts.log.snapshot.features)

    def allows(self, name: str, stored: StoredObject, part: Part) -> bool:
        """Whether the object is reclaimable, older than the horizon, and validly named.

        An object is kept if its age is unknown, if a version within the retention reads it, or if a
        commit in the log added it, and only a missing commit may have removed it. If a table
        feature is unknown, every object is kept.

        Raises:
            Broken: a commit added the object, none removed it, and no commit is missing.
        """
        modified_ms = plausible_ms(stored.modified_ms, now_ms=self.horizon_ms)
        if modified_ms is None or modified_ms >= self.horizon_ms:
            return False
        if part not in RECLAIMABLE or not self._knows_features:
            return False
        has_plain_parts = {"", ".", ".."}.isdisjoint(name.split("/"))
        is_valid_name = has_plain_parts and not _UNSUPPORTED_NAME.match(name)
        return is_valid_name and not self.must_stay(name)

    def still_needed(self, candidates: Sequence[Candidate]) -> list[str]:
        """The names of the planned files that may not be deleted."""
        needed = list[str]()
        for each in candidates:
            stored = StoredObject(
                bucket="", key="", size_bytes=each.size_bytes, modified_ms=each.modified_ms
            )
            if not self.allows(each.name, stored, self.part_of(each.name, stored)):
                needed.append(each.name)
        return needed

    def must_stay(self, name: str) -> bool:
        """Whether a version within the retention, or the newest one, may need the file.

        Raises:
            Broken: a commit added the file, none removed it, and no commit is missing, so the
                newest checkpoint lacks this file. It may also lack files that no commit names.
        """
        table_files = self._facts.table_files
        is_removal_known = name in table_files.removed
        if not is_removal_known and not self._removed_lately.isdisjoint({name, _base_name(name)}):
            return True
        version = (self._added_lately if is_removal_known else self._added).get(name)
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
    def _removed_lately(self) -> Set[str]:
        """Names of files in the table; for other paths, a slash and the base name."""
        commits = _commits_since(self._facts, self.horizon_ms)
        paths = chain.from_iterable(map(paths_until, commits))
        return {name_in_table(path) or _base_name(unquote(path)) for path in paths}

    @cached_property
    def _commits(self) -> Sequence[Commit]:
        """All commits of the log, newest first."""
        return [*self._facts.all_commits(self._facts.log.history)]

    @cached_property
    def _added(self) -> Mapping[str, int]:
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


@frozen
class Selection:
    """The objects of one table that may be deleted, sorted by name, and what else a listing shows.

    - `kept`: the files that only a kept version needs.
    - `borrowed`: the files that another table reads, if only files that the log names may be
      deleted (`log_only`).
    - `unseen`: the files of the newest version that no listed object has shown.
    - `lead_ms`: the largest difference (listed minus logged) between the times of a live file;
      minus infinity if no times can be compared.
    """

    candidates: tuple[Candidate, ...]
    kept: Set[str]
    borrowed: Set[str]
    unseen: Set[str]
    lead_ms: float


def select(facts: VacuumFacts, guard: DeletionGuard, objects: Iterable[StoredObject]) -> Selection:
    """Selects listed objects that may be deleted.

    Live files of this table count as seen, even in another table's folder. All other files in
    another table's folder are kept. So are files of nested tables, even if a nested table was
    created after the lake's tables were listed.
    """
    folder = f"{facts.lake_prefix}{facts.table}/"
    owners = Owners({facts.table, *facts.tables})
    collected: dict[str, Candidate] = {}
    nested: set[str] = set()  # the folders of tables that the listing itself shows
    borrowed: set[str] = set()
    unseen: set[str] = {*facts.table_files.live}
    lead_ms = -inf
    for stored in objects:
        if not stored.key.startswith(folder):
            continue
        name = stored.key.removeprefix(folder)
        part = guard.part_of(name, stored)
        if part in (Part.LIVE, Part.VECTORS_LIVE):
            unseen.discard(name)
            lead_ms = max(lead_ms, _lead_ms(facts.table_files.live[name], stored))
        elif owners.table_of(stored.key.removeprefix(facts.lake_prefix)) == facts.table:
            nested |= table_roots([name])
            if part is Part.LENT and facts.log_only:
                borrowed.add(name)
            elif guard.allows(name, stored, part):
                collected[name] = Candidate(
                    name=name,
                    size_bytes=stored.size_bytes,
                    modified_ms=stored.modified_ms or 0,
                    part=part,
                )
    kept = collected.keys() & facts.kept_for_versions
    inner = Owners(nested)
    names = sorted(name for name in collected.keys() - kept if not inner.table_of(name))
    return Selection(
        candidates=tuple(collected[name] for name in names),
        kept=kept,
        borrowed=borrowed,
        unseen=unseen,
        lead_ms=lead_ms,
    )


def _lead_ms(live: Reference, stored: StoredObject) -> float:
    """How much later a live file was written according to the listing than to the log."""
    is_vector = live.size_bytes is None
    if stored.modified_ms is None or live.written_ms is None or is_vector:
        return -inf
    return stored.modified_ms - live.written_ms
