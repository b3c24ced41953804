"""Our own scan, and reports of every format, read back; each fault of a report planted, and refused by name."""

import hashlib
import io
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.core.delta.paths import vector_file
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory import scan as scan_module
from lakehouse.engine.inventory.reconcile_lake import fresh_report, known_report
from lakehouse.engine.inventory.report_rows import column_batches
from lakehouse.engine.inventory.reports_table import _clear
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.inventory.stored_reports import (
    REPORTS,
    SCAN,
    ReportRows,
    checksum_of,
    newest_report,
    read_keys,
    read_report,
    stamps_of,
)
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import DiskStore, Store
from lakehouse_tests.engine.reports import data_file, reconciled, row_of, write_report
from lakehouse_tests.engine.vacuums import table_of
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

NOW = now_ms()
HOUR, DAY = 3_600_000, 86_400_000
ODD = [
    "d=a b/x",
    "d=100%/x",
    "d=a%2Fb/x",
    "d=ä€😀/x",
    "d=a+b/x",
    "d=a%20b/x",
    "d=#?&=/x",
    "d='\"/,x",
    "plain",
]


def rows_of(store: Store, *, now_ms: int = NOW, **more: Any) -> list[StoredObject]:
    report = newest_report(store, now_ms=now_ms, **more)
    assert report is not None
    rows = list(read_report(store, report))
    assert [row.key for row in rows] == list(read_keys(store, report))
    return sorted(rows, key=lambda row: row.key)


def walked(store: Store) -> list[StoredObject]:
    return sorted(store.walk(""), key=lambda each: each.key)


def test_a_scan_is_a_report_that_holds_the_listing_to_the_row(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "FILE_ROWS", 4)
    for name in ODD:
        store.put(name, name.encode())
    listing = walked(store)
    heard: list[int] = []
    scanned = scan(store, now_ms=NOW, progress=heard.append)
    assert rows_of(store) == listing
    assert (scanned.object_count, scanned.size_bytes, heard) == (
        len(ODD),
        sum(len(name.encode()) for name in ODD),
        [len(ODD)],
    )


def test_a_scan_lies_in_storage_as_aws_lays_it_out(store: Store) -> None:
    store.put("x", b"1")
    scanned = scan(store, now_ms=NOW)
    base = f"{REPORTS}/{store.bucket}/{SCAN}"
    began = datetime.fromtimestamp(NOW / 1000, tz=UTC)
    stamp, partition = f"{base}/{began:%Y-%m-%dT%H-%MZ}", f"{base}/hive/dt={began:%Y-%m-%d-%H-%M}"
    data = scanned.files[0].key.removeprefix(store.prefix)
    assert [file.name for file in store.list(base)] == sorted(
        [f"{stamp}/manifest.checksum", f"{stamp}/manifest.json", data, f"{partition}/symlink.txt"]
    )
    text = store.read(f"{stamp}/manifest.json")
    document = json.loads(text)
    assert document["destinationBucket"] == f"arn:aws:s3:::{store.bucket}" and document[
        "creationTimestamp"
    ] == str(NOW)
    assert (
        store.read(f"{stamp}/manifest.checksum") == hashlib.md5(text).hexdigest().encode() + b"\n"
    )
    assert store.read(f"{partition}/symlink.txt").decode().endswith(store.prefix + data)


def test_an_empty_lake_is_scanned_too(store: Store) -> None:
    scan(store, now_ms=NOW)
    assert rows_of(store) == []


def test_two_scans_of_one_minute_are_two_reports_the_later_one_newest(store: Store) -> None:
    scan(store, now_ms=NOW)
    store.put("x", b"1")
    scan(store, now_ms=NOW + 1)
    assert len(stamps_of(store)) == 2
    assert "x" in {row.key.removeprefix(store.prefix) for row in rows_of(store)}


def test_what_killed_writes_left_beside_reports_and_rows_goes_when_it_is_old(
    tmp_path: Path,
) -> None:
    lake = open_lake(parse_settings({"LAKEHOUSE_REPLAY": "off"}, base=tmp_path))
    root, name = Path(lake.settings.root), f".{uuid4().hex}.lakehouse-put"
    ages = {
        f"{SCAN}/data": 16,
        f"{SCAN}/2026-01-01T00-00Z": 16,
        f"{SCAN}/hive": 14,
        "daily/data": 16,
    }
    for folder, days in ages.items():
        path = root / REPORTS / "local" / folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
        os.utime(path, ns=(0, (NOW - days * DAY) * 1_000_000))
    scan(lake.store, now_ms=NOW)
    left = {str(path.relative_to(root / REPORTS / "local").parent) for path in root.rglob(name)}
    assert left == {f"{SCAN}/hive", "daily/data"}
    staged = root / REPORTS / "_loading" / "local" / name
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"half")
    others = {path for path in root.rglob("*") if path.is_file() and path != staged}
    _clear(lake)
    assert {path for path in root.rglob("*") if path.is_file()} == others


def test_old_scans_go_with_the_next_one_and_reports_of_others_stay(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "lake")
    store.put("x", b"1")
    scan(store, now_ms=NOW - 20 * DAY)
    write_report(store, [one()], created_ms=NOW - 20 * DAY, file_format="CSV")
    store.put(
        f"{REPORTS}/local/{SCAN}/data/00000000-0000-0000-0000-000000000000.parquet",
        b"left by a scan that was killed",
    )
    for file in store.list(""):
        os.utime(store.root / file.name, ns=(0, (NOW - 20 * DAY) * 1_000_000))
    theirs = store.list(f"{REPORTS}/local/daily")
    name = scan(store, now_ms=NOW).manifest_name
    assert store.list(f"{REPORTS}/local/daily") == theirs
    assert [each[0] for each in stamps_of(store) if checksum_of(store, *each)] == [SCAN, "daily"]
    assert len(store.list(f"{REPORTS}/local/{SCAN}")) == 4 and store.read(name)
    assert "x" in [row.key for row in rows_of(store)]


@pytest.mark.parametrize(
    "killed_at", ["parquet", "symlink.txt", "manifest.json", "manifest.checksum"]
)
def test_a_scan_killed_in_the_middle_leaves_no_complete_report(killed_at: str) -> None:
    class Dying(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            if name.endswith(killed_at):
                raise KeyboardInterrupt
            super().put(name, data)

        def put_if_absent(self, name: str, data: bytes) -> bool:
            if name.endswith(killed_at):
                raise KeyboardInterrupt
            return super().put_if_absent(name, data)

    store = Dying()
    with pytest.raises(KeyboardInterrupt):
        scan(store, now_ms=NOW)
    assert newest_report(store, now_ms=NOW) is None
    killed_at = "nothing"
    scan(store, now_ms=NOW)
    assert newest_report(store, now_ms=NOW) is not None


def test_a_scan_holds_little_of_what_it_lists() -> None:
    class Endless(MemoryStore):
        def walk(self, prefix: str) -> Any:
            for number in range(self.count):
                key = f"bronze/table/day={number % 365}/part-{number:05}.parquet"
                yield StoredObject(bucket="local", key=key, size_bytes=number, modified_ms=NOW)

        count = 0

    def peak(count: int) -> int:
        store = Endless()
        store.count = count
        tracemalloc.start()
        scan(store, now_ms=NOW)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(40_000) < 1.3 * peak(20_000)


VERSIONS = [
    (
        "a b+c%2F",
        {"is_latest": True, "is_delete_marker": False, "version_id": "v2", "size_bytes": 7},
    ),
    (
        "a b+c%2F",
        {"is_latest": False, "is_delete_marker": False, "version_id": "v1", "size_bytes": 9},
    ),
    ("gone", {"is_latest": True, "is_delete_marker": True, "version_id": None, "size_bytes": 0}),
    (
        "folder/",
        {
            "is_latest": True,
            "is_delete_marker": False,
            "version_id": "v3",
            "size_bytes": 0,
            "is_dir": True,
        },
    ),
    ("ends/", {"is_latest": True, "is_delete_marker": False, "version_id": "v4", "size_bytes": 1}),
]


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
def test_a_report_of_any_format_gives_the_listing_to_the_row(
    store: Store, file_format: str
) -> None:
    for name in ODD:
        store.put(name, name.encode())
    listing = walked(store)
    write_report(store, [row_of(each) for each in listing], created_ms=NOW, file_format=file_format)
    before = walked(store)
    assert (rows_of(store), walked(store)) == (listing, before)


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
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


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
def test_every_version_and_every_column_is_read(file_format: str) -> None:
    store = MemoryStore()
    more = {
        "storage_class": "INTELLIGENT_TIERING",
        "archive_tier": "ARCHIVE",
        "encryption": "SSE-S3",
        "multipart": True,
    }
    objects = [
        StoredObject(
            bucket="local",
            key=key,
            modified_ms=NOW - HOUR - 1,
            checksum_algorithm="SHA256",
            owner="me",
            **more,
            **fields,
        )
        for key, fields in VERSIONS
    ]
    write_report(
        store,
        [row_of(each, versions=True) for each in objects],
        created_ms=NOW,
        file_format=file_format,
        files=1,
    )
    report = newest_report(store, now_ms=NOW)
    assert report is not None and list(read_report(store, report)) == objects


def one(key: str = "x", **more: Any) -> dict[str, Any]:
    return (
        row_of(StoredObject(bucket="local", key=key, size_bytes=1, modified_ms=NOW - HOUR)) | more
    )


def test_the_newest_complete_report_comes_first_and_an_unfinished_one_is_not_read() -> None:
    store = MemoryStore()
    write_report(
        store, [one("old")], created_ms=NOW - 5 * HOUR, file_format="CSV", configuration="weekly"
    )
    write_report(store, [one("new")], created_ms=NOW - 3 * HOUR, file_format="ORC")
    write_report(
        store, [one("unfinished")], created_ms=NOW - HOUR, file_format="Parquet", complete=False
    )
    assert [row.key for row in rows_of(store)] == ["new"]
    assert [row.key for row in rows_of(store, configuration="weekly")] == ["old"]
    assert newest_report(store, now_ms=NOW, configuration="hourly") is None


def _cut(store: Store, name: str) -> None:
    store.put(name, store.read(name)[:-1])


def _flip(store: Store, name: str) -> None:
    data = store.read(name)
    store.put(name, data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda store, name: store.delete([name]), "does not exist"),
        (_cut, "according to the manifest"),
        (_flip, "has MD5"),
    ],
)
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


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (one(bucket="another"), "rows of bucket 'another'"),
        (one(last_modified_date=(NOW - HOUR) // 1000), "Times may be in seconds; use milliseconds"),
        (one(size=None), "has size None"),
        (one(size=-1), "has size -1"),
    ],
)
def test_rows_that_cannot_be_trusted_are_refused(
    file_format: str, row: dict[str, Any], said: str
) -> None:
    store = MemoryStore()
    write_report(store, [row, row], created_ms=NOW, file_format=file_format)
    with pytest.raises(Refused, match=said):
        rows_of(store)


def test_a_single_time_that_cannot_be_is_unknown() -> None:
    store = MemoryStore()
    write_report(
        store,
        [one("a"), one("b", last_modified_date=0)],
        created_ms=NOW,
        file_format="Parquet",
        files=1,
    )
    assert [row.modified_ms for row in rows_of(store)] == [NOW - HOUR, None]


@pytest.mark.parametrize("file_format", ["CSV", "ORC", "Parquet"])
def test_a_data_file_of_another_format_is_refused(file_format: str) -> None:
    store = MemoryStore()
    data = data_file([one()], list(one()), "ORC" if file_format == "Parquet" else "Parquet")
    part = {
        "key": f"{REPORTS}/local/daily/data/x",
        "size": len(data),
        "MD5checksum": hashlib.md5(data).hexdigest(),
    }
    store.put(part["key"], data)
    write_report(
        store, [one()], created_ms=NOW, file_format=file_format, files=1, manifest={"files": [part]}
    )
    with pytest.raises(Refused, match=f"cannot be read as {file_format}"):
        rows_of(store)


def test_a_wrong_checksum_is_refused_and_no_older_report_takes_its_place() -> None:
    store = MemoryStore()
    write_report(store, [one("old")], created_ms=NOW - HOUR, file_format="CSV")
    manifest = write_report(store, [one("new")], created_ms=NOW, file_format="CSV")
    _flip(store, manifest)
    with pytest.raises(Refused, match=r"manifest\.checksum contains"):
        rows_of(store)


def lake_of(store: Store, home: Path) -> Lake:
    settings = parse_settings(
        {"LAKEHOUSE_REPLAY": "off", "LAKEHOUSE_ROOT": str(home / "lake")}, base=home
    )
    return Lake(settings=settings, store=store)


def test_a_lake_is_reconciled_with_tables_inside_tables_declared_or_not(
    store: Store, tmp_path: Path
) -> None:
    LogBuilder(store, "bronze/t").create().append([("a", 5), ("b", 6)]).store_data().optimize(
        ["a", "b"], into=("c", 10)
    ).store_data()
    LogBuilder(store, "bronze/t/nested").create().append([("x", 7)]).store_data()
    LogBuilder(store, "bronze/tt").create().append([("x", 8), ("gone", 9)]).store_data()
    store.delete(["bronze/tt/gone"])
    store.put("bronze/broken/_delta_log/00000000000000000003.json", b"{}")
    store.put("bronze/broken/data", b"123")
    scan(store, now_ms=NOW)
    report = reconciled(lake_of(store, tmp_path), [table_of("bronze/declared")], now_ms=NOW)
    found = {table.table: table for table in report.tables}
    parts = {
        name: {s.part.name: s.size_bytes for s in table.shares if s.part}
        for name, table in found.items()
    }
    assert sorted(found) == ["bronze/broken", "bronze/t", "bronze/t/nested", "bronze/tt"]
    assert (parts["bronze/t"]["LIVE"], parts["bronze/t"]["TOMBSTONED_PAST"]) == (10, 11)
    assert (parts["bronze/t/nested"]["LIVE"], parts["bronze/tt"]["LIVE"]) == (7, 8)
    assert parts["bronze/broken"] == {"UNREAD": 5} and "missing" in found["bronze/broken"].problem
    assert {name: table.missing for name, table in found.items() if table.missing} == {
        "bronze/tt": ("gone",)
    }
    rows = rows_of(store)
    assert report.file_count == len(rows)
    assert report.size_bytes == sum(row.size_bytes for row in rows)


@pytest.mark.parametrize("checkpointed", ["by its commits", "by its checkpoint"])
@pytest.mark.parametrize(
    ("retention", "part"),
    [("interval 9999 weeks", "VECTORS_KEPT"), ("interval 1 week", "VECTORS_DEAD")],
)
def test_a_deletion_vector_that_was_replaced_is_kept_by_the_retention(
    checkpointed: str, retention: str, part: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    builder = LogBuilder(store, "bronze/t").create(
        reader_features=["deletionVectors"],
        properties={"delta.deletedFileRetentionDuration": retention},
    )
    builder.append([("a", 5)]).delete_rows({"a": 1}).delete_rows({"a": 2}).store_data()
    if checkpointed == "by its checkpoint":
        builder.checkpoint().forget_before(4)
    snapshot = builder.snapshot()
    [live] = [file.deletion_vector for file in snapshot.files]
    for vector in (*snapshot.removed_vectors, live):
        store.put(f"bronze/t/{vector_file(vector or '')}", b"12")
    scan(store, now_ms=NOW)
    [table] = reconciled(lake_of(store, tmp_path), now_ms=NOW).tables
    counted = {
        share.part.name: share.file_count
        for share in table.shares
        if share.part and "VECTORS" in share.part.name
    }
    assert counted == {"VECTORS_LIVE": 1, part: 1}


def test_a_lake_is_scanned_until_somebody_else_has_delivered_a_complete_report(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    lake = lake_of(store, tmp_path)
    write_report(store, [one()], created_ms=NOW - 40 * HOUR, file_format="CSV", complete=False)
    first = fresh_report(lake, now_ms=NOW - 30 * HOUR)
    assert first.configuration == SCAN
    assert fresh_report(lake, now_ms=NOW - 29 * HOUR).name == first.name
    assert fresh_report(lake, now_ms=NOW - 28 * HOUR).name > first.name
    write_report(store, [one()], created_ms=NOW - 26 * HOUR, file_format="CSV")
    assert fresh_report(lake, now_ms=NOW).configuration == "daily"
    assert fresh_report(lake, now_ms=NOW, configuration=SCAN).created_ms == NOW
    with pytest.raises(Refused, match="no complete report of configuration 'weekly'"):
        fresh_report(lake, now_ms=NOW, configuration="weekly")


def test_our_own_scan_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    store = MemoryStore()
    name = scan(store, now_ms=NOW - 60_000).manifest_name
    _flip(store, name)
    assert fresh_report(lake_of(store, tmp_path), now_ms=NOW).created_ms == NOW


def test_without_a_report_one_is_told_to_scan(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="lakehouse inventory scan"):
        known_report(lake_of(store, tmp_path), now_ms=NOW)


def test_a_report_that_is_too_old_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    scan(store, now_ms=NOW - 31 * HOUR)
    with pytest.raises(Refused, match=r"31 h old \(limit 26 h\)"):
        known_report(lake_of(store, tmp_path), now_ms=NOW, max_age_hours=26)


@pytest.mark.parametrize("is_current", [True, False])
def test_a_log_of_which_only_versions_are_left_makes_no_table(is_current: bool) -> None:
    store, name = MemoryStore(), f"bronze/t/d=1/_delta_log/{0:020}.json"
    versions = [
        StoredObject(
            bucket="local",
            key=name,
            size_bytes=7,
            modified_ms=NOW,
            is_latest=True,
            is_delete_marker=not is_current,
        ),
        StoredObject(
            bucket="local",
            key=name,
            size_bytes=9,
            modified_ms=NOW,
            is_latest=False,
            is_delete_marker=False,
        ),
    ]
    write_report(
        store,
        [row_of(each, versions=True) for each in versions],
        created_ms=NOW,
        file_format="Parquet",
        files=1,
    )
    report = newest_report(store, now_ms=NOW)
    assert report is not None
    assert ReportRows(store, report).tables == ({"bronze/t/d=1"} if is_current else set())


def _keys_decoded(
    *row_groups: list[str | None], below: str = "lake/", statistics: bool = True
) -> list[str]:
    out, schema = io.BytesIO(), pa.schema([("key", pa.string())])
    with pq.ParquetWriter(out, schema, write_statistics=statistics) as writer:
        for keys in row_groups:
            writer.write_table(pa.table({"key": keys}, schema=schema))
    report = Report(
        name="daily/1",
        bucket="here",
        created_ms=NOW,
        file_format="Parquet",
        columns=("key",),
        files=(),
    )
    batches = column_batches(report, out.getvalue(), where="a file", only=("key",), below=below)
    return [key for columns in batches for key in columns["key"]]


def test_row_groups_without_a_key_of_the_lake_are_not_decoded() -> None:
    keys: list[str | None] = ["a/1", "lake", "lake/1", "lake/2", "lake0", "z/1"]
    assert _keys_decoded(*([key] for key in keys)) == ["lake/1", "lake/2"]
    assert _keys_decoded(*([key] for key in keys), below="") == keys
    assert _keys_decoded(["a", "lake/1"], ["lake/2", "z"], ["a", "z"]) == [
        *("a", "lake/1", "lake/2", "z", "a", "z")
    ]


def test_a_row_group_whose_bounds_are_unknown_is_decoded() -> None:
    assert _keys_decoded(["a"], statistics=False) == ["a"]
    assert _keys_decoded(["a", None]) == ["a", None]
    assert _keys_decoded([None]) == [None]
    # Old writers order bytes as signed numbers: "lak\u00e9" would be the first, and "lake/1" in it.
    assert _keys_decoded(["lak\u00e9", "z"]) == ["lak\u00e9", "z"]
    assert _keys_decoded(["a"], below="l\u00e9ke/") == ["a"]
