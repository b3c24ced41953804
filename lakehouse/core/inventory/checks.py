"""The five checks of an inventory, and the record of loaded reports in the table's log."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from lakehouse.core.check_result import CheckResult
from lakehouse.core.delta.commits import Commits
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.text import count_of
from lakehouse.core.units import HOUR_MS

CHECKS = {
    "complete": "The report was read to its end, and all its rows are in the inventory table.",
    "fresh": "The report is no older than its schedule allows.",
    "plausible": "The bucket has at least half of the objects and bytes of the previous report.",
    "missing": "Every file that a table's newest version reads is in storage.",
    "readable": "No file that a table's newest version reads is in an archive, where reads fail.",
}
# If the previous report has fewer objects, a loss is not reported: deleting one test table may
# remove half of them.
FEW_OBJECTS = 100
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A report in the inventory table: its name, its time, and the totals of its objects."""

    report: str
    created_ms: int
    object_count: int
    size_bytes: int

    def as_text(self) -> str:
        """The `userMetadata` of the commit that loads the report."""
        return json.dumps({"inventory": asdict(self)}, separators=(",", ":"))


def loads_of(history: Commits) -> Iterator[Load]:
    """The loads that these commits record, newest first. Other commits are skipped."""
    for commit in reversed(history.commits):
        try:
            record = json.loads(commit.user_metadata or "{}")["inventory"]
            load = Load(
                report=str(record["report"]),
                created_ms=int(record["created_ms"]),
                object_count=int(record["object_count"]),
                size_bytes=int(record["size_bytes"]),
            )
        except (ValueError, KeyError, TypeError):
            continue
        yield load


def assess_complete(load: Load, row_count: int | None) -> CheckResult:
    """Whether the inventory table holds all rows that were read from a report.

    `row_count` is the number of rows according to the table's log, or `None` if unknown.
    """
    sentence = f"report {load.report} was read to its end: {load.object_count:,} rows"
    if row_count is None:
        sentence += ", but it is unknown how many of these rows the inventory table has"
    elif row_count != load.object_count:
        sentence += f", but the inventory table has {row_count:,} rows of this report"
    numbers = {"rows": load.object_count}
    return CheckResult(
        name="complete",
        ok=row_count == load.object_count,
        sentence=sentence,
        is_error=True,
        numbers=numbers,
    )


def assess_fresh(load: Load, *, allowed: float, now_ms: int) -> CheckResult:
    """Whether a report is at most `allowed` hours old."""
    hours = (now_ms - load.created_ms) / HOUR_MS
    sentence = f"report {load.report} was begun {hours:.1f} h ago (limit {allowed:g} h)"
    numbers = {"age_hours": round(hours, 3), "allowed_hours": allowed}
    return CheckResult(name="fresh", ok=hours <= allowed, sentence=sentence, numbers=numbers)


def assess_plausible(load: Load, previous: Load | None) -> CheckResult:
    """Whether a bucket has kept at least half of its objects and bytes since the previous load."""
    if previous is None:
        return CheckResult(
            name="plausible",
            ok=True,
            sentence=f"report {load.report} is the first, so there is nothing to compare it with",
        )
    objects_kept = _share(load.object_count, previous.object_count)
    bytes_kept = _share(load.size_bytes, previous.size_bytes)
    sentence = (
        f"{load.object_count:,} objects with {load.size_bytes:,} bytes; the previous report, "
        f"{previous.report}, had {previous.object_count:,} objects with {previous.size_bytes:,} "
        "bytes"
    )
    has_lost_half = min(objects_kept, bytes_kept) < 0.5
    is_implausible = has_lost_half and previous.object_count >= FEW_OBJECTS
    if is_implausible:
        sentence += (
            "; more than half of the objects or bytes is gone. Check whether this was deleted on "
            "purpose, and whether the report covers the same prefix as before"
        )
    numbers = {
        "objects_kept_share": round(objects_kept, 4),
        "bytes_kept_share": round(bytes_kept, 4),
    }
    return CheckResult(name="plausible", ok=not is_implausible, sentence=sentence, numbers=numbers)


def assess_missing(reconciliation: Reconciliation) -> CheckResult:
    """Whether every live file (a file that the newest version reads) is in the report.

    The check also fails if a table's log cannot be read.
    """
    tables = reconciliation.tables
    missing = [f"{table.table}/{name}" for table in tables for name in table.missing]
    sentence = f"{count_of(len(tables), 'table')}: every live file is in storage"
    if missing:
        sentence = (
            f"the report lacks {count_of(len(missing), 'live file')}: {_named(missing)}. Unless "
            "the report covers another prefix, restore the missing files from a backup"
        )
    unread = [table.table for table in tables if table.problem]
    if unread:
        sentence += f"; not checked, because the log cannot be read: {_named(unread)}"
    numbers = {"missing_files": len(missing), "unread_tables": len(unread)}
    return CheckResult(
        name="missing",
        ok=not missing and not unread,
        sentence=sentence,
        is_error=True,
        numbers=numbers,
    )


def assess_readable(reconciliation: Reconciliation, *, address: str) -> CheckResult:
    """Whether every live file in the report can be read without a restore.

    `address` is the lake's address, for example `s3://bucket/lake`.
    """
    tables = reconciliation.tables
    archived = [f"{table.table}/{name}" for table in tables for name in table.archived]
    sentence = f"{count_of(len(tables), 'table')}: no live file is in an archive"
    if archived:
        sentence = (
            f"{count_of(len(archived), 'live file')} in an archive: {_named(archived)}. "
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


def _share(count: int, previous_count: int) -> float:
    return count / previous_count if previous_count else 1.0


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
