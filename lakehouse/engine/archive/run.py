"""One archive run: old partitions move from a table to Parquet files below `archive/`.

1. The table's lock is taken. A compaction or an archive commit that a killed run did not verify is
   verified now.
2. The log is read at its newest version, and the plan is made. An operation that a killed run
   recorded is continued if it still fits the plan, and if its record is at most a day old, because
   `keep_days` may count from the time of the record. Otherwise its copies and record are deleted.
   If the plan moves nothing, the run ends.
3. If files cannot be copied as they are stored (deleted rows, renamed columns), Spark writes their
   rows to new files next to the archive, and the rows are compared (`rewrite_partitions`).
4. The operation is recorded, with each file, its row count and its checksum.
5. The files are copied into the archive, and the copies are compared with the record (`copies`).
6. The newest version is read again: the files of these partitions must be exactly the recorded
   files. If a compaction or late rows changed them, steps 2 to 5 are repeated, at most twice.
7. One DELETE removes the partitions. Its condition uses only partition columns, so it reads no
   data. Its commit carries the operation's number as its transaction id, so the same commit removes
   the rows from the table and adds them to the archive.
8. The log is read: the commit must have removed exactly these files, and added none.

**Safety properties** (tests in `test_run.py`, `test_run_kills.py`; `long/test_archive.py`)
- For a reader of any version, and whenever a run is killed, each row is either in the table or in
  the archive: a copy is part of the archive only from the commit of its operation on.
- A run deletes from storage only staged files, and copies that are not part of the archive: copies
  that differ from the original, and copies of an operation that the log proves not to be applied.
  The vacuum deletes the table's files, after their retention and after tables downstream have read
  them.
- No file leaves the table before its copy was compared: size, row count, and content (`copies`).
  Rewritten rows are compared by hashes.
- A DELETE that would rewrite a file is never sent.
- If another program adds rows to an archived partition between steps 6 and 7, step 8 reports which
  version still has these rows.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from lakehouse.core.archive.archived_files import ArchivedNames, typed_in
from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.outcome import ArchiveOutcome
from lakehouse.core.archive.plan import ArchiveFacts, ArchivePlan, LeavingPartition, plan_archive
from lakehouse.core.archive.records import ArchiveOperation, RecordedPartition
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import DataFile, TableFacts
from lakehouse.core.errors import Refused, Transient
from lakehouse.core.text import count_of
from lakehouse.core.units import DAY_MS
from lakehouse.engine.archive.commit import delete_partitions, has_files_of, verify_delete
from lakehouse.engine.archive.copies import (
    SourceFile,
    compare_copies,
    copy_files,
    measured,
    requests_since,
    stored_name,
)
from lakehouse.engine.archive.records import (
    archive_contents,
    clear_rewritten,
    record_operation,
    withdraw_unapplied,
)
from lakehouse.engine.archive.rewrite_partitions import stage_rewritten
from lakehouse.engine.clock import check_clock, now_ms
from lakehouse.engine.compaction.row_hashes_spark import READ_CONFS
from lakehouse.engine.compaction.verify import verify_left
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.retry_conflicts import retry_conflicts
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import session_confs
from lakehouse.engine.table_lock import hold

_TRIES = 3


class _FilesChanged(Exception):
    """The partitions have other files than the operation recorded."""


def plan(lake: Lake, table: Table, declared: Iterable[Table] = ()) -> ArchivePlan | None:
    """The plan of an archive run now; `None` if there is no table.

    `declared` are all declared tables. Nothing is written, and Spark is not needed.

    Raises:
        Refused: the table declares no archive, or cannot be archived.
    """
    facts = lake.facts(table.key)
    if facts is None:
        return None
    return _planned(lake, table, facts, archive_contents(lake, facts), declared)


def run_archive(
    session: TableSession,
    declared: Iterable[Table] = (),
    *,
    owner: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ArchiveOutcome:
    """Moves a table's old partitions into its archive. Moving nothing is not an error.

    `declared` are all declared tables, `owner` names the caller in the lock, and `tell` is called
    before each long step.

    Raises:
        Refused: there is no table, it declares no archive or cannot be archived, a commit of
            another writer could be lost, or this machine's clock is wrong.
        Transient: another process holds the table, or other writers kept changing the partitions.
        Broken: copies differ from their originals, or the commit removed other files than recorded.
    """
    lake = session.lake
    key = session.key
    command = f"archive of {key}"
    check_clock(lake, key)
    started = time.monotonic()
    requests_before = lake.store.requests.copy()
    with (
        translated(key, operation="archive"),
        hold(lake, session.spark, key, owner=owner or command),
        session_confs(session.spark, READ_CONFS),
    ):
        verify_left(lake, session.spark, key)
        verify_delete(lake, key)
        outcome = None
        run_once = partial(_run, session, tuple(declared), tell)
        for _ in range(_TRIES):
            with suppress(_FilesChanged):
                outcome = retry_conflicts(run_once, tries=_TRIES)
                break
        if outcome is None:
            raise Transient(
                f"{command}: other writers changed its old partitions {_TRIES} times in a row. Use"
                " the same command again"
            )
    return replace(
        outcome,
        seconds=time.monotonic() - started,
        requests=requests_since(lake.store, requests_before),
    )


def _run(
    session: TableSession, declared: tuple[Table, ...], tell: Callable[[str], None]
) -> ArchiveOutcome:
    """Runs steps 2 to 8 once."""
    lake = session.lake
    key = session.key
    started_ms = now_ms()
    requests_before = lake.store.requests.copy()
    facts = lake.facts(key)
    if facts is None:
        raise Refused(
            f"archive of {key}: there is no table yet. Use lakehouse materialize {key} first"
        )
    contents = archive_contents(lake, facts)
    planned = _planned(lake, session.table, facts, contents, declared)
    unapplied = contents.unapplied
    if unapplied is not None and not _is_resumable(lake, unapplied, planned, facts):
        withdraw_unapplied(lake, facts, contents)
        unapplied = None
    if not planned.partitions:
        return ArchiveOutcome(plan=planned)
    tell(f"{key}: {planned.sentence}")
    operation = unapplied or _record(session, planned, facts, contents)
    tell(f"{key}: copying {count_of(len(operation.files), 'file')}")
    copy_files(lake, key, operation)
    compare_copies(lake, key, operation)
    current = lake.facts(key)
    if current is None or not has_files_of(lake, current, operation):
        raise _FilesChanged
    tell(f"{key}: deleting the partitions from the table")
    requests = requests_since(lake.store, requests_before)
    figures = {"started_ms": started_ms, "requests": requests}
    delete_partitions(session, operation, planned, current, measured=figures)
    version = verify_delete(lake, key)
    clear_rewritten(lake, key)
    return ArchiveOutcome(plan=planned, operation=operation, version_after=version)


def _planned(
    lake: Lake,
    table: Table,
    facts: TableFacts,
    contents: ArchiveContents,
    declared: Iterable[Table],
) -> ArchivePlan:
    whole_readers = sorted({each.key for each in declared if table in each.read_whole})
    archive_facts = ArchiveFacts(
        snapshot=facts.snapshot,
        contents=contents,
        read_whole_by=tuple(whole_readers),
        is_elsewhere=table.key in lake.elsewhere,
        classes=load_price_book(lake.settings).classes if facts.snapshot.on_s3 else {},
    )
    return plan_archive(table, archive_facts, now_ms=now_ms())


def _is_resumable(
    lake: Lake, operation: ArchiveOperation, planned: ArchivePlan, facts: TableFacts
) -> bool:
    """Whether this run can continue the operation.

    Its record must be recent, its files and storage class must be those of the plan, all its staged
    files must exist, and its files in the table must be unchanged.
    """
    planned_paths = {file.path for each in planned.partitions for file in each.files}
    if operation.kind != "archive" or planned_paths != operation.sources:
        return False
    if now_ms() - operation.created_ms > DAY_MS:
        return False
    if operation.storage_class != planned.archive.storage_class:
        return False
    for partition in operation.partitions:
        if not partition.rewritten:
            continue
        if any(lake.store.stat(file.source) is None for file in partition.files):
            return False
    return has_files_of(lake, facts, operation)


def _record(
    session: TableSession, planned: ArchivePlan, facts: TableFacts, contents: ArchiveContents
) -> ArchiveOperation:
    """Runs steps 3 and 4; returns the recorded operation."""
    lake = session.lake
    key = session.key
    snapshot = facts.snapshot
    names = ArchivedNames(snapshot, planned.number, contents.file_names)
    rewritten = [each for each in planned.partitions if each.rewritten]
    staged = stage_rewritten(session, snapshot, rewritten, names) if rewritten else {}
    partitions = list[RecordedPartition]()
    for each in planned.partitions:
        if each.rewritten:
            sources = staged[typed_in(snapshot, each.values)]
        else:
            sources = [_copied_source(key, each, file, names) for file in each.files]
        partitions.append(
            RecordedPartition(
                values=each.values,
                start_ms=each.span.start_ms,
                end_ms=each.span.end_ms,
                files=tuple(measured(lake.store, sources)),
                rewritten=tuple(file.path for file in each.files) if each.rewritten else (),
            )
        )
    operation = ArchiveOperation(
        number=planned.number,
        kind="archive",
        table_id=snapshot.table_id,
        version=snapshot.version,
        created_ms=now_ms(),
        cutoff_ms=planned.cutoff_ms,
        storage_class=planned.archive.storage_class,
        partitions=tuple(partitions),
        names={physical: name for name, physical in snapshot.physical_names.items()},
        field_names={physical: path[-1] for path, physical in snapshot.physical_fields.items()},
    )
    record_operation(lake.store, key, operation)
    return operation


def _copied_source(
    table_key: str, partition: LeavingPartition, file: DataFile, names: ArchivedNames
) -> SourceFile:
    """A file of the table that is copied as it is stored."""
    name = stored_name(table_key, file.path)
    return SourceFile(
        path=file.path,
        name=name,
        archived=names.name_for(partition.values, name),
        size_bytes=file.size_bytes,
        row_count=file.row_count,
    )
