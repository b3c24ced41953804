"""The history of a table, read from its commits. "Our" commits are those of this program."""

import json
from collections.abc import Mapping
from typing import Literal

from lakehouse.base.frozen import frozen
from lakehouse.base.text import Document, object_of

# For these operations, the change data feed reports only the changed rows of a file. For other
# operations that remove and add files, it reports every row of the added files as new.
# Source: delta-io/delta v4.4.0, CDCReader.scala
_REPORTED_ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE")
# These operations may add files whose rows the table held before, even if they remove no files.
# Source: delta-io/delta v4.4.0, RestoreTableCommand.scala, CloneTableBase.scala
_BRING_FILES_BACK = ("RESTORE", "CLONE")
_OWN_TRANSACTIONS = "lakehouse/"
# In the userMetadata of our overwrites: maps the key of each input to the input's identity, version
# and (usually) commit time.
INPUTS = "inputs"
# The prefix of transaction ids that record which version of an input a commit consumed.
CONSUME = "lakehouse/consume/"
# In a rebuild's userMetadata: the version `from` which it started, and whether its `rows` are the
# "same" or "new".
REBUILD = "rebuild"
# The transaction id in a table's log that names the version of its archive which readers take.
ARCHIVE_APP_ID = "lakehouse-archive"
# In the userMetadata of commits by which upkeep moves rows out of a table, or back into it:
# "archive", "restore" or "ttl".
ROWS_MOVED = "rows_moved"


@frozen
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
    removed_vectors: tuple[str, ...] = ()  # deletion vectors of the removed files
    change_paths: tuple[str, ...] = ()  # change data files
    added_bytes: int = 0
    removed_bytes: int = 0
    user_metadata: str | None = None
    parameters: Mapping[str, str] = {}
    metrics: Mapping[str, str] = {}
    # Transaction identifiers (`txn` actions): application id -> version.
    applications: Mapping[str, int] = {}
    engine: str = ""

    @property
    def is_rewrite(self) -> bool:
        """Whether the commit replaced files but changed no row: OPTIMIZE, REORG or similar.

        A commit that only adds existing files again (a backfill of row ids) rewrites nothing.
        """
        return not self.changed_data and bool(self.removed_paths)


@frozen
class Prediction:
    """The plan of our compaction, as the compaction's commit records it."""

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


@frozen
class LoggedCompaction:
    """The commit of a compaction. `predicted` is `None` if another program ran it."""

    version: int
    committed_ms: int
    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int
    predicted: Prediction | None = None
    # The time from sending OPTIMIZE to the commit; `None` if unknown.
    seconds: float | None = None
    engine: str = "spark"  # or "deltalake"


@frozen
class Commits:
    """Commits of a table, oldest first, without gaps: all in its log, or only the newest ones."""

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
        """Whether a reader who recorded `committed_ms` read another commit of this version.

        This is the case after the table was replaced. An unknown time counts as the same time.
        """
        current_ms = self.committed_ms_of(version)
        return None not in (committed_ms, current_ms) and committed_ms != current_ms

    def marked(self, mark: str) -> Commit | None:
        """The commit whose userMetadata contains this unique text, such as a compaction's id."""
        for commit in self.commits:
            if mark in (commit.user_metadata or ""):
                return commit
        return None

    def missing_after(self, version: int) -> tuple[int, ...]:
        """The versions after `version` whose rows are gone because of RESTOREs by any program.

        A version that a later RESTORE brought back is not included.
        """
        missing = list[int]()
        at = self.commits[-1].version if self.commits else version
        for commit in reversed(self.commits):
            if commit.version <= version:
                break
            if commit.operation != "RESTORE":
                if commit.version > at:
                    missing.append(commit.version)
            elif commit.version <= at:
                restored = restored_version(commit)
                # A RESTORE to a time may have brought back none of these rows.
                at = version if restored is None else restored
        return tuple(reversed(missing))

    def data_changed_after(self, version: int) -> bool | None:
        """Whether rows changed after `version`; `None` if the history lacks some later commit."""
        later = self.between(version, self.commits[-1].version) if self.commits else None
        return None if later is None else any(commit.changed_data for commit in later)

    def file_counts(self, newest: int) -> tuple[int, ...]:
        """The number of files after each commit; after the last commit, it is `newest`."""
        counts = list[int]()
        count = newest
        for commit in reversed(self.commits):
            counts.append(count)
            # A commit without a data change that removes no file adds existing files again, for
            # example to assign row ids. It does not change the number of files.
            if commit.changed_data or commit.removed_paths:
                count -= len(commit.added_paths) - len(commit.removed_paths)
        return tuple(reversed(counts))

    def compactions(self) -> tuple[LoggedCompaction, ...]:
        """The compactions by any program, oldest first."""
        return tuple(map(_logged_compaction, filter(is_compaction, self.commits)))


def is_compaction(commit: Commit) -> bool:
    """Whether the commit is an OPTIMIZE or a REORG, by any program."""
    return commit.operation in ("OPTIMIZE", "REORG")


def brought_back_by(commit: Commit) -> int | None:
    """The version that our RESTORE brought back; `None` for any other commit.

    Earlier commits have already reported all rows that such a RESTORE brings back.
    """
    version = written_in(commit).get("restored") if commit.operation == "RESTORE" else None
    return version if type(version) is int else None


def restored_version(commit: Commit) -> int | None:
    """The version that a RESTORE, by any program, brought back; `None` if only its time is known.

    Source: Delta Lake 4.4.0, DeltaOperations.Restore; delta-rs 1.6, DeltaOperation::Restore
    """
    version = commit.parameters.get("version", "")
    return int(version) if version.isdecimal() else None


def rebuilt_from(commit: Commit) -> int | None:
    """The version whose rows our rebuild replaced; `None` for other commits."""
    rebuild = written_in(commit).get(REBUILD) if commit.operation == "WRITE" else None
    version = object_of(rebuild).get("from")
    return version if type(version) is int else None


def keeps_rows(commit: Commit) -> bool:
    """Whether the commit is a rebuild that kept all rows and changed columns or partitions."""
    return rebuilt_from(commit) is not None and written_in(commit)[REBUILD].get("rows") == "same"


def moves_rows(commit: Commit) -> bool:
    """Whether upkeep moved rows out of the table or back. Incremental readers ignore the commit."""
    return written_in(commit).get(ROWS_MOVED) in ("archive", "restore", "ttl")


def is_news(commit: Commit) -> bool:
    """Whether the commit adds or removes rows that no earlier commit has reported."""
    repeats = brought_back_by(commit) is not None or keeps_rows(commit) or moves_rows(commit)
    return commit.changed_data and not repeats


def may_repeat_rows(commit: Commit) -> bool:
    """Whether the change data feed may report rows as new that the table already had.

    A RESTORE by another program brings back files that were already read. An overwrite of a table,
    or of a part, may write the same rows again, which look like new rows. Overwrites by this lake
    do not count. A rebuild counts unless it kept the rows or recorded its inputs.
    """
    adds_rows = commit.changed_data and bool(commit.added_paths)
    replaces_files = bool(commit.removed_paths) and commit.operation not in _REPORTED_ROW_BY_ROW
    if not adds_rows or not (replaces_files or commit.operation in _BRING_FILES_BACK):
        return False
    if moves_rows(commit) or INPUTS in written_in(commit):
        return False
    if rebuilt_from(commit) is not None:
        return not keeps_rows(commit)
    is_own_load = any(name.startswith(_OWN_TRANSACTIONS) for name in commit.applications)
    return not is_own_load and brought_back_by(commit) is None


def written_in(commit: Commit) -> Document:
    """The commit's userMetadata, if it is a JSON object, as in our commits; otherwise empty."""
    return json_object(commit.user_metadata or "")


def json_object(text: str | bytes) -> Document:
    """The JSON object in a text; empty if the text is anything else."""
    try:
        return object_of(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def prediction_in(commit: Commit) -> Prediction | None:
    """The plan's figures in a commit of our compaction; `None` for other commits."""
    written = written_in(commit)
    try:
        plan: Document = written["plan"]
        estimate: Document = plan.get("estimate") or {}
        return Prediction(
            reason=plan["reason"],
            sentence=plan["sentence"],
            files_removed=plan["files_removed"],
            files_added=plan["files_added"],
            bytes_removed=plan["bytes_removed"],
            bytes_added=estimate.get("bytes_written"),
            seconds=estimate.get("seconds"),
            usd=estimate.get("usd"),
            started_ms=written.get("started_ms"),
            verify=plan.get("verify", "content"),
        )
    except (KeyError, TypeError, AttributeError):
        return None


def _logged_compaction(commit: Commit) -> LoggedCompaction:
    predicted = prediction_in(commit)
    started_ms = None if predicted is None else predicted.started_ms
    seconds = None
    # The commit time may come from another machine. If its clock is behind, the time is unknown.
    if started_ms is not None and commit.committed_ms > started_ms:
        seconds = (commit.committed_ms - started_ms) / 1000
    return LoggedCompaction(
        version=commit.version,
        committed_ms=commit.committed_ms,
        files_removed=len(commit.removed_paths),
        files_added=len(commit.added_paths),
        bytes_removed=commit.removed_bytes,
        bytes_added=commit.added_bytes,
        predicted=predicted,
        seconds=seconds,
        engine=engine_of(commit),
    )


def engine_of(commit: Commit) -> Literal["deltalake", "spark"]:
    """The engine that wrote a compaction's commit."""
    return "deltalake" if commit.engine.startswith("delta-rs") else "spark"


def ingest_app_id(table_key: str) -> str:
    """The txnAppId under which a table's landed batches are written."""
    return f"lakehouse/ingest/{table_key}"
