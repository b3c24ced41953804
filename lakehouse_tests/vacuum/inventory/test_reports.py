"""Reports of AWS in every format; each fault of a report planted, and refused by name."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import StoredObject
from lakehouse.store import Store
from lakehouse.vacuum.inventory.stored_reports import REPORTS, newest_report, read_report
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.reports import data_file, row_of, write_report

in_each_format = pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
NOW = now_ms()
HOUR = 3_600_000
ODD = ["d=a b/x", "d=100%/x", "d=a%2Fb/x", "d=ä€😀/x", "d=a+b/x", "d=a%20b/x"]
ODD += ["d=#?&=/x", "d='\"/,x", "plain"]


def rows_of(store: Store, *, now_ms: int = NOW, **more: Any) -> list[StoredObject]:
    report = newest_report(store, now_ms=now_ms, **more)
    assert report is not None
    return sorted(read_report(store, report), key=lambda row: row.key)


def walked(store: Store) -> list[StoredObject]:
    return sorted(store.walk(""), key=lambda each: each.key)


def version(key: str, number: int | None, size: int, **more: bool) -> StoredObject:
    each = StoredObject(bucket="local", key=key, size_bytes=size, modified_ms=NOW - HOUR - 1)
    each = replace(each, storage_class="INTELLIGENT_TIERING", archive_tier="ARCHIVE")
    kind = {"is_latest": True, "is_delete_marker": False, "is_dir": False, **more}
    return replace(each, version_id=number and f"v{number}", **kind)


VERSIONS = [
    version("a b+c%2F", 2, 7),
    version("a b+c%2F", 1, 9, is_latest=False),
    version("gone", None, 0, is_delete_marker=True),
    version("folder/", 3, 0, is_dir=True),
    version("ends/", 4, 1),
]


@in_each_format
def test_a_report_of_any_format_is_the_listing_to_the_row(store: Store, file_format: str) -> None:
    for name in ODD:
        store.put(name, name.encode())
    listing = walked(store)
    rows = [row_of(each) for each in listing]
    if store.prefix:  # a report lists the bucket, of which the lake is a part
        rows = [*rows, rows[0] | {"key": "some/lakes/x"}]
    write_report(store, rows, created_ms=NOW, file_format=file_format)
    before = walked(store)
    assert (rows_of(store), walked(store)) == (listing, before)


@in_each_format
def test_the_zone_of_the_machine_that_reads_a_report_changes_no_time(
    file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.put("x", b"1")
    listing = walked(store)
    write_report(store, [row_of(each) for each in listing], created_ms=NOW, file_format=file_format)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
    time.tzset()
    try:
        assert time.timezone == -14 * 3_600
        assert rows_of(store) == listing
    finally:
        monkeypatch.undo()
        time.tzset()


@in_each_format
def test_every_version_and_every_column_is_read(file_format: str) -> None:
    store = MemoryStore()
    rows = [row_of(each, versions=True) for each in VERSIONS]
    write_report(store, rows, created_ms=NOW, file_format=file_format, files=1)
    report = newest_report(store, now_ms=NOW)
    assert report is not None and list(read_report(store, report)) == VERSIONS


def one(key: str = "x", **more: Any) -> dict[str, Any]:
    each = StoredObject(bucket="local", key=key, size_bytes=1, modified_ms=NOW - HOUR)
    return row_of(each) | more


def test_the_newest_complete_report_comes_first_and_an_unfinished_one_is_not_read() -> None:
    store = MemoryStore()
    for name, hours, file_format, more in (
        ("old", 5, "CSV", {"configuration": "weekly"}),
        ("new", 3, "ORC", {}),
        ("unfinished", 1, "Parquet", {"complete": False}),
    ):
        at = NOW - hours * HOUR
        write_report(store, [one(name)], created_ms=at, file_format=file_format, **more)
    assert [row.key for row in rows_of(store)] == ["new"]
    assert [row.key for row in rows_of(store, configuration="weekly")] == ["old"]
    assert newest_report(store, now_ms=NOW, configuration="hourly") is None


def _cut(store: Store, name: str) -> None:
    store.put(name, store.read(name)[:-1])


def _flip(store: Store, name: str) -> None:
    data = store.read(name)
    store.put(name, data[:-1] + bytes([data[-1] ^ 1]))


def _delete(store: Store, name: str) -> None:
    store.delete([name])


HARMS = [(_delete, "does not exist"), (_cut, "according to the manifest"), (_flip, "has MD5")]


@pytest.mark.parametrize(("harm", "said"), HARMS)
@pytest.mark.parametrize("file_format", ["CSV", "Parquet"])
def test_a_data_file_that_is_not_the_manifest_s_is_refused(
    harm: Callable[[Store, str], None], said: str, file_format: str
) -> None:
    store = MemoryStore()
    write_report(store, [one("a"), one("b")], created_ms=NOW, file_format=file_format)
    [_, second] = [file.name for file in store.list(REPORTS) if "/data/" in file.name]
    harm(store, second)
    with pytest.raises(Refused, match=said):
        rows_of(store)


@in_each_format
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (one(bucket="another"), "rows of bucket 'another'"),
        (one(last_modified_date=(NOW - HOUR) // 1000), "Times may be in seconds; use milliseconds"),
        (one(size=None), "has size None"),
        (one(size=-1), "has size -1"),
    ],
)
def test_untrustworthy_rows_are_refused(file_format: str, row: dict[str, Any], said: str) -> None:
    store = MemoryStore()
    write_report(store, [row, row], created_ms=NOW, file_format=file_format)
    with pytest.raises(Refused, match=said):
        rows_of(store)


@in_each_format
@pytest.mark.parametrize("column", ["size", "last_modified_date"])
def test_a_report_without_a_column_that_is_needed_is_refused(file_format: str, column: str) -> None:
    store = MemoryStore()
    row = one()
    del row[column]
    write_report(store, [row, row], created_ms=NOW, file_format=file_format)
    message = f"has no column {column}\\. Add Size and LastModifiedDate to"
    with pytest.raises(Refused, match=message):
        rows_of(store)


def test_a_single_time_that_cannot_be_is_unknown() -> None:
    store = MemoryStore()
    rows = [one("a"), one("b", last_modified_date=0)]
    write_report(store, rows, created_ms=NOW, file_format="Parquet", files=1)
    assert [row.modified_ms for row in rows_of(store)] == [NOW - HOUR, None]


@in_each_format
def test_a_data_file_of_another_format_is_refused(file_format: str) -> None:
    store = MemoryStore()
    data = data_file([one()], list(one()), "ORC" if file_format == "Parquet" else "Parquet")
    key, md5 = f"{REPORTS}/local/daily/data/x", hashlib.md5(data).hexdigest()
    store.put(key, data)
    manifest = {"files": [{"key": key, "size": len(data), "MD5checksum": md5}]}
    named: dict[str, Any] = {"files": 1, "manifest": manifest}
    write_report(store, [one()], created_ms=NOW, file_format=file_format, **named)
    with pytest.raises(Refused, match=f"cannot be read as {file_format}"):
        rows_of(store)


def test_a_wrong_checksum_is_refused_and_no_older_report_takes_its_place() -> None:
    store = MemoryStore()
    write_report(store, [one("old")], created_ms=NOW - HOUR, file_format="CSV")
    manifest = write_report(store, [one("new")], created_ms=NOW, file_format="CSV")
    _flip(store, manifest)
    with pytest.raises(Refused, match=r"manifest\.checksum contains"):
        rows_of(store)
