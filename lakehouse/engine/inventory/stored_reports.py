"""Finds, verifies and reads complete inventory reports of our scans and of AWS.

**Safety properties** (tests in `engine/inventory/test_reports.py`)
- A report without `manifest.checksum` is incomplete and is skipped. A report with a wrong checksum,
  size or MD5 is refused, and no older report is used instead (except in `reports_by_day`).
- Nothing is written.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.classify import is_current
from lakehouse.core.inventory.expired_scans import stamp_ms
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.report_manifest import (
    Report,
    ReportSource,
    allowed_hours,
    parse_manifest,
)
from lakehouse.core.inventory.table_files import table_roots
from lakehouse.engine.inventory.report_rows import column_batches, stored_objects
from lakehouse.engine.store import Store

REPORTS = "_lakehouse/inventory"
# The configuration of our own reports.
SCAN = "lakehouse-scan"
# A report may lack files that were written in this period before the report's own time. For our own
# scans, it is a minute, because clocks differ and some stores round times down. For reports by AWS,
# it is an hour, because they are eventually consistent.
SETTLED_MS = 60_000
_SETTLED_ELSEWHERE_MS = 3_600_000
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


def stamps_of(store: Store, *, after: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Configuration and stamp of all reports, complete or not, newest first.

    `after` maps configurations to stamps. For these configurations, only later stamps are returned.
    One request lists the configurations, and one request per configuration lists its stamps,
    regardless of the number of data files.
    """
    base = f"{REPORTS}/{store.bucket}"
    after_stamps = after or {}
    stamps = list[tuple[str, str]]()
    for name in store.folders(base):
        for stamp in store.folders(f"{base}/{name}", after=after_stamps.get(name, "")):
            if _STAMP.fullmatch(stamp):
                stamps.append((name, stamp))
    return sorted(stamps, key=lambda each: (each[1], each[0]), reverse=True)


def hours_allowed(store: Store, report: Report) -> float:
    """The age in hours up to which a report is fresh: see `allowed_hours`.

    The limit of our own reports is fixed. For a report by AWS, storage is listed to find the
    previous report of its configuration, which shows whether reports are daily or weekly.
    """
    is_own = report.configuration == SCAN
    previous_ms = None
    if not is_own:
        stamps = [stamp for name, stamp in stamps_of(store) if name == report.configuration]
        earlier = [stamp for stamp in stamps if f"{report.configuration}/{stamp}" < report.name]
        previous_ms = stamp_ms(earlier[0]) if earlier else None
    return allowed_hours(report.created_ms, previous_ms, own=is_own)


def checksum_of(store: Store, configuration: str, stamp: str) -> str | None:
    """The checksum of a report's manifest; `None` while the report is incomplete."""
    name = f"{REPORTS}/{store.bucket}/{configuration}/{stamp}/manifest.checksum"
    try:
        return store.read(name).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def newest_report(
    store: Store,
    *,
    now_ms: int,
    configuration: str | None = None,
    max_age_hours: float | None = None,
    stamps: Sequence[tuple[str, str]] | None = None,
) -> Report | None:
    """The newest complete report of `configuration` (default: any configuration), or `None`.

    `stamps` is a recent result of `stamps_of`.

    Raises:
        Refused: the report is older than `max_age_hours`, or cannot be trusted.
    """
    for name, stamp in stamps_of(store) if stamps is None else stamps:
        if configuration not in (None, name):
            continue
        checksum = checksum_of(store, name, stamp)
        if checksum is not None:
            manifest, source = _manifest(store, name, stamp)
            return parse_manifest(
                manifest, checksum, source, now_ms=now_ms, max_age_hours=max_age_hours
            )
    return None


def reports_by_day(store: Store, *, since: date, now_ms: int) -> dict[date, Report]:
    """The newest complete report of each day since `since` (inclusive).

    A report whose manifest is damaged is skipped; an older report of the same day may replace it.
    """
    reports = dict[date, Report]()
    for name, stamp in stamps_of(store):
        day = date.fromisoformat(stamp[:10])
        checksum = None
        if day >= since and day not in reports:
            checksum = checksum_of(store, name, stamp)
        if checksum is not None:
            with suppress(Refused):
                manifest, source = _manifest(store, name, stamp)
                reports[day] = parse_manifest(manifest, checksum, source, now_ms=now_ms)
    return reports


def _manifest(store: Store, configuration: str, stamp: str) -> tuple[bytes, ReportSource]:
    """The manifest of a report that has a checksum, and the source that it must match."""
    folder = f"{REPORTS}/{store.bucket}/{configuration}"
    name = f"{folder}/{stamp}/manifest.json"
    source = ReportSource(
        name=f"{configuration}/{stamp}",
        bucket=store.bucket,
        folder=f"{store.prefix}{folder}/data",
    )
    problem = f"inventory report {name}: the manifest is missing, although its checksum exists"
    return _read(store, name, problem), source


def settled_ms(report: Report) -> int:
    """The report must contain every stored file that was written before this time."""
    margin_ms = SETTLED_MS if report.configuration == SCAN else _SETTLED_ELSEWHERE_MS
    return report.created_ms - margin_ms


def read_report(store: Store, report: Report, *, below: str = "") -> Iterator[StoredObject]:
    """Every row of a report, in order. Only one data file is in memory at a time.

    Rows whose key does not begin with `below` may be omitted.

    Raises:
        Refused: a data file does not match the manifest, or cannot be trusted.
    """
    for where, data in _verified(store, report):
        yield from stored_objects(report, data, where=where, below=below)


def read_keys(store: Store, report: Report, *, below: str = "") -> Iterator[str]:
    """The decoded keys of a report; much faster than `read_report`.

    Keys that do not begin with `below` may be omitted. Raises as `read_report`.
    """
    for where, data in _verified(store, report):
        for columns in column_batches(report, data, where=where, only=("key",), below=below):
            yield from columns["key"]


class ReportRows:
    """A report's rows below the lake's root, in a temporary file for the vacuums of many tables.

    `tables` are the folders, relative to the root, that contain a Delta log. The constructor reads
    the whole report, and raises as `read_report`.
    """

    def __init__(self, store: Store, report: Report) -> None:
        self.report = report
        self.tables = set[str]()
        # "" is a temporary file, which SQLite deletes when the connection is closed.
        self._rows = sqlite3.connect("", check_same_thread=False)
        self._rows.execute(
            "CREATE TABLE object (key TEXT, size_bytes, modified_ms, is_dir, is_latest, "
            "is_delete_marker, storage_class)"
        )
        self._rows.executemany("INSERT INTO object VALUES (?, ?, ?, ?, ?, ?, ?)", self._read(store))
        self._rows.execute("CREATE INDEX by_key ON object (key)")

    def below(self, folder: str) -> Iterator[StoredObject]:
        """The rows whose key begins with `folder`, which ends in `/`, sorted by key."""
        end = folder[:-1] + chr(ord("/") + 1)  # follows every key that begins with `folder`
        query = "SELECT * FROM object WHERE key >= ? AND key < ? ORDER BY key"
        for row in self._rows.execute(query, (folder, end)):
            key, size_bytes, modified_ms, is_dir, is_latest, is_marker, storage_class = row
            yield StoredObject(
                bucket=self.report.bucket,
                key=key,
                size_bytes=size_bytes,
                modified_ms=modified_ms,
                is_dir=bool(is_dir),
                is_latest=None if is_latest is None else bool(is_latest),
                is_delete_marker=None if is_marker is None else bool(is_marker),
                storage_class=storage_class,
            )

    def _read(self, store: Store) -> Iterator[tuple[object, ...]]:
        for each in read_report(store, self.report, below=store.prefix):
            if each.key.startswith(store.prefix):
                # A deleted log may still have noncurrent versions, but its folder is no table.
                if "/_delta_log/" in each.key and is_current(each):
                    self.tables |= table_roots([each.key.removeprefix(store.prefix)])
                yield (
                    each.key,
                    each.size_bytes,
                    each.modified_ms,
                    each.is_dir,
                    each.is_latest,
                    each.is_delete_marker,
                    each.storage_class,
                )


def _verified(store: Store, report: Report) -> Iterator[tuple[str, bytes]]:
    """The verified data files, each with its name for error messages."""
    for part in report.files:
        where = f"inventory report {report.name}: {part.key}"
        problem = f"{where} is named in the manifest, but does not exist"
        data = _read(store, part.key.removeprefix(store.prefix), problem)
        if len(data) != part.size_bytes:
            raise Refused(
                f"{where} has {len(data)} bytes, but {part.size_bytes} according to the manifest. "
                "Wait for the next report, or run lakehouse inventory scan"
            )
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != part.md5:
            raise Refused(
                f"{where} has MD5 {md5}, but {part.md5} according to the manifest. Wait for the "
                "next report, or run lakehouse inventory scan"
            )
        yield where, data


def _read(store: Store, name: str, problem: str) -> bytes:
    try:
        return store.read(name)
    except FileNotFoundError as error:
        raise Refused(
            f"{problem}. Wait for the next report, or run lakehouse inventory scan"
        ) from error
