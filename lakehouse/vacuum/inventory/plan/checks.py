"""The five checks of an inventory, and the record of inventories in the table's log."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from lakehouse.base.check_result import CheckResult
from lakehouse.base.stored_objects import MAX_AGE_HOURS, SCAN, Inventory
from lakehouse.base.text import count_of
from lakehouse.base.units import HOUR_MS
from lakehouse.delta.commits import Commits
from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation

CHECKS = {
    "complete": "The listing was read to its end, and all its rows are in the inventory table.",
    "fresh": "The inventory is no older than its schedule allows.",
    "plausible": "The bucket has at least half of the objects and bytes of the previous one.",
    "missing": "Every file that a table's newest version reads is in storage.",
    "readable": "No file that a table's newest version reads is in an archive, where reads fail.",
}
# If the previous inventory has fewer objects, a loss is not reported: deleting one test table may
# remove half of them.
FEW_OBJECTS = 100
_NAMED = 5


# The time that AWS may take to deliver a report. We saw a daily report that was complete only 23
# hours after its listing began. Source: Amazon S3 user guide, "Amazon S3 Inventory": reports are
# daily or weekly.
_AWS_DELIVERY_HOURS = 26.0
_DAY_HOURS = 24.0
_WEEK_HOURS = 168.0
_RECORDED = ("name", "created_ms", "object_count", "size_bytes")


def inventory_record(inventory: Inventory) -> dict[str, Any]:
    """The `userMetadata` of the commit that adds an inventory to its table."""
    return {"inventory": {name: getattr(inventory, name) for name in _RECORDED}}


def inventories_in(history: Commits) -> Iterator[Inventory]:
    """The inventories that these commits added, newest commit first. Others are skipped."""
    for commit in reversed(history.commits):
        try:
            record = json.loads(commit.user_metadata or "{}")["inventory"]
            inventory = Inventory(
                name=str(record["name"]),
                created_ms=int(record["created_ms"]),
                object_count=int(record["object_count"]),
                size_bytes=int(record["size_bytes"]),
            )
        except (ValueError, KeyError, TypeError):
            continue
        yield inventory


def allowed_hours(inventory: Inventory, previous_ms: int | None) -> float:
    """The age in hours up to which an inventory is fresh.

    For our own scans, the limit is `MAX_AGE_HOURS`. For a report from AWS, the limit is the
    interval since the previous report of its configuration (at least a day, at most a week), plus
    the time that delivery may take.
    """
    if inventory.configuration == SCAN:
        return MAX_AGE_HOURS
    interval_hours = _DAY_HOURS
    if previous_ms is not None:
        interval_hours = (inventory.created_ms - previous_ms) / HOUR_MS
    return min(max(interval_hours, _DAY_HOURS), _WEEK_HOURS) + _AWS_DELIVERY_HOURS


def assess_complete(inventory: Inventory) -> CheckResult:
    """The passed check of an inventory in the table; the table never has an incomplete one."""
    sentence = f"inventory {inventory.name} was read to its end: {inventory.object_count:,} rows"
    numbers = {"rows": inventory.object_count}
    return CheckResult(name="complete", ok=True, sentence=sentence, is_error=True, numbers=numbers)


def assess_fresh(inventory: Inventory, *, allowed: float, now_ms: int) -> CheckResult:
    """Whether an inventory is at most `allowed` hours old."""
    hours = inventory.age_hours(now_ms)
    sentence = f"inventory {inventory.name} was begun {hours:.1f} h ago (limit {allowed:g} h)"
    numbers = {"age_hours": round(hours, 3), "allowed_hours": allowed}
    return CheckResult(name="fresh", ok=hours <= allowed, sentence=sentence, numbers=numbers)


def assess_plausible(inventory: Inventory, previous: Inventory | None) -> CheckResult:
    """Whether the bucket has kept at least half of the previous inventory's objects and bytes."""
    if previous is None:
        return CheckResult(
            name="plausible",
            ok=True,
            sentence=f"{inventory.name} is the first inventory: nothing to compare it with",
        )
    objects_kept = _share(inventory.object_count, previous.object_count)
    bytes_kept = _share(inventory.size_bytes, previous.size_bytes)
    sentence = (
        f"{inventory.object_count:,} objects with {inventory.size_bytes:,} bytes; the previous "
        f"inventory, {previous.name}, had {previous.object_count:,} objects with "
        f"{previous.size_bytes:,} bytes"
    )
    has_lost_half = min(objects_kept, bytes_kept) < 0.5
    is_implausible = has_lost_half and previous.object_count >= FEW_OBJECTS
    if is_implausible:
        sentence += (
            "; more than half of the objects or bytes is gone. Check whether this was deleted on "
            "purpose, and whether the inventory covers the same prefix as before"
        )
    numbers = {
        "objects_kept_share": round(objects_kept, 4),
        "bytes_kept_share": round(bytes_kept, 4),
    }
    return CheckResult(name="plausible", ok=not is_implausible, sentence=sentence, numbers=numbers)


def assess_missing(reconciliation: Reconciliation) -> CheckResult:
    """Whether every live file (a file that the newest version reads) is in the inventory.

    The check also fails if a table's log cannot be read.
    """
    tables = reconciliation.tables
    missing = [f"{table.table}/{name}" for table in tables for name in table.missing]
    sentence = f"{count_of(len(tables), 'table')}: every live file is in storage"
    if missing:
        sentence = (
            f"the inventory lacks {count_of(len(missing), 'live file')}: {_named(missing)}. Unless "
            "the inventory covers another prefix, restore the missing files from a backup"
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
    """Whether every live file in the inventory can be read without a restore.

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
