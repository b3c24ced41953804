"""Deletes archived files of expired partitions, and of rows that were restored into the table.

1. This machine's clock is compared with the storage's, because the age of a partition is computed
   from this machine's clock.
2. The table's lock is taken. The log, the records of the archive and a listing of its folder are
   read, and the plan is made.
3. A record that names the expired partitions is written. It removes them from the archive.
4. Files are deleted in batches. Before each batch, the log and the records are read again. The
   files of the batch that are in the archive again are kept.
5. The oldest records are folded into one if nothing needs them any more.

**Safety properties** (tests in `test_expire.py`)
- A file is deleted only if it is below `archive/<layer>/<table>/`, a record names it, and the
  record of an `expire` or the commit of a restore has removed it from the archive.
- While an operation is interrupted (recorded, but not committed), nothing is deleted.
- A run may be killed at any step. The next run deletes the remaining files.
- A record is not folded while one of its files is stored, a partition in the archive comes from it,
  or a `RESTORE` could undo its operation. While a commit is unverified, no record is folded.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lakehouse.core.archive.expire import (
    ExpireFacts,
    ExpireOutcome,
    ExpirePlan,
    fold_records,
    foldable_records,
    plan_expire,
    unarchived_files,
)
from lakehouse.core.archive.records import ArchiveOperation
from lakehouse.core.declaration.table import Table
from lakehouse.engine.archive.records import (
    archive_operations,
    contents_of,
    expected_commit,
    record_operation,
    replace_by,
)
from lakehouse.engine.clock import check_clock, now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_lock import hold

_BATCH = 1_000


def rehearse_expire(lake: Lake, table: Table) -> ExpirePlan | None:
    """The files that an expire run would delete now; `None` if there is no table."""
    facts = _gather(lake, table)
    return None if facts is None else plan_expire(facts, now_ms=now_ms())


def expire(lake: Lake, table: Table, *, owner: str | None = None) -> ExpireOutcome | None:
    """Deletes the archived files that are no longer needed; `None` if there is no table.

    `owner` names the caller in the lock.

    Raises:
        Refused: this machine's clock is wrong.
        Transient: another process holds the table, or the storage does not answer.
        Broken: the records of the archive are damaged, or a `RESTORE` has undone an operation.
    """
    check_clock(lake, table.key)
    with hold(lake, None, table.key, owner=owner or f"expire of {table.key}"):
        facts = _gather(lake, table)
        if facts is None:
            return None
        plan = plan_expire(facts, now_ms=now_ms())
        if plan.expired:
            record_operation(lake.store, table.key, _operation(facts, plan))
        outcome = ExpireOutcome(plan=plan)
        names = [*plan.files]
        for start in range(0, len(names), _BATCH):
            outcome = _delete(lake, table, outcome, names[start : start + _BATCH])
        if names:
            lake.store.remove_empty_folders(folder_of(table.key))
        _fold(lake, table, facts)
    return outcome


def _fold(lake: Lake, table: Table, facts: ExpireFacts) -> None:
    """Folds the records that were not needed as of `facts` into one. The caller holds the lock."""
    days = 0 if table.archive is None else table.archive.older_than_days
    fold = partial(foldable_records, facts, older_than_days=days, now_ms=now_ms())
    # The log is listed for its oldest version only if any record could be folded.
    if not fold(oldest_version=facts.table.snapshot.version):
        return
    if expected_commit(lake.store, table.key) is not None:
        return  # the next archive run must compare this commit with its record
    folder = f"{table.key}/_delta_log"
    names = [file.name.removeprefix(f"{folder}/")[:20] for file in lake.store.list(folder)]
    oldest_version = min((int(name) for name in names if name.isdigit()), default=0)
    foldable = fold(oldest_version=oldest_version)
    if foldable:
        replace_by(lake.store, table.key, fold_records(foldable, facts.table.snapshot.table_id))


def folder_of(table_key: str) -> str:
    """The folder of a table's archived files, in the lake."""
    return f"archive/{table_key}"


def _gather(lake: Lake, table: Table) -> ExpireFacts | None:
    facts = lake.facts(table.key)
    if facts is None:
        return None
    operations = archive_operations(lake.store, table.key)
    return ExpireFacts(
        table=facts,
        contents=contents_of(lake.store, operations, facts),
        operations=operations,
        stored={file.name: file.size_bytes for file in lake.store.list(folder_of(table.key))},
        keep_days=None if table.archive is None else table.archive.keep_days,
    )


def _operation(facts: ExpireFacts, plan: ExpirePlan) -> ArchiveOperation:
    """The record that removes the expired partitions from the archive."""
    return ArchiveOperation(
        number=facts.contents.last_number + 1,
        kind="expire",
        table_id=facts.table.snapshot.table_id,
        version=plan.version,
        created_ms=now_ms(),
        cutoff_ms=0,
        storage_class="",
        partitions=tuple(each.recorded for each in plan.expired),
    )


def _delete(
    lake: Lake, table: Table, outcome: ExpireOutcome, names: Sequence[str]
) -> ExpireOutcome:
    """Deletes the files of a batch that still are not in the archive; returns the new outcome."""
    facts = _gather(lake, table)
    unarchived = set[str]() if facts is None else unarchived_files(facts, now_ms=now_ms())
    confirmed = [name for name in names if name in unarchived]
    failed = lake.store.delete_each(confirmed)
    deleted = [name for name in confirmed if name not in failed]
    return replace(
        outcome,
        deleted_files=outcome.deleted_files + len(deleted),
        deleted_bytes=outcome.deleted_bytes + sum(outcome.plan.files[name] for name in deleted),
        failed={**outcome.failed, **failed},
    )
