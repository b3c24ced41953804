"""Reads the manifest of an inventory report, and refuses old, damaged or unsuitable reports.

Source: Amazon S3 user guide, "Locating your inventory list" (manifest.json, manifest.checksum).
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import plausible_ms
from lakehouse.core.text import either
from lakehouse.core.units import HOUR_MS

_FORMATS = ("CSV", "ORC", "Parquet")
NEEDED_COLUMNS = ("bucket", "key", "size", "last_modified_date")
# The age limit of a report for a vacuum, and the age up to which a report of our own daily scans is
# fresh: a day, and two hours for listing, queueing and loading.
MAX_REPORT_AGE_HOURS = 26.0
# The time that AWS may take to deliver a report. We saw a daily report that was complete only 23
# hours after its listing began. Source: Amazon S3 user guide, "Amazon S3 Inventory": reports are
# daily or weekly.
_AWS_DELIVERY_HOURS = 26.0
_DAY_HOURS = 24.0
_WEEK_HOURS = 168.0
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

    def age_hours(self, now_ms: int) -> float:
        """The hours since the listing began."""
        return (now_ms - self.created_ms) / HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """A report's name, the bucket that it lists, and the folder that its data files must be in."""

    name: str
    bucket: str
    folder: str


def parse_manifest(
    manifest: bytes,
    checksum: str,
    source: ReportSource,
    *,
    now_ms: int,
    max_age_hours: float | None = None,
) -> Report:
    """The report that `manifest` describes. `checksum` is the content of `manifest.checksum`.

    Raises:
        Refused: the manifest is damaged or its checksum is wrong; or the report lists another
            bucket, has an unknown format, lacks a needed column, or is older than `max_age_hours`;
            or it names no data files, a data file outside the folder, or an invalid MD5; or its
            time is more than five minutes in the future, or implausible (for example, in seconds
            instead of milliseconds).
    """
    name = source.name
    bucket = source.bucket
    folder = source.folder
    where = f"inventory report {name}"
    recorded = checksum.strip()
    actual = hashlib.md5(manifest, usedforsecurity=False).hexdigest()
    if recorded != actual:
        raise Refused(
            f"{where}: manifest.checksum contains {recorded[:40]!r}, but manifest.json has MD5 "
            f"{actual}. Wait for the next report, or run lakehouse inventory scan"
        )
    try:
        report = _report(cast("Mapping[str, Any]", json.loads(manifest)), name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"{where}: manifest.json cannot be parsed ({type(error).__name__}: {error}). Wait "
            "for the next report, or run lakehouse inventory scan"
        ) from error
    if report.bucket != bucket:
        raise Refused(
            f"{where}: the report lists bucket {report.bucket!r}. Use a report of bucket {bucket!r}"
        )
    if plausible_ms(report.created_ms, now_ms=now_ms) is None:
        raise Refused(
            f"{where}: creationTimestamp {report.created_ms} is not a plausible time in "
            f"milliseconds (the current time is {now_ms}), but may be in seconds or microseconds. "
            "Wait for the next report, or run lakehouse inventory scan"
        )
    if report.created_ms > now_ms + _AHEAD_MS:
        ahead_minutes = (report.created_ms - now_ms) / 60_000
        raise Refused(
            f"{where}: the report's time is {ahead_minutes:.0f} min ahead of this machine's clock "
            f"(limit {_AHEAD_MS // 60_000} min). Synchronize this clock, and the clock of the "
            "program that writes the reports, with a time server"
        )
    _check_content(report, folder, where)
    if max_age_hours is not None and report.age_hours(now_ms) > max_age_hours:
        raise Refused(
            f"{where}: the report is {report.age_hours(now_ms):.0f} h old (limit "
            f"{max_age_hours:g} h). Wait for the next report, or run lakehouse inventory scan"
        )
    return report


def allowed_hours(created_ms: int, previous_ms: int | None, *, own: bool) -> float:
    """The age in hours up to which a report is fresh.

    For our own scans (`own`), the limit is `MAX_REPORT_AGE_HOURS`. For a report from AWS, the limit
    is the interval since the previous report (at least a day, at most a week), plus the time that
    delivery may take.
    """
    if own:
        return MAX_REPORT_AGE_HOURS
    interval_hours = _DAY_HOURS
    if previous_ms is not None:
        interval_hours = (created_ms - previous_ms) / HOUR_MS
    return min(max(interval_hours, _DAY_HOURS), _WEEK_HOURS) + _AWS_DELIVERY_HOURS


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


def _check_content(report: Report, folder: str, where: str) -> None:
    if report.file_format not in _FORMATS:
        raise Refused(f"{where}: the format is {report.file_format!r}. Use {either(_FORMATS)}")
    lacking = [name for name in NEEDED_COLUMNS if name not in report.columns]
    if lacking:
        raise Refused(
            f"{where}: the report has no column {' and no '.join(lacking)}. Add Size and "
            "LastModifiedDate to the inventory configuration"
        )
    if not report.files:
        raise Refused(
            f"{where}: the manifest names no data files, although the bucket contains at least "
            "this report. Wait for the next report, or run lakehouse inventory scan"
        )
    for file in report.files:
        names = file.key.removeprefix(f"{folder}/").split("/")
        is_below = file.key.startswith(f"{folder}/") and {"", ".", ".."}.isdisjoint(names)
        if not is_below:
            raise Refused(
                f"{where}: the data file {file.key!r} is not a plain path below {folder}/. Wait "
                "for the next report, or run lakehouse inventory scan"
            )
        if not _MD5.fullmatch(file.md5):
            raise Refused(
                f"{where}: the MD5checksum {file.md5!r} of {file.key} is not an MD5 in lower case. "
                "Wait for the next report, or run lakehouse inventory scan"
            )
