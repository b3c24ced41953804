"""The history of a table, read from its commits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

# For these operations, the change data feed reports only the changed rows of a file. For other
# operations that remove and add files, it reports every row of the added files as new.
# Source: delta-io/delta v4.4.0, CDCReader.scala
_REPORTED_ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE")
# These operations may add files whose rows the table held before, even if they remove no files.
# Source: delta-io/delta v4.4.0, RestoreTableCommand.scala, CloneTableBase.scala
_BRING_FILES_BACK = ("RESTORE", "CLONE")
_OWN_TRANSACTIONS = "lakehouse/"
# In the userMetadata of our overwrites: by the key of each input, the input's identity, version and
# (usually) commit time.
INPUTS = "inputs"
# The prefix of transaction ids that record which version of an input a commit consumed.
CONSUME = "lakehouse/consume/"
# In the userMetadata of a move's commit: the table's earlier key.
MOVED_FROM = "moved_from"
# In a rebuild's userMetadata: the version `from` which it started, and whether its `rows` are the
# "same" or "new".
REBUILD = "rebuild"
# In the userMetadata of commits by which upkeep moves rows out of a table, or back into it:
# "archive", "restore" or "ttl".
ROWS_MOVED = "rows_moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit, as its `commitInfo` and actions describe it.

    `changed_data`: the commit added or removed rows, not only files.
    """

    version: int
    committed_ms: int
    operation: str
    changed_data: bool
    added_paths: tuple[str, ...] = ()
    removed_paths: tuple[str, ...] = ()
    removed_vectors: tuple[str, ...] = ()
    change_paths: tuple[str, ...] = ()  # change data files
    added_bytes: int = 0
    removed_bytes: int = 0
    user_metadata: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    # Transaction identifiers (`txn` actions): application id -> version.
    applications: Mapping[str, int] = field(default_factory=dict[str, int])
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The plan of our compaction, as the compaction's commit records it."""

    mark: str
    reason: str
    sentence: str
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int | None = None
    seconds: float | None = None
    usd: float | None = None
    started_ms: int | None = None
    verify: Literal["content", "rows"] = "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCompaction:
    """A compaction in one or several commits. `predicted` is `None` if another program ran it."""

    first_version: int
    version: int
    committed_ms: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int
    predicted: Prediction | None = None
    # From just before OPTIMIZE was sent to the timestamp of the last commit; `None` if unknown.
    seconds: float | None = None
    engine: str = "spark"  # or "deltalake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits that the log still holds, oldest first, without gaps."""

    table: str
    commits: tuple[Commit, ...]

    def between(self, version: int, upto: int) -> tuple[Commit, ...] | None:
        """The commits after `version` up to `upto`; `None` if the history lacks any of them."""
        commits = tuple(commit for commit in self.commits if version < commit.version <= upto)
        return commits if len(commits) == upto - version else None

    def committed_ms_of(self, version: int) -> int | None:
        """The commit time of a version; `None` if the history does not hold it."""
        commits = self.between(version - 1, version)
        return commits[0].committed_ms if commits else None

    def has_replaced(self, version: int, committed_ms: int | None) -> bool:
        """Whether the version's commit time differs from `committed_ms`, which a reader recorded.

        If either time is unknown, the commit counts as the same one.
        """
        current_ms = self.committed_ms_of(version)
        return None not in (committed_ms, current_ms) and committed_ms != current_ms

    def marked(self, mark: str) -> tuple[Commit, ...]:
        """The commits of the compaction that has this mark."""
        return tuple(
            commit
            for commit in self.commits
            if commit.user_metadata is not None and mark in commit.user_metadata
        )

    def undone(self) -> frozenset[int]:
        """The versions that our RESTOREs undid, including versions by other writers."""
        restores = [
            (version, commit.version)
            for commit in self.commits
            if (version := brought_back_by(commit)) is not None
        ]
        return frozenset(
            number for version, restore in restores for number in range(version + 1, restore)
        )

    def missing_after(self, version: int) -> tuple[int, ...]:
        """The versions after `version` whose rows are gone because of our RESTOREs.

        A version that a later RESTORE brought back is not included.
        """
        effective_at: dict[int, frozenset[int]] = {}
        effective = frozenset[int]()
        written = list[int]()
        for commit in (each for each in self.commits if each.version > version):
            restored = brought_back_by(commit)
            if restored is None:
                written.append(commit.version)
                effective = effective | {commit.version}
            else:
                effective = effective_at.get(restored, frozenset())
            effective_at[commit.version] = effective
        return tuple(number for number in written if number not in effective)

    def data_changed_after(self, version: int) -> bool | None:
        """Whether rows changed after `version`; `None` if the history lacks some later commit."""
        later = self.between(version, self.commits[-1].version) if self.commits else None
        return None if later is None else any(commit.changed_data for commit in later)

    def file_counts(self, newest: int) -> tuple[int, ...]:
        """The number of files after each commit. `newest` is the number after the last commit."""
        counts = list[int]()
        count = newest
        for commit in reversed(self.commits):
            counts.append(count)
            # A commit that only adds files, without a data change, adds existing files again (for
            # example, a backfill of row ids).
            if commit.changed_data or commit.removed_paths:
                count -= len(commit.added_paths) - len(commit.removed_paths)
        return tuple(reversed(counts))

    def compactions(self) -> tuple[LoggedCompaction, ...]:
        """The compactions by any program, oldest first."""
        groups: dict[str, tuple[list[Commit], Prediction | None]] = {}
        for commit in filter(is_compaction, self.commits):
            predicted = prediction_in(commit)
            mark = "" if predicted is None else predicted.mark
            key = mark or f"version {commit.version}"
            groups.setdefault(key, ([], predicted))[0].append(commit)
        return tuple(
            _logged_compaction(commits, predicted) for commits, predicted in groups.values()
        )


def is_compaction(commit: Commit) -> bool:
    """Whether the commit is an OPTIMIZE or a REORG, by any program."""
    return commit.operation in ("OPTIMIZE", "REORG")


def brought_back_by(commit: Commit) -> int | None:
    """The version that our RESTORE brought back; `None` for any other commit.

    Earlier commits have already reported all rows that such a RESTORE brings back.
    """
    version = written_in(commit).get("restored") if commit.operation == "RESTORE" else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def rebuilt_from(commit: Commit) -> int | None:
    """The version whose rows our rebuild replaced; `None` for other commits."""
    rebuild = written_in(commit).get(REBUILD) if commit.operation == "WRITE" else None
    version = cast("dict[str, Any]", rebuild).get("from") if isinstance(rebuild, dict) else None
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def keeps_rows(commit: Commit) -> bool:
    """Whether a rebuild rewrote the table's existing rows, under other columns or partitions."""
    return rebuilt_from(commit) is not None and written_in(commit)[REBUILD].get("rows") == "same"


def moves_rows(commit: Commit) -> bool:
    """Whether upkeep moved rows out of the table or back. Derived tables keep such rows."""
    return written_in(commit).get(ROWS_MOVED) in ("archive", "restore", "ttl")


def is_news(commit: Commit) -> bool:
    """Whether the commit adds or removes rows that no earlier commit has reported."""
    repeats = brought_back_by(commit) is not None or keeps_rows(commit) or moves_rows(commit)
    return commit.changed_data and not repeats


def may_repeat_rows(commit: Commit) -> bool:
    """Whether the change data feed may report rows as new that the table already had.

    A RESTORE by another program brings back files that were already read. An overwrite of a table,
    or of a part, may write the same rows again, which cannot be distinguished from new ones.
    Overwrites by this lake do not count, since their readers are declared to follow them. A rebuild
    counts unless it kept the rows or recorded its inputs.
    """
    replaces = bool(commit.removed_paths) and commit.operation not in _REPORTED_ROW_BY_ROW
    is_suspect = replaces or commit.operation in _BRING_FILES_BACK
    if not (commit.changed_data and commit.added_paths and is_suspect) or moves_rows(commit):
        return False
    if rebuilt_from(commit) is not None:
        return not (keeps_rows(commit) or INPUTS in written_in(commit))
    is_loaded = any(name.startswith(_OWN_TRANSACTIONS) for name in commit.applications)
    return not (is_loaded or brought_back_by(commit) is not None or INPUTS in written_in(commit))


def written_in(commit: Commit) -> dict[str, Any]:
    """The metadata that we wrote into a commit; empty for other commits."""
    try:
        written = json.loads(commit.user_metadata or "")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", written) if isinstance(written, dict) else {}


def moved_from(commit: Commit) -> str | None:
    """The table's earlier key, if the commit records a move to the present key."""
    key = written_in(commit).get(MOVED_FROM)
    return key if isinstance(key, str) else None


def prediction_in(commit: Commit) -> Prediction | None:
    """The plan's figures in a commit of our compaction; `None` for other commits."""
    written = written_in(commit)
    try:
        plan: dict[str, Any] = written["plan"]
        estimate: dict[str, Any] = plan.get("estimate") or {}
        return Prediction(
            mark=str(written.get("compaction", "")),
            reason=str(plan["reason"]),
            sentence=str(plan["sentence"]),
            files_removed=int(plan["files_removed"]),
            files_added=int(plan["files_added"]),
            bytes_removed=int(plan["bytes_removed"]),
            bytes_added=_number(estimate.get("bytes_written"), int),
            seconds=_number(estimate.get("seconds"), float),
            usd=_number(estimate.get("usd"), float),
            started_ms=_number(written.get("started_ms"), int),
            verify="rows" if plan.get("verify") == "rows" else "content",
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _number(value: Any, kind: Any) -> Any:
    return None if value is None else kind(value)


def _logged_compaction(commits: Sequence[Commit], predicted: Prediction | None) -> LoggedCompaction:
    last = commits[-1]
    started_ms = None if predicted is None else predicted.started_ms
    # If the clocks of two machines differ by more than the run took, the seconds are unknown.
    seconds = (
        None
        if started_ms is None or last.committed_ms <= started_ms
        else (last.committed_ms - started_ms) / 1000
    )
    return LoggedCompaction(
        first_version=commits[0].version,
        version=last.version,
        committed_ms=last.committed_ms,
        files_removed=sum(len(commit.removed_paths) for commit in commits),
        files_added=sum(len(commit.added_paths) for commit in commits),
        bytes_removed=sum(commit.removed_bytes for commit in commits),
        bytes_added=sum(commit.added_bytes for commit in commits),
        predicted=predicted,
        seconds=seconds,
        engine="deltalake" if last.engine.startswith("delta-rs") else "spark",
    )
