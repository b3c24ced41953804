"""Checks this process's access to the lake's storage: region, rights, conditional writes and clock.

Everything is written below `_lakehouse/doctor/<id>/`, and deleted at the end. On S3, each run also
deletes the files that a killed run wrote at least an hour before.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import environ
from pathlib import Path
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.s3_address import s3_region
from lakehouse.base.text import count_of
from lakehouse.base.units import HOUR_MS
from lakehouse.doctor.machine_checks import Examination, nearest_folder
from lakehouse.doctor.plan import Verdict, clock_verdict, region_verdict
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, S3Store
from lakehouse.store.s3_client import PERMISSIONS, completes_conditionally, translated_s3

_FOLDER = "_lakehouse/doctor"
_DELETE_BATCH = 1_000
WRITTEN = b"written by lakehouse doctor\n"


@contextmanager
def scratch(lake: Lake) -> Iterator[str]:
    """Yields the name of a new folder in the lake, and deletes the folder afterwards.

    On a disk, empty folders above it that did not exist before are removed, too.
    """
    root = Path(lake.settings.root)
    existing = nearest_folder(root / _FOLDER) if isinstance(lake.store, DiskStore) else None
    folder = f"{_FOLDER}/{uuid4().hex}"
    try:
        yield folder
    finally:
        with suppress(LakehouseError):  # the check `delete` reports this; the next run tries again
            _delete_all(lake, folder)
        if existing is not None:
            _remove_created(root / _FOLDER, existing)


def check_storage(examination: Examination, lake: Lake, folder: str) -> None:
    """Checks what this process may do with the lake's storage."""
    store = lake.store
    examination.check("storage", lambda: _reach(lake))
    if isinstance(store, S3Store):
        examination.check("region", lambda: _region(store), after="storage")
    examination.check("write", lambda: _write(lake, folder), after="storage")
    examination.check("read", lambda: _read(lake, folder), after="write")
    examination.check("clock", lambda: _clock(lake, folder), after="write")
    examination.check("conditional writes", lambda: _conditional(lake, folder), after="write")
    examination.check("delete", lambda: _delete(lake, folder), after="write")


def _reach(lake: Lake) -> Verdict:
    store = lake.store
    if isinstance(store, S3Store):
        count = len(store.folders(""))
        return f"{lake.settings.root} can be listed ({count_of(count, 'folder')})"
    root = Path(lake.settings.root)
    folder = nearest_folder(root)
    if not folder.is_dir():
        raise Refused(f"{folder} is a file. Use a folder for LAKEHOUSE_ROOT")
    return f"{root} exists" if folder == root else f"{root} does not exist yet"


def _region(store: S3Store) -> Verdict:
    with translated_s3(f"storage: cannot find the region of {store.bucket}", "list"):
        head = store.client.head_bucket(Bucket=store.bucket)
    region = s3_region(environ)
    configured = store.client.meta.region_name if region is None else region
    return region_verdict(store.bucket, head.get("BucketRegion"), configured)


def _write(lake: Lake, folder: str) -> Verdict:
    lake.store.put(f"{folder}/file.txt", WRITTEN)
    return f"files can be written below {lake.settings.root}"


def _read(lake: Lake, folder: str) -> Verdict:
    if lake.store.read(f"{folder}/file.txt") != WRITTEN:
        raise Refused(
            f"{folder}/file.txt does not contain what was just written. Use storage that returns "
            "new content immediately after a write"
        )
    if [file.name for file in lake.store.list(folder)] != [f"{folder}/file.txt"]:
        raise Refused(
            f"a listing of {folder} does not show the file that was just written. Use storage "
            "whose listings are consistent"
        )
    return "a written file can be read and listed immediately"


def _clock(lake: Lake, folder: str) -> Verdict:
    written = lake.store.stat(f"{folder}/file.txt")
    assert written is not None
    return clock_verdict(now_ms() - written.modified_ms)


def _conditional(lake: Lake, folder: str) -> Verdict:
    store = lake.store
    name = f"{folder}/taken"
    if isinstance(store, S3Store):
        key = store.prefix + name
        is_honoured = store.honours_conditions(name)
        if is_honoured:
            # S3A uploads a large commit in parts.
            is_honoured = completes_conditionally(store.client, store.bucket, key)
    else:
        is_created = store.put_if_absent(name, b"")
        is_overwritten = is_created and store.put_if_absent(name, b"")
        is_honoured = not is_overwritten
    if not is_honoured:
        raise Refused(
            f"the storage of {lake.settings.root} overwrites an existing file although the request "
            "forbids it. Use AWS S3, or a server with conditional writes (PutObject and "
            "CompleteMultipartUpload with If-None-Match: *)"
        )
    return "the storage creates a file only if it is absent"


def _delete(lake: Lake, folder: str) -> Verdict:
    name = f"{folder}/taken"
    failed = lake.store.delete_each([name])
    if failed:
        raise Refused(
            f"{name} cannot be deleted: {failed[name]}. Grant {PERMISSIONS['delete']}, then delete "
            f"{lake.settings.root}/{folder} by hand"
        )
    if lake.store.keeps_versions():
        return "files can be deleted; the bucket keeps old versions of them, which cost storage"
    return "files can be deleted"


def _delete_all(lake: Lake, folder: str) -> None:
    """Deletes the folder; on S3, also Spark's folder markers and old files of other runs."""
    store = lake.store
    if not isinstance(store, S3Store):
        shutil.rmtree(Path(lake.settings.root, folder), ignore_errors=True)
        return
    prefix = store.prefix + folder
    old_ms = now_ms() - HOUR_MS
    keys = list[str]()
    for each in store.walk(_FOLDER):
        is_old = each.modified_ms is not None and each.modified_ms < old_ms
        if is_old or each.key.startswith(prefix):
            keys.append(each.key)
    for start in range(0, len(keys), _DELETE_BATCH):
        batch = [{"Key": key} for key in keys[start : start + _DELETE_BATCH]]
        with translated_s3(f"storage: cannot delete {prefix}", "delete"):
            store.client.delete_objects(Bucket=store.bucket, Delete={"Objects": batch})


def _remove_created(folder: Path, existing: Path) -> None:
    """Removes empty folders from `folder` up to, but not including, `existing`."""
    for each in (folder, *folder.parents):
        if each == existing:
            return
        with suppress(OSError):
            each.rmdir()
