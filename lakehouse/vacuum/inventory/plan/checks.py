"""Reads the manifest of an inventory report, and checks an inventory.

Source: Amazon S3 user guide, "Locating your inventory list" (manifest.json, manifest.checksum).
"""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.reasons import CheckResult
from lakehouse.base.stored_objects import MAX_AGE_HOURS, SCAN, Inventory, plausible_ms
from lakehouse.base.text import HOUR_MS, count_of, either
from lakehouse.delta.commits import Commits
from lakehouse.vacuum.inventory.plan.reconcile import Reconciliation

_FORMATS = ("CSV", "ORC", "Parquet")
# What to do about a damaged report.
WAIT_FOR_NEXT = (
    "Wait for the next report, or use lakehouse inventory load --configuration lakehouse-scan"
)
NEEDED_COLUMNS = ("bucket", "key", "size", "last_modified_date")
# A report is refused if its time is more than this ahead of our clock, because it would count as
# fresh for too long. Clocks that are synchronized with a time server differ only by seconds.
_AHEAD_MS = 300_000
_MD5 = re.compile(r"[0-9a-f]{32}")
# Matches between the words of a name in CSV: LastModifiedDate -> Last_Modified_Date.
_WORD_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Names in a schema of ORC: struct<bucket:string,key:string>
_ORC = re.compile(r"([A-Za-z_]+):")
# Names in a schema of Parquet: message { required binary key (STRING); }
_PARQUET = re.compile(r"(?:required|optional)\s+\S+\s+(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """One data file of a report: its key in the destination bucket, its size and its MD5."""

    key: str
    size_bytes: int
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A complete report. `bucket` is the bucket that it lists.

    `columns` are in the report's order, spelled as in ORC and Parquet (`last_modified_date`).
    `created_ms` is the time at which the listing began. Objects written later may be missing.
    """

    name: str
    bucket: str
    created_ms: int
    file_format: str
    columns: tuple[str, ...]
    files: tuple[DataPart, ...]

    @property
    def configuration(self) -> str:
        """The report's inventory configuration. A report is named `<configuration>/<stamp>`."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """A report's name, the bucket that it lists, and the folder that its data files must be in."""

    name: str
    bucket: str
    folder: str


def parse_manifest(manifest: bytes, checksum: str, source: ReportSource, *, now_ms: int) -> Report:
    """The report that `manifest` describes. `checksum` is the content of `manifest.checksum`.

    Raises:
        Refused: the manifest is damaged or its checksum is wrong; or the report lists another
            bucket, has an unknown format or lacks a needed column; or it names no data files, a
            data file outside the folder, or an invalid MD5; or its time is more than five minutes
            in the future, or implausible (for example, in seconds instead of milliseconds).
    """
    where = f"inventory report {source.name}"
    actual = hashlib.md5(manifest, usedforsecurity=False).hexdigest()
    if checksum.strip() != actual:
        raise Refused(
            f"{where}: manifest.checksum contains {checksum.strip()[:40]!r}, but manifest.json has "
            f"MD5 {actual}. {WAIT_FOR_NEXT}"
        )
    try:
        report = _report(cast("Mapping[str, Any]", json.loads(manifest)), source.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"{where}: manifest.json cannot be parsed ({type(error).__name__}: {error}). "
            f"{WAIT_FOR_NEXT}"
        ) from error
    problem = _problem_of(report, source, now_ms) or _problem_of_files(report, source.folder)
    if problem:
        raise Refused(f"{where}: {problem}")
    return report


def _report(document: Mapping[str, Any], name: str) -> Report:
    file_format = str(document["fileFormat"])
    files = list[DataPart]()
    for file in cast("Sequence[Mapping[str, Any]]", document["files"]):
        key = str(file["key"])
        files.append(DataPart(key=key, size_bytes=int(file["size"]), md5=str(file["MD5checksum"])))
    return Report(
        name=name,
        bucket=str(document["sourceBucket"]),
        created_ms=int(document["creationTimestamp"]),
        file_format=file_format,
        columns=_columns(file_format, str(document["fileSchema"])),
        files=tuple(files),
    )


def _columns(file_format: str, schema: str) -> tuple[str, ...]:
    if file_format == "CSV":
        return tuple(_WORD_BOUNDARY.sub("_", name.strip()).lower() for name in schema.split(","))
    pattern = _ORC if file_format == "ORC" else _PARQUET
    return tuple(name.lower() for name in pattern.findall(schema))


def _problem_of(report: Report, source: ReportSource, now_ms: int) -> str:
    """Why the report cannot be used, and what to do; empty if there is no problem."""
    if report.bucket != source.bucket:
        return (
            f"the report lists bucket {report.bucket!r}. Use a report of bucket {source.bucket!r}"
        )
    if plausible_ms(report.created_ms, now_ms=now_ms) is None:
        return (
            f"creationTimestamp {report.created_ms} is not a plausible time in milliseconds (the "
            f"current time is {now_ms}), but may be in seconds or microseconds. {WAIT_FOR_NEXT}"
        )
    if report.created_ms > now_ms + _AHEAD_MS:
        ahead_minutes = (report.created_ms - now_ms) / 60_000
        return (
            f"the report's time is {ahead_minutes:.0f} min ahead of this machine's clock (limit "
            f"{_AHEAD_MS // 60_000} min). Synchronize this clock, and the clock of the program "
            "that writes the reports, with a time server"
        )
    if report.file_format not in _FORMATS:
        return f"the format is {report.file_format!r}. Use {either(_FORMATS)}"
    lacking = [name for name in NEEDED_COLUMNS if name not in report.columns]
    if lacking:
        return (
            f"the report has no column {' and no '.join(lacking)}. Add Size and LastModifiedDate "
            "to the inventory configuration"
        )
    return ""


def _problem_of_files(report: Report, folder: str) -> str:
    """As `_problem_of`, for the report's data files, which must be in `folder`."""
    if not report.files:
        return (
            "the manifest names no data files, although the bucket contains at least this report. "
            f"{WAIT_FOR_NEXT}"
        )
    for file in report.files:
        names = file.key.removeprefix(f"{folder}/").split("/")
        is_below = file.key.startswith(f"{folder}/") and {"", ".", ".."}.isdisjoint(names)
        if not is_below:
            return (
                f"the data file {file.key!r} is not a plain path below {folder}/. {WAIT_FOR_NEXT}"
            )
        if not _MD5.fullmatch(file.md5):
            return (
                f"the MD5checksum {file.md5!r} of {file.key} is not an MD5 in lower case. "
                f"{WAIT_FOR_NEXT}"
            )
    return ""


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
