"""Moves old partitions of a table into its archive, and lets archived partitions expire.

The archive is a Delta table, `archive/<layer>/<name>`, of copies of the table's files in the same
partition folders, with the table's columns. The table's log names one of its versions by the
transaction id `lakehouse-archive`. That version, and no other one, is what the archive has.

1. Versions of the archive that the table's log does not name are taken back, also compactions by
   other programs: one commit gives the archive its earlier content, and one commit to the table
   names that version.
2. The plan is made from the newest version of the table.
3. Files are copied, and each copy is compared. If deletion vectors hide rows of them, Spark first
   purges these rows from the table, and step 2 is repeated.
4. One commit adds the copies to the archive, and removes expired partitions from it. The first one
   creates the archive.
5. One commit removes the files from the table, and names the archive's new version.
6. Files that the archive has not had for a week are deleted from its folder.

**Safety properties** (tests in `test_archive.py`)
- Each row is read once, at any moment and whatever is killed: step 5 decides alone.
- Both commits create the next version of a log, or fail. Step 5 removes exactly the planned files,
  and fails if one of them changed, or if another run has named a version meanwhile. A run that was
  taken for dead can therefore not commit after step 1 of another run.
- Step 1 takes rows out of the archive only if the table's log is the one that they were planned
  from, or begins later, and if all files of their partitions in the table exist. A log that is
  older than the archive, or that forgot its transaction id, is `Broken`, and nothing is repaired.
- No commit is made to a table with a feature that the commit would break, even if it came after
  the plan.
- Step 6 deletes no file of the newest version, nor of the version that the table names: a commit
  that it does not name is newer than this run, and so are the removals in it.
"""

import dataclasses
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.operation import Figure, figures_as_json
from lakehouse.base.paths import name_in_table
from lakehouse.base.reasons import Explained
from lakehouse.base.text import DAY_MS, Document
from lakehouse.compact.verify import verify_left
from lakehouse.declare.policies import Archive
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ARCHIVE_APP_ID, ROWS_MOVED, Commit, written_in
from lakehouse.delta.partition_values import TypedPartition, typed_partition
from lakehouse.delta.snapshot import (
    DataFile,
    Snapshot,
    TableFacts,
    files_with_vectors,
    types_by_name,
)
from lakehouse.lake.commits import (
    Actions,
    commit_after_newest,
    commit_info,
    create_version,
    delete_dead_files,
    file_actions,
    transaction_action,
    with_due_checkpoint,
)
from lakehouse.lake.lake import Lake
from lakehouse.lake.lease import check_clock, hold
from lakehouse.lake.state_tables import ended_operation, record_if_possible
from lakehouse.retain.plan.archive import (
    NO_ARCHIVE,
    ArchiveFacts,
    ArchivePlan,
    Partition,
    RestorePlan,
    Selection,
    archive_metadata,
    archive_protocol,
    partitions_in,
    plan_archive,
    refuse_table,
    sizes_of,
)
from lakehouse.retain.plan.ttl import TtlPlan
from lakehouse.spark import statements
from lakehouse.spark.errors import translated
from lakehouse.store import LOCAL, Store, StoredFile, at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the userMetadata of the archive's commits: what the commit is, and the table that it is for.
_RECORD = "archive"
_TRIES = 3
_FOOTER_BYTES = 64 * 1024
# Files that no version needs any more stay for this long.
_KEPT_MS = 7 * DAY_MS
_OWN_FILE = re.compile(r"(?!_delta_log/).*")


@frozen
class RetentionOutcome:
    """A run's plan and its figures. `version_after` is `None` if the table did not change."""

    plan: ArchivePlan | RestorePlan | TtlPlan
    version_after: int | None = None
    figures: tuple[Figure, ...] = ()

    def as_json(self) -> Document:
        """The plan's JSON document, with the outcome."""
        return {
            **self.plan.as_json(),
            "version_after": self.version_after,
            "figures": figures_as_json(self.figures),
        }


def record_moved_rows(lake: Lake, table: Table, kind: str, outcome: RetentionOutcome) -> None:
    """Adds an operation of this kind, unless it committed nothing. Its figures have the seconds."""
    if outcome.version_after is None:
        return
    operation = ended_operation(
        table,
        kind,
        next(each.actual for each in outcome.figures if each.name == "seconds") or 0.0,
        operation_id=f"version-{outcome.version_after}",
        reason=outcome.plan.reason.name if isinstance(outcome.plan, Explained) else "",
        figures=outcome.figures,
    )
    record_if_possible(lake, operation)


@frozen
class ArchiveState:
    """A table and its archive at one moment.

    `applied` is the archive at the version that the table's log names, and `newest` the archive at
    its newest version.
    """

    facts: TableFacts
    newest: Snapshot = NO_ARCHIVE
    applied: Snapshot = NO_ARCHIVE
    history: tuple[Commit, ...] = ()

    @property
    def unapplied(self) -> tuple[Commit, ...]:
        """The commits of the archive after the version that the table names."""
        return tuple(each for each in self.history if each.version > self.applied.version)


def archive_key(table_key: str) -> str:
    """The key of a table's archive in the lake."""
    return f"archive/{table_key}"


def read_state(lake: Lake, table_key: str, facts: TableFacts | None = None) -> ArchiveState:
    """The table, by default at its newest version, and its archive.

    Raises:
        Refused: there is no table.
        Broken: the table's log or the archive's log is older than the other one.
    """
    facts = facts or lake.existing_facts(table_key, "archive:")
    snapshot = facts.snapshot
    number = snapshot.transactions.get(ARCHIVE_APP_ID, -1)
    archive = lake.facts(archive_key(table_key))
    newest = NO_ARCHIVE if archive is None else archive.snapshot
    if newest.version < number:
        raise Broken(
            f"archive of {table_key}: the table's log names version {number} of it, but there is no"
            " archive, or an older copy of it was put in its place. Put the newest"
            f" {archive_key(table_key)} back, for example from a backup"
        )
    if archive is None:
        return ArchiveState(facts=facts)
    # Upkeep by other programs, such as a vacuum or a compaction, changes no rows.
    history = tuple(
        each
        for each in lake.history_since(archive, -1).commits
        if _RECORD in written_in(each) or each.changed_data
    )
    for commit in history:
        record = _record_of(commit)
        if record["base"] > number and record["table_version"] <= snapshot.version:
            raise Broken(
                f"archive of {table_key}: the table's log names version {number} of it, but version"
                f" {record['base']} was in force when the table was at version"
                f" {record['table_version']}. An older log was put in place, or the log forgot its"
                " transaction id. Put the newest log back; nothing was changed"
            )
    applied = newest if newest.version == number else NO_ARCHIVE
    if newest.version > number >= 0:
        named = lake.facts(archive_key(table_key), version=number)
        assert named is not None
        applied = named.snapshot
    _refuse_undone_restore(lake, facts, history)
    return ArchiveState(facts=facts, newest=newest, applied=applied, history=history)


def _refuse_undone_restore(lake: Lake, facts: TableFacts, history: Sequence[Commit]) -> None:
    """Raises `Broken` if a RESTORE of the table took rows away that came from the archive.

    They left the archive when they came, so they would be in neither. The log keeps the
    transaction id that names the archive's version.
    """
    records = {each.version: _record_of(each) for each in history}
    restores = {version: record for version, record in records.items() if record.get("restored")}
    if not restores:
        return
    since = min(record["table_version"] for record in restores.values())
    commits = lake.history_since(facts, since)
    missing = commits.missing_after(since)
    undone = [
        commit.version
        for commit in commits.commits
        if commit.applications.get(ARCHIVE_APP_ID) in restores
        and commit.added_paths
        and commit.version in missing
    ]
    if undone:
        raise Broken(
            f"archive of {facts.snapshot.table}: a RESTORE took away the rows that version"
            f" {undone[-1]} of the table had brought back from the archive, so they are in neither."
            f" RESTORE the table to version {undone[-1]}, or to a later one from before that"
            " RESTORE"
        )


def _record_of(commit: Commit) -> Document:
    record = written_in(commit).get(_RECORD)
    if not isinstance(record, dict):
        raise Broken(
            f"archive: version {commit.version} was written by another program, so its content is"
            " unknown. If it is the newest version, delete the commit's files from the archive's"
            " log"
        )
    return record


def plan(
    lake: Lake,
    table: Table,
    facts: TableFacts | None = None,
    *,
    state: ArchiveState | None = None,
    replace: Selection = (),
) -> ArchivePlan:
    """The plan of a run now. Needs no Spark, and writes nothing.

    Without `state`, the archive's log is read and, without `facts`, the table's log, too. `replace`
    is as in `run_archive`.
    """
    archive = _archive_of(table)
    state = state or read_state(lake, table.key, facts)
    snapshot = state.facts.snapshot
    names = snapshot.partition_columns
    types = types_by_name(snapshot.columns)
    restored_ms = {  # a restore that was taken back counts, too
        typed_partition(tuple(zip(names, texts, strict=True)), types): commit.committed_ms
        for commit in state.history
        for texts in _record_of(commit).get("restored", ())
        if len(texts) == len(names)  # else the table had other partitions
    }
    archive_facts = ArchiveFacts(
        snapshot=snapshot,
        archived=state.applied,
        written_by=written_by(lake, state),
        restored_ms=restored_ms,
    )
    return plan_archive(table, archive, archive_facts, now_ms=now_ms(), replace=replace)


def _archive_of(table: Table) -> Archive:
    if table.archive is None:
        raise Refused(
            f"archive of {table.key}: the table declares none. Use Table(archive=Archive(…))"
        )
    return table.archive


def written_by(lake: Lake, state: ArchiveState) -> dict[TypedPartition, str]:
    """The operation that wrote the rows that came after their partition was archived."""
    snapshot = state.facts.snapshot
    in_table = partitions_in(snapshot)
    version_of = dict[str, int]()
    for commit in state.history:
        version = _record_of(commit)["table_version"]
        for path in commit.added_paths:
            version_of.setdefault(path, version)  # a run that was taken back may add it again
    written = dict[TypedPartition, str]()
    for typed, archived in partitions_in(state.applied, snapshot).items():
        if typed in in_table:
            since = max(version_of[file.path] for file in archived.files)
            history = lake.history_since(state.facts, since)
            is_complete = history.between(since, snapshot.version) is not None
            paths = {file.path for file in in_table[typed].files}
            written[typed] = _origin(history.commits, paths, is_complete=is_complete)
    return written


def _origin(commits: Sequence[Commit], paths: set[str], *, is_complete: bool) -> str:
    """`append` if plain appends added these files, or else the other operation.

    `is_complete`: the log still has all commits since the partition was archived.
    """
    adding = [each for each in commits if each.changed_data and each.added_paths]
    direct = [each for each in adding if not paths.isdisjoint(each.added_paths)]
    is_known = paths <= {path for each in direct for path in each.added_paths}
    if not is_known and not is_complete:
        return "write that the log no longer has"
    for commit in direct if is_known else adding:  # else a compaction wrote the files
        mode = commit.parameters.get("mode") or commit.parameters.get("outputMode")
        is_append = commit.operation in ("WRITE", "STREAMING UPDATE") and mode == "Append"
        if not is_append or commit.removed_paths:
            return commit.operation
    return "append"


def run_archive(
    lake: Lake,
    table: Table,
    open_spark: "Callable[[], SparkSession]",
    *,
    replace: Selection = (),
    owner: str = "",
) -> RetentionOutcome:
    """Moves old partitions, and lets archived ones expire. Moving nothing is not an error.

    Spark is opened only if deleted rows have to be purged first. `replace` selects partitions whose
    rows in the table replace the archived ones. `owner` names the caller in the table's lease.

    Raises:
        Refused: the table does not exist or cannot be archived, or this machine's clock is wrong.
        Transient: another process holds the table, or other writers changed the partitions.
        Broken: a copy differs, or the table's log and the archive's log contradict each other.
    """
    _archive_of(table)
    check_clock(lake, table.key)
    started = time.monotonic()
    with hold(lake, None, table.key, owner=owner or f"archive of {table.key}"):
        for _ in range(_TRIES):
            verify_left(lake, open_spark, table.key)
            state = settled_state(lake, table.key)
            planned = plan(lake, table, state=state, replace=replace)
            to_purge = [each.values for each in planned.leaving if files_with_vectors(each.files)]
            if to_purge:
                spark = open_spark()
                snapshot = state.facts.snapshot
                predicate = statements.partition_predicate(snapshot.columns, to_purge)
                with translated(table.key, operation="archive"):
                    spark.sql(statements.purge(snapshot.uri, predicate))
                continue
            version = _move(lake, table, state, planned)
            delete_dead_files(lake, archive_key(table.key), now_ms() - _KEPT_MS, _OWN_FILE)
            for key in (archive_key(table.key), table.key) if version is not None else ():
                if (facts := lake.facts(key)) is not None:
                    with_due_checkpoint(lake, facts)
            moved = sizes_of(planned.leaving)
            figures = (
                Figure("rows", moved.rows, moved.rows),
                Figure("files", moved.files, moved.files),
                Figure("seconds", planned.seconds, time.monotonic() - started),
            )
            outcome = RetentionOutcome(plan=planned, version_after=version, figures=figures)
            record_moved_rows(lake, table, "archive", outcome)
            return outcome
    raise Transient(
        f"archive of {table.key}: other writers deleted rows of its old partitions {_TRIES} times"
        " in a row. Use the same command again"
    )


def settled_state(lake: Lake, table_key: str) -> ArchiveState:
    """The state after step 1: the table names the newest version of its archive."""
    state = read_state(lake, table_key)
    content = {file.path for file in state.applied.files}
    if not state.unapplied and content == {file.path for file in state.newest.files}:
        return state
    refuse_table(state.facts.snapshot)
    _refuse_unproven(lake, state)
    number = commit_to_archive(lake, state)
    _commit_to_table(lake, state, number)
    return read_state(lake, table_key)


def _refuse_unproven(lake: Lake, state: ArchiveState) -> None:
    """Refuses to take rows out of the archive unless the table surely has them (step 1)."""
    snapshot = state.facts.snapshot
    for commit in state.unapplied:
        record = _record_of(commit)
        planned_from = record["table_version"]
        digest = _log_digest(lake, snapshot.table, planned_from)
        since = lake.history_since(state.facts, planned_from - 1).commits
        # Delta deletes old commits of which a checkpoint has the result.
        is_cleaned_up = not digest and bool(since) and since[0].version > planned_from
        if digest != record["table_digest"] and not is_cleaned_up:
            raise Broken(
                f"archive of {snapshot.table}: version {commit.version} of the archive was planned"
                f" from another version {planned_from} of the table than its log has, so"
                " the archived rows may be the only ones. Put the table's newest log back or, if"
                f" the table was created again, move {archive_key(snapshot.table)} away; nothing"
                " was changed"
            )
    content = {file.path for file in state.applied.files}
    in_table = partitions_in(snapshot)
    for typed, archived in partitions_in(state.newest, snapshot).items():
        is_added = any(file.path not in content for file in archived.files)
        present = in_table.get(typed) if is_added else None
        for file in present.files if present else ():
            name = name_in_table(file.path)
            if name is not None and lake.store.stat(f"{snapshot.table}/{name}") is None:
                raise Broken(
                    f"archive of {snapshot.table}: {name} is missing, although the table's log"
                    " names it, so the archived rows may be the only ones. Put the table's newest"
                    " log back; nothing was changed"
                )


def _log_digest(lake: Lake, table_key: str, version: int) -> str:
    """A digest of a commit of the table; empty if the log does not have the commit."""
    try:
        data = lake.store.read(f"{table_key}/_delta_log/{version:020}.json")
    except FileNotFoundError:
        return ""
    return sha256(data).hexdigest()


def _move(lake: Lake, table: Table, state: ArchiveState, planned: ArchivePlan) -> int | None:
    """Steps 3 to 5; returns the table's version, or `None` if there was nothing to do."""
    snapshot = state.facts.snapshot
    metadata = archive_metadata(snapshot, state.newest)
    new: Actions = [{"protocol": archive_protocol(snapshot)}, {"metaData": metadata}]
    if metadata == state.newest.definition.get("metaData"):
        new = []
    if planned.is_idle and (state.newest is NO_ARCHIVE or not new):
        return None
    files = [file for each in planned.leaving for file in each.files]
    new += file_actions("add", _copies(lake, table, files), snapshot)
    number = commit_to_archive(lake, state, (*planned.expiring, *planned.replaced), new)
    return _commit_to_table(lake, state, number, files, planned.figures)


def _copies(lake: Lake, table: Table, files: Sequence[DataFile]) -> list[DataFile]:
    """Copies files into the archive, compares each copy, and returns them as they are there.

    Raises:
        Broken: a file is missing or has another size than in the log, or a copy differs.
    """
    store = lake.store
    run_ms = now_ms()

    def copy(file: DataFile) -> DataFile:
        inside = name_in_table(file.path)
        assert inside is not None  # else its partition stays
        original = store.stat(f"{table.key}/{inside}")
        if original is None or original.size_bytes != file.size_bytes:
            raise Broken(
                f"archive of {table.key}: {inside} is missing, or has another size than the log"
                " says. The table is unchanged. Check the table"
            )
        # Not the name of the original, which may be as long as a name can be.
        name = posixpath.join(posixpath.dirname(inside), f"{uuid4().hex}.parquet")
        copy_name = f"{archive_key(table.key)}/{name}"
        source = original
        if store.bucket != LOCAL:
            # A lifecycle rule that selects the table's files by a tag must not apply to copies.
            storage_class = _archive_of(table).storage_class
            source = dataclasses.replace(original, storage_class=storage_class)
        store.copy(source, copy_name)
        copied = store.stat(copy_name)
        if copied is None or not _is_same(store, original, copied):
            raise Broken(
                f"archive: {copy_name} differs from {original.name}, from which it was copied. The"
                " table is unchanged. Check the storage, then run the archive again"
            )
        return dataclasses.replace(file, path=quote(name, safe="/=-_.~"), modified_ms=run_ms)

    return at_once(copy, files)


def _is_same(store: Store, original: StoredFile, copied: StoredFile) -> bool:
    """Whether size and content are equal; on S3 the ETag or, if it differs, the footers."""
    if original.size_bytes != copied.size_bytes:
        return False
    if store.checksum(original) == store.checksum(copied):
        return True
    if store.bucket == LOCAL:
        return False
    # The copy of an object gets another ETag if it is encrypted or was uploaded in parts.
    names = (original.name, copied.name)
    ends = [store.read_part(each, -_FOOTER_BYTES, _FOOTER_BYTES) for each in names]
    return ends[0] == ends[1]


def commit_to_archive(
    lake: Lake,
    state: ArchiveState,
    ended: Iterable[Partition] = (),
    new: Sequence[Document] = (),
    restored: Sequence[Partition] = (),
) -> int:
    """Creates the archive's next version, and returns it.

    It has the files that the table's log names and what is `new`, without partitions that `ended`,
    and those that return to the table (`restored`).
    """
    snapshot = state.facts.snapshot
    key = archive_key(snapshot.table)
    newest = state.newest
    kept = {file.path for file in state.applied.files}
    kept.difference_update(file.path for each in (*ended, *restored) for file in each.files)
    missing = kept.difference(file.path for file in newest.files)
    gone = [file for file in newest.files if file.path not in kept]
    back = [file for file in state.applied.files if file.path in missing]
    number = newest.version + 1
    record = {
        "base": state.applied.version,
        "table_version": snapshot.version,
        "table_digest": _log_digest(lake, snapshot.table, snapshot.version),
        "restored": [[text for _, text in each.values] for each in restored],
    }
    actions = [
        commit_info("WRITE", newest.version, {_RECORD: record}),
        *new,
        *file_actions("remove", gone, newest),
        *file_actions("add", back, state.applied),
    ]
    if not create_version(lake, key, number, actions):
        raise Transient(
            f"{key}: another run created version {number} first. Use the same command again"
        )
    return number


def _commit_to_table(
    lake: Lake,
    state: ArchiveState,
    number: int,
    files: Sequence[DataFile] = (),
    figures: Document | None = None,
) -> int:
    """Commits the removal of files, and names the archive's version `number` (step 5)."""
    snapshot = state.facts.snapshot
    planned = {file.path for file in files}

    def leaving(at: Snapshot) -> tuple[object, ...]:
        files = {file.path: file.deletion_vector for file in at.files if file.path in planned}
        return files, at.table_id, at.partition_columns, at.physical_names

    def check(newest: Snapshot) -> None:
        refuse_table(newest)
        if newest.transactions.get(ARCHIVE_APP_ID, -1) != state.applied.version:
            raise Transient(
                f"archive of {snapshot.table}: another run has committed meanwhile. Nothing is"
                " lost. Use the same command again"
            )
        if leaving(newest) != leaving(snapshot):
            raise Transient(
                f"archive of {snapshot.table}: another writer has changed files that were about to"
                " leave. Nothing is lost. Use the same command again"
            )

    transaction = transaction_action(ARCHIVE_APP_ID, number)
    metadata = {ROWS_MOVED: "archive", "plan": figures, "mark": uuid4().hex}
    info = commit_info("DELETE", snapshot.version, metadata)
    actions = [info, transaction, *file_actions("remove", files, snapshot)]
    return commit_after_newest(lake, snapshot, actions, check)
