"""Complete inventory reports in a store, found, verified and read row by row; ours and those of AWS alike.

Safety properties:
- A report without its `manifest.checksum` is not complete and is passed over; one whose checksum, sizes or MD5s are wrong is
  refused, never replaced by an older one in silence.
- Nothing is written.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.report_manifest import DataPart, Manifest, parse_manifest
from lakehouse.engine.inventory.parse_report import column_batches, stored_objects
from lakehouse.engine.store import Store

REPORTS = "_lakehouse/inventory"
STAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A complete report: where it lies in the store, and what its manifest says."""

    folder: str
    configuration: str
    stamp: str
    manifest: Manifest

    @property
    def name(self) -> str:
        """How to call it: configuration and stamp."""
        return f"{self.configuration}/{self.stamp}"


def stamps_of(store: Store, bucket: str, *, after: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Configuration and stamp of the reports of a bucket, complete or not, newest first; by configuration those after a stamp alone.

    It asks for the names of folders: one listing per configuration and one for all, whatever number of data files there is.
    """
    base, known = f"{REPORTS}/{bucket}", after or {}
    names = store.folders(base)
    found = [
        (name, stamp) for name in names for stamp in store.folders(f"{base}/{name}", after=known.get(name, "")) if STAMP.fullmatch(stamp)
    ]
    return sorted(found, key=lambda each: (each[1], each[0]), reverse=True)


def checksum_of(store: Store, bucket: str, configuration: str, stamp: str) -> str | None:
    """What a report's manifest.checksum says; `None` where there is none, since the report is not complete yet."""
    try:
        return store.read(f"{REPORTS}/{bucket}/{configuration}/{stamp}/manifest.checksum").decode("ascii", "replace")
    except FileNotFoundError:
        return None


def newest_report(
    store: Store, bucket: str, *, now_ms: int, configuration: str | None = None, max_age_hours: float | None = None
) -> Report | None:
    """The newest complete report of a bucket (of one `configuration`, if given); `None` where there is none.

    Raises:
        Refused: see `parse_manifest`.
    """
    for found, stamp in stamps_of(store, bucket):
        if configuration not in (None, found) or (checksum := checksum_of(store, bucket, found, stamp)) is None:
            continue
        base = f"{REPORTS}/{bucket}/{found}"
        manifest = parse_manifest(
            _read_manifest(store, f"{base}/{stamp}/manifest.json"),
            checksum,
            name=f"{found}/{stamp}",
            source_bucket=bucket,
            folder=f"{store.prefix}{base}/data",
            now_ms=now_ms,
            max_age_hours=max_age_hours,
        )
        return Report(folder=base, configuration=found, stamp=stamp, manifest=manifest)
    return None


def read_report(store: Store, report: Report) -> Iterator[StoredObject]:
    """Every row of a report, in its order; one data file is held at a time.

    Raises:
        Refused: a data file is missing, has another size or MD5 than the manifest says, or rows that are another bucket's or in no
            unit of time.
    """
    for part in report.manifest.files:
        data = _verified(store, report, part)
        yield from stored_objects(report.manifest, data, where=f"inventory report {report.name}: {part.key}")


def read_keys(store: Store, report: Report) -> Iterator[str]:
    """The decoded keys alone, which is much faster; errors as `read_report`."""
    for part in report.manifest.files:
        data = _verified(store, report, part)
        for columns in column_batches(report.manifest, data, where=f"inventory report {report.name}: {part.key}", only=("key",)):
            yield from columns["key"]


def _read_manifest(store: Store, name: str) -> bytes:
    try:
        return store.read(name)
    except FileNotFoundError as error:
        raise Refused(
            f"inventory report {name}: its checksum is there and the manifest is not; wait for the next report, or scan"
        ) from error


def _verified(store: Store, report: Report, part: DataPart) -> bytes:
    where = f"inventory report {report.name}: {part.key}"
    try:
        data = store.read(part.key.removeprefix(store.prefix))
    except FileNotFoundError as error:
        raise Refused(f"{where} is named in the manifest and is not there; wait for the next report, or scan") from error
    if len(data) != part.size_bytes:
        raise Refused(f"{where} has {len(data)} bytes, the manifest says {part.size_bytes}; wait for the next report, or scan")
    if (md5 := hashlib.md5(data, usedforsecurity=False).hexdigest()) != part.md5:
        raise Refused(f"{where} has MD5 {md5}, the manifest says {part.md5}; wait for the next report, or scan")
    return data
