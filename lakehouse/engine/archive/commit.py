"""The commit that removes archived partitions from a table, and the checks before and after it."""

import json
from collections.abc import Mapping
from typing import Any

from lakehouse.core.archive.archived_files import files_by_partition
from lakehouse.core.archive.plan import ArchivePlan
from lakehouse.core.archive.records import APP_ID, ArchiveOperation
from lakehouse.core.delta.commits import ROWS_MOVED, Commit
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Broken
from lakehouse.core.text import count_of, first_names
from lakehouse.engine.archive.records import (
    archive_operations,
    expect_commit,
    expected_commit,
    settle_commit,
)
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import statements, temporary_confs


def has_files_of(lake: Lake, facts: TableFacts, operation: ArchiveOperation) -> bool:
    """Whether a DELETE of the partitions would remove exactly the recorded files, unchanged.

    A file that got a deletion vector afterwards has changed, because the archive has its deleted
    rows. False if the log no longer has all commits since the plan.
    """
    snapshot = facts.snapshot
    partitions = [each.values for each in operation.partitions]
    current_files = files_by_partition(snapshot, partitions).values()
    current_paths = {file.path for files in current_files for file in files}
    if snapshot.table_id != operation.table_id or current_paths != operation.sources:
        return False
    history = history_since(lake.store, facts.history, operation.version)
    commits = history.between(operation.version, snapshot.version)
    return commits is not None and not any(_touches(each, operation) for each in commits)


def _touches(commit: Commit, operation: ArchiveOperation) -> bool:
    """Whether a commit removed a file of the operation, or added it again (deletion vector)."""
    return not operation.sources.isdisjoint((*commit.added_paths, *commit.removed_paths))


def delete_partitions(
    session: TableSession,
    operation: ArchiveOperation,
    planned: ArchivePlan,
    facts: TableFacts,
    *,
    measured: Mapping[str, Any],
) -> None:
    """Removes the partitions from the table of `facts` in one commit.

    The caller must verify the commit (`verify_delete`). Its metadata contains the plan's figures
    and what the run `measured` so far: `started_ms`, and its S3 `requests` by method.
    """
    snapshot = facts.snapshot
    predicate = statements.partition_predicate(
        snapshot.columns, [each.values for each in operation.partitions]
    )
    document = planned.as_json()
    names = ("reason", "sentence", "files", "rows", "bytes", "requests", "seconds", "usd")
    content = {
        ROWS_MOVED: "archive",
        "number": operation.number,
        **measured,
        "cutoff_ms": operation.cutoff_ms,
        "rows": operation.row_count,
        "plan": {name: document[name] for name in names},
    }
    metadata = json.dumps(content, separators=(",", ":"))
    confs = {
        temporary_confs.TRANSACTION_APP: APP_ID,
        temporary_confs.TRANSACTION_VERSION: str(operation.number),
        temporary_confs.USER_METADATA: metadata,
    }
    expect_commit(session.lake.store, session.key, operation, snapshot.version)
    with temporary_confs.session_confs(session.spark, confs):
        session.spark.sql(statements.delete_rows(snapshot.uri, [predicate]))


def verify_delete(lake: Lake, table_key: str) -> int | None:
    """Compares the last unverified commit with its record; returns its version.

    `None` if no commit has to be verified, or if the operation has not committed.

    Raises:
        Broken: the commit removed other files than recorded, another program changed the files just
            before it, or the log no longer has the commit. This is reported only once, so the next
            run continues.
    """
    expected = expected_commit(lake.store, table_key)
    facts = None if expected is None else lake.facts(table_key)
    if expected is None or facts is None:
        return None
    number, version = expected
    if facts.snapshot.transactions.get(APP_ID, 0) < number:
        settle_commit(lake.store, table_key)  # the DELETE has not committed
        return None
    [operation] = [
        each for each in archive_operations(lake.store, table_key) if each.number == number
    ]
    history = history_since(lake.store, facts.history, version)
    commits = [each for each in history.commits if each.applications.get(APP_ID) == number]
    settle_commit(lake.store, table_key)  # before any error, so that it is reported only once
    commits_between = history.between(version, commits[-1].version - 1) if commits else None
    if commits_between is None:
        raise Broken(
            f"archive of {table_key}: the log no longer has the commit of operation {number}, so it"
            " cannot be verified. Compare the rows of table and archive with their source"
        )
    commit = commits[-1]
    conflicts = [each.version for each in commits_between if _touches(each, operation)]
    if conflicts:
        conflict = conflicts[0]
        raise Broken(
            f"archive of {table_key}: version {conflict}, of another program, changed files of"
            f" the archived partitions just before version {commit.version} removed them. The"
            f" archive may have rows that version {conflict} deleted, or lack rows that it wrote."
            f" Before a vacuum deletes the files of version {commit.version - 1}, compare these"
            f" partitions in version {commit.version - 1} with their archived files. If they"
            f" differ, use `lakehouse archive restore {table_key} --into-source`, and repeat the"
            " change"
        )
    removed = {*commit.removed_paths}
    extra = sorted(removed - operation.sources)
    if extra:
        raise Broken(
            f"archive of {table_key}: version {commit.version} also removed"
            f" {count_of(len(extra), 'file')} that another program had just added, for example"
            f" {first_names(extra, most=1)}. Their rows are in version {commit.version - 1} only."
            " Append these rows to the table again, before a vacuum deletes the files"
        )
    if removed != operation.sources or commit.added_paths:
        raise Broken(
            f"archive of {table_key}: version {commit.version} removed {len(removed)} of the"
            f" {count_of(len(operation.sources), 'file')} of operation {number}, and added"
            f" {count_of(len(commit.added_paths), 'file')}. Compare this version with the"
            " operation's record"
        )
    return commit.version
