"""Checks an inventory against the tables' logs."""

import shlex

from lakehouse.base.reasons import CheckResult
from lakehouse.base.text import count_of, first_names
from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation

CHECKS = {
    "missing": "Every file that a table's newest version reads is in storage.",
    "readable": "No file that a table's newest version reads is in an archive, where reads fail.",
}


def assess_missing(reconciliation: Reconciliation) -> CheckResult:
    """Whether every live file (a file that the newest version reads) is in the inventory.

    The check also fails if a table's log cannot be read.
    """
    tables = reconciliation.tables
    missing = [f"{table.table}/{name}" for table in tables for name in table.missing]
    sentence = f"{count_of(len(tables), 'table')}: every live file is in storage"
    if missing:
        sentence = (
            f"the inventory lacks {count_of(len(missing), 'live file')}: {first_names(missing)}. "
            "Unless the inventory covers another prefix, restore the missing files from a backup"
        )
    unread = [table.table for table in tables if table.problem]
    if unread:
        sentence += f"; not checked, because the log cannot be read: {first_names(unread)}"
    numbers = {"missing_files": len(missing), "unread_tables": len(unread)}
    return CheckResult(
        name="missing",
        ok=not missing and not unread,
        sentence=sentence,
        is_error=True,
        numbers=numbers,
    )


def assess_readable(reconciliation: Reconciliation, *, address: str) -> CheckResult:
    """Whether every live file in the inventory can be read without a restore.

    `address` is the lake's address, for example `s3://bucket/lake`.
    """
    tables = reconciliation.tables
    archived = [f"{table.table}/{name}" for table in tables for name in table.archived]
    sentence = f"{count_of(len(tables), 'table')}: no live file is in an archive"
    if archived:
        sentence = (
            f"{count_of(len(archived), 'live file')} in an archive: {first_names(archived)}. "
            f"{restore_advice(f'{address}/{archived[0]}')}"
        )
    return CheckResult(
        name="readable",
        ok=not archived,
        sentence=sentence,
        is_error=True,
        numbers={"archived_files": len(archived)},
    )


def restore_advice(address: str) -> str:
    """The commands that make the archived object at `s3://bucket/key` readable again."""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    quoted = shlex.quote(address)
    return (
        "First disable the lifecycle rule or the archive configuration that moves files there. "
        f"Then, for each file, use: aws s3api restore-object --bucket {bucket} --key "
        f"{shlex.quote(key)} --restore-request Days=7; hours later, after the restore, use: "
        f"aws s3 cp {quoted} {quoted} --storage-class STANDARD --force-glacier-transfer"
    )
