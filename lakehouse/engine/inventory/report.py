"""Complete inventory reports in a store, found, verified and read row by row; ours and those of AWS alike.

Safety properties:
- A report without its `manifest.checksum` is not complete and is passed over; one whose checksum, sizes or MD5s are wrong is
  refused, never replaced by an older one in silence.
- Nothing is written.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse.core.errors import Refused
from lakehouse.core.inventory import DataPart, Manifest, StoredObject, parse_manifest
from lakehouse.engine.inventory.rows import column_batches, stored_objects
from lakehouse.engine.store import Store

REPORTS = "_lakehouse/inventory"
_CHECKSUM = re.compile(r"(?P<configuration>[^/]+)/(?P<stamp>\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z)/manifest\.checksum")


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


def reports_of(store: Store, bucket: str, *, folder: str = REPORTS) -> list[tuple[str, str]]:
    """Configuration and stamp of the complete reports of a bucket, newest first."""
    base = f"{folder}/{bucket}/"
    matches = (_CHECKSUM.fullmatch(file.name.removeprefix(base)) for file in store.list(base))
    found = [(match["configuration"], match["stamp"]) for match in matches if match]
    return sorted(found, key=lambda each: (each[1], each[0]), reverse=True)


def newest_report(
    store: Store,
    bucket: str,
    *,
    now_ms: int,
    folder: str = REPORTS,
    configuration: str | None = None,
    max_age_hours: float | None = None,
) -> Report | None:
    """The newest complete report of a bucket (of one `configuration`, if given); `None` where there is none.

    Raises:
        Refused: see `parse_manifest`.
    """
    for found, stamp in reports_of(store, bucket, folder=folder):
        if configuration in (None, found):
            base = f"{folder}/{bucket}/{found}"
            manifest = parse_manifest(
                store.read(f"{base}/{stamp}/manifest.json"),
                store.read(f"{base}/{stamp}/manifest.checksum").decode("ascii", "replace"),
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
