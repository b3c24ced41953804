"""Finds, verifies and reads complete inventory reports of AWS.

**Safety properties** (tests in `engine/inventory/test_reports.py`)
- A report without `manifest.checksum` is incomplete and is skipped. A report with a wrong checksum,
  size or MD5 is refused, and no older report is used instead.
- Nothing is written.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import SCAN, StoredObject
from lakehouse.core.inventory.report_manifest import (
    WAIT_FOR_NEXT,
    Report,
    ReportSource,
    parse_manifest,
)
from lakehouse.engine.inventory.report_rows import stored_objects
from lakehouse.engine.store import Store

REPORTS = "_lakehouse/inventory"
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


def stamps_of(store: Store, *, after: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Configuration and stamp of all reports, complete or not, newest first.

    Scans that earlier versions of this program stored as reports are omitted.

    `after` maps configurations to stamps. For these configurations, only later stamps are returned.
    One request lists the configurations, and one request per configuration lists its stamps,
    regardless of the number of data files.
    """
    base = f"{REPORTS}/{store.bucket}"
    after_stamps = after or {}
    stamps = list[tuple[str, str]]()
    for name in store.folders(base):
        if name == SCAN:
            continue
        for stamp in store.folders(f"{base}/{name}", after=after_stamps.get(name, "")):
            if _STAMP.fullmatch(stamp):
                stamps.append((name, stamp))
    return sorted(stamps, key=lambda each: (each[1], each[0]), reverse=True)


def checksum_of(store: Store, configuration: str, stamp: str) -> str | None:
    """The checksum of a report's manifest; `None` while the report is incomplete."""
    name = f"{REPORTS}/{store.bucket}/{configuration}/{stamp}/manifest.checksum"
    try:
        return store.read(name).decode("ascii", "replace")
    except FileNotFoundError:
        return None


def newest_report(store: Store, *, now_ms: int, configuration: str | None = None) -> Report | None:
    """The newest complete report of `configuration` (default: any configuration), or `None`.

    Raises:
        Refused: the report cannot be trusted.
    """
    for name, stamp in stamps_of(store):
        if configuration not in (None, name):
            continue
        checksum = checksum_of(store, name, stamp)
        if checksum is not None:
            manifest, source = _manifest(store, name, stamp)
            return parse_manifest(manifest, checksum, source, now_ms=now_ms)
    return None


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


def read_report(store: Store, report: Report) -> Iterator[StoredObject]:
    """Every row of a report below the store's root. One data file at a time is in memory.

    Raises:
        Refused: a data file does not match the manifest, or cannot be trusted.
    """
    for where, data in _verified(store, report):
        for each in stored_objects(report, data, where=where, below=store.prefix):
            if each.key.startswith(store.prefix):
                yield each


def _verified(store: Store, report: Report) -> Iterator[tuple[str, bytes]]:
    """The verified data files, each with its name for error messages."""
    for part in report.files:
        where = f"inventory report {report.name}: {part.key}"
        problem = f"{where} is named in the manifest, but does not exist"
        data = _read(store, part.key.removeprefix(store.prefix), problem)
        if len(data) != part.size_bytes:
            raise Refused(
                f"{where} has {len(data)} bytes, but {part.size_bytes} according to the manifest. "
                f"{WAIT_FOR_NEXT}"
            )
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != part.md5:
            raise Refused(
                f"{where} has MD5 {md5}, but {part.md5} according to the manifest. {WAIT_FOR_NEXT}"
            )
        yield where, data


def _read(store: Store, name: str, problem: str) -> bytes:
    try:
        return store.read(name)
    except FileNotFoundError as error:
        raise Refused(f"{problem}. {WAIT_FOR_NEXT}") from error
