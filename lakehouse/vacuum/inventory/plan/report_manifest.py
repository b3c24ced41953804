"""Reads the manifest of an inventory report, and refuses old, damaged or unsuitable reports.

Source: Amazon S3 user guide, "Locating your inventory list" (manifest.json, manifest.checksum).
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import plausible_ms
from lakehouse.base.text import either

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
