"""The facts by which a vacuum is decided: the table's books, the report, the vacuum before, and who still reads what was removed."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, takewhile
from urllib.parse import unquote

from lakehouse.core.declaration.vacuum_policy import type_of_mode
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.paths import name_in_table, vector_path
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.core.inventory.table_files import TableFiles
from lakehouse.core.units import DAY_MS

# Assumed: a page of a listing on S3.
SECONDS_PER_PAGE = 0.15
# So many small requests are under way at once.
ASKED_AT_ONCE = 16
# A vacuum that was denied everything would else name a whole table in a record that each later one reads.
FAILED_NAMED = 1_000
# Names that a UUID of each try makes, so that nobody writes one a second time.
# Source: delta-io/delta v4.4.0, DelayedCommitProtocol.getFileName, DeletionVectorStore; delta-rs, PartitionWriter.
_WRITTEN_ONCE = re.compile(
    r"(?:.*/)?(?:part-\d{5,}-|cdc-\d{5,}-|deletion_vector_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRecord:
    """One vacuum of a table, as the journal has it. `horizon_ms`: what was removed before it was to go; `failed` is name -> why,
    of at most `FAILED_NAMED` files.

    `predicted_…` are the plan's figures. `spared` are files that Delta or the last look kept. `is_complete`: everything that was past the
    retention was gone through; not where an error ended it, where more failed than are named, where there was too little to begin, or more
    than one vacuum takes. `kept` are names that another table reads or Delta would not give up, where the log alone decides: no sweep finds
    them, so the next vacuum asks again. `is_at_most`: some of the deleted may have been gone before, since S3 does not tell. `table_id` is
    the table's identity, `committed_ms` when its `version` was committed; an older program wrote neither.
    """

    started_ms: int
    ended_ms: int
    mode: type_of_mode
    report: str
    version: int
    horizon_ms: int
    predicted_files: int
    predicted_bytes: int
    predicted_requests: int
    predicted_seconds: float
    predicted_usd: float
    deleted_files: int
    deleted_bytes: int
    spared: int
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    usd: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    lists_saved: int = 0
    is_complete: bool = True
    is_at_most: bool = False
    kept: Sequence[str] = ()
    run: str = ""
    table_id: str = ""
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumFacts:
    """Everything known before anything is listed. `records` are the vacuums that the journal tells of, oldest first.

    `lent` are files of any table (relative to the lake) that another one reads, `unplaced` the last parts of paths of which nobody can tell
    whether they lead into the lake. From the prefixes in `landed` declared tables load. `strays` are folders that a key (their value) below
    `_delta_log` makes look like tables. `held` says who has not read yet what was removed since `held_ms`. `versioned`: the bucket keeps
    versions, `None` if unknown. `tables` are all tables of the lake, which lies at `lake_prefix` in its bucket. The history in `log` may
    end long before the retention does: `older_commits` reads on below it, newest first; `None` where there are no older commits. `adopted`:
    others write the table, perhaps outside of the lake. `log_only`: what the log never told of may be somebody else's, and stays.
    """

    table_files: TableFiles
    log: TableFacts
    lent: frozenset[str] = frozenset()
    unplaced: frozenset[str] = frozenset()
    landed: tuple[str, ...] = ()
    strays: Mapping[str, str] = field(default_factory=dict[str, str])
    report: Report | None = None
    report_problem: str = ""
    records: tuple[VacuumRecord, ...] = ()
    held_ms: int | None = None
    held: str = ""
    on_s3: bool = False
    tables: frozenset[str] = frozenset()
    lake_prefix: str = ""
    versioned: bool | None = False
    older_commits: Callable[[Commits], Iterable[Commit]] | None = None
    adopted: bool = False
    log_only: bool = False

    @property
    def last(self) -> VacuumRecord | None:
        """The newest vacuum, however it ended."""
        return self.records[-1] if self.records else None

    @property
    def last_complete(self) -> VacuumRecord | None:
        """The newest one that went through everything."""
        return next((each for each in reversed(self.records) if each.is_complete), None)

    @property
    def last_sweep(self) -> VacuumRecord | None:
        """The newest of those that looked through storage."""
        return next(
            (each for each in reversed(self.records) if each.is_complete and each.mode != "LITE"),
            None,
        )


def written_once(name: str) -> bool:
    """Whether what lies under this name now is what lay there when the report was made, if anything does."""
    return _WRITTEN_ONCE.fullmatch(name) is not None


def folders_above(name: str) -> list[str]:
    """The folders above a file of a table, below the table's own: in each of them a table may have been made."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def folders_to_ask(facts: VacuumFacts, mode: type_of_mode, names: Iterable[str]) -> dict[str, bool]:
    """The folders above these files; whether a HEAD asks for the first commit of a table made meanwhile, where others are listed for a log.

    Partitions are many, and a HEAD costs a twelfth of a LIST. But LITE lists no folder, and neither a report nor a listing of the lake
    shows the inside of a table outside of it: there it may be an old table, whose first commits are gone.
    """
    begins = (
        ()
        if mode == "LITE" and facts.adopted
        else tuple(f"{column}=" for column in facts.table_files.partition_columns)
    )
    folders = {folder for name in names for folder in folders_above(name)}
    return {folder: folder.rpartition("/")[2].startswith(begins) for folder in sorted(folders)}


def log_covers(facts: VacuumFacts) -> bool:
    """Whether the log still tells of every file that was removed since the last complete vacuum."""
    commits, last = facts.log.history.commits, facts.last_complete
    return bool(commits) and (
        commits[0].version == 0 or (last is not None and commits[0].committed_ms <= last.horizon_ms)
    )


def removed_by_log(facts: VacuumFacts) -> dict[str, int]:
    """The files removed since the last complete vacuum, by name relative to the table, with the time; those kept or failed then, too.

    An orphan that failed is left to the next sweep: somebody may have written that name again, and no log would tell. Where the log alone
    decides, all that is left of it is read: no sweep finds what the known history is too short to tell of.
    """
    last = facts.last_complete
    since_ms = 0 if last is None else last.horizon_ms
    failed = (
        ()
        if last is None
        else (
            name
            for name in (*last.failed, *last.kept)
            if name in facts.table_files.stones or written_once(name)
        )
    )
    found = {name: _removed_ms(facts.table_files, name, since_ms) for name in failed}
    commits: Iterable[Commit] = facts.log.history.commits
    if facts.log_only and facts.older_commits and not log_covers(facts):
        found |= {
            name: ms
            for name, ms in facts.table_files.stones.items()
            if ms is not None and ms >= since_ms
        }
        late = takewhile(
            lambda commit: commit.committed_ms >= since_ms - DAY_MS,
            facts.older_commits(facts.log.history),
        )
        commits = reversed([*late])
    for commit in commits:
        if commit.committed_ms >= since_ms:
            found |= {
                name: commit.committed_ms
                for path in commit.removed_paths
                if (name := name_in_table(path))
            }
    vectors = {
        name: ms
        for name, ms in facts.table_files.removed_vectors.items()
        if ms is not None and ms >= since_ms
    }
    return found | vectors


def _removed_ms(table_files: TableFiles, name: str, since_ms: int) -> int:
    """A file's removal time, by its tombstone, since its name may have been written again; nobody writes the names of one try twice."""
    removed_ms = table_files.stones.get(name, table_files.removed_vectors.get(name))
    return removed_ms or (since_ms if written_once(name) else 0)


class RemovedSince:
    """The files, relative to the table, that commits removed at the horizon or later, their deletion vectors, and what they wrote as change
    data: versions within the retention read them.

    Tombstones may be gone: a checkpoint drops them by the retention of its time, which may have been a shorter one. Change data may be
    older than its commit by as long as that ran. Commits below the known history are read only for a file that has no tombstone. A path
    that is absolute, or begins with `..`, may lead into the table: every file with its last part is held.
    """

    def __init__(self, facts: VacuumFacts, horizon_ms: int) -> None:
        self._facts, self._horizon_ms = facts, horizon_ms
        self._known = self._names(facts.log.history.commits)

    def holds(self, name: str) -> bool:
        """Whether a version within the retention reads this file."""
        table_files, names = self._facts.table_files, {name, f"/{name.rpartition('/')[2]}"}
        if not names.isdisjoint(self._known):
            return True
        return (
            name not in table_files.stones
            and name not in table_files.removed_vectors
            and not names.isdisjoint(self._older)
        )

    @cached_property
    def _older(self) -> frozenset[str]:
        history, older = self._facts.log.history, self._facts.older_commits
        if older is None or (
            history.commits and history.commits[0].committed_ms < self._horizon_ms - DAY_MS
        ):
            return frozenset()
        # Times of commits may go back a little from one to the next: other machines' clocks.
        return self._names(
            takewhile(
                lambda commit: commit.committed_ms >= self._horizon_ms - DAY_MS, older(history)
            )
        )

    def _names(self, commits: Iterable[Commit]) -> frozenset[str]:
        """The names, and with a slash before them the last parts of paths that name no place below the table."""
        late = [commit for commit in commits if commit.committed_ms >= self._horizon_ms]
        paths = (path for commit in late for path in (*commit.removed_paths, *commit.change_paths))
        vectors = (
            path
            for commit in late
            for vector in commit.removed_vectors
            if (path := vector_path(vector))
        )
        return frozenset(
            name_in_table(path) or f"/{unquote(path).rpartition('/')[2]}"
            for path in chain(paths, vectors)
        )


class AddedByLog:
    """The files, relative to the table, that commits still in the log added, and that no later one removed.

    Whatever a checkpoint says, they are live. Commits below the known history are read only for a file that has no tombstone.
    """

    def __init__(self, facts: VacuumFacts) -> None:
        self._facts = facts
        self._known = _last_additions(facts.log.history.commits[::-1])

    def must_stay(self, name: str) -> bool:
        """Whether the file must stay, since a commit that is missing may have removed it.

        Raises:
            Broken: no commit is missing, so that the newest checkpoint lacks the file, and perhaps others that no commit tells of.
        """
        table_files = self._facts.table_files
        has_stone = name in table_files.stones or name in table_files.removed_vectors
        version = (self._known if has_stone else self._all).get(name)
        if version is None:
            return False
        if version < self._first_without_gap:
            return True
        checkpoint = self._facts.log.snapshot.log.checkpoint_version
        of_version = "" if checkpoint is None else f" of version {checkpoint}"
        raise Broken(
            f"vacuum of {table_files.table}: version {version} added {name}, and no commit up to {table_files.version} removed it, but "
            f"the table was read without it: its checkpoint{of_version} lacks files. Restore that checkpoint; or, if all commits from "
            "the first one on are there, remove it and _last_checkpoint"
        )

    @cached_property
    def _commits(self) -> Sequence[Commit]:
        """All commits of the log, newest first."""
        history, older = self._facts.log.history, self._facts.older_commits
        return history.commits[::-1] if older is None else [*older(history)]

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
    """The files whose last action in these commits added them, with its version."""
    found: dict[str, int | None] = {}
    for commit in newest_first:
        added = {name for path in commit.added_paths if (name := name_in_table(path))}
        removed = {name for path in commit.removed_paths if (name := name_in_table(path))}
        for name in added:
            found.setdefault(name, commit.version)
        for name in removed - added:
            found.setdefault(name, None)
    return {name: version for name, version in found.items() if version is not None}


def objects_by_log(facts: VacuumFacts, *, bucket: str) -> Iterable[StoredObject]:
    """The removed files that should still lie in storage by the log; a size of 0 is unknown.

    A file is never younger than its removal, so the time of that stands for its own.
    """
    sizes = {name_in_table(stone.path): stone.size_bytes for stone in facts.log.snapshot.tombstones}
    for name, ms in removed_by_log(facts).items():
        size = sizes.get(name) or 0
        yield StoredObject(
            bucket=bucket,
            key=f"{facts.lake_prefix}{facts.table_files.table}/{name}",
            size_bytes=size,
            modified_ms=ms,
        )
