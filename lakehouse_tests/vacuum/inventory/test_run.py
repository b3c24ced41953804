"""The inventory table: scans and reports are in it to the row, one of each configuration; what is not complete is none."""

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.stored_objects import SCAN, StoredObject
from lakehouse.lake import commits
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, Store
from lakehouse.vacuum.inventory import run as load
from lakehouse.vacuum.inventory.run import (
    InventoryRows,
    known_inventories,
    newest_inventory,
    read_objects,
    scan,
    update_inventory,
)
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.reports import reconciled, row_of, write_report
from lakehouse_tests.support.vacuums import table_of
from lakehouse_tests.vacuum.inventory.test_reports import ODD, version

NOW = now_ms()
HOUR, DAY = 3_600_000, 86_400_000
KEY = "inventory/local"


def lake_of(store: Store, home: Path) -> Lake:
    return Lake(settings=own_settings(home, LAKEHOUSE_ROOT=str(home / "lake")), store=store)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_of(DiskStore(tmp_path / "lake"), tmp_path)


def walked(store: Store) -> list[StoredObject]:
    return sorted(filter(is_content, store.walk("")), key=lambda each: each.key)


def is_content(each: StoredObject) -> bool:
    """Not the object by which a bucket's conditional writes are tested."""
    return not each.key.endswith("_lakehouse/taken")


def held(lake: Lake, **more: Any) -> list[StoredObject]:
    """The objects of the newest inventory, by our reader."""
    inventory = newest_inventory(lake, **more)
    objects = read_objects(lake, inventory)
    return sorted(filter(is_content, objects), key=lambda each: each.key)


def rows_in(lake: Lake) -> list[dict[str, Any]]:
    """All rows of the table, by another implementation."""
    table = DeltaTable(lake.table_uri(KEY)).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: (row["report"], row["key"]))


def data_files(lake: Lake) -> list[str]:
    return [each.name for each in lake.store.list(KEY) if "/_delta_log/" not in each.name]


def test_a_scan_is_the_listing_to_the_row(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_FILE_BATCHES", 2)
    monkeypatch.setattr(load, "BATCH_ROWS", 3)
    for name in ODD:
        store.put(name, name.encode())
    listing = walked(store)
    lake = lake_of(store, tmp_path)
    outcome = scan(lake, now_ms=NOW)
    assert held(lake) == listing
    size_bytes = sum(len(name.encode()) for name in ODD)
    assert outcome.inventory.size_bytes == size_bytes
    assert outcome.newly_loaded == outcome.inventory.object_count >= len(ODD)


def test_an_empty_lake_is_scanned_too(store: Store, tmp_path: Path) -> None:
    lake = lake_of(store, tmp_path)
    scan(lake, now_ms=NOW)
    assert held(lake) == []


def test_reports_of_all_formats_are_in_the_table_to_the_row_beside_the_scan(lake: Lake) -> None:
    LogBuilder(lake.store, "bronze/t").create().append([("a", 5)]).store_data()
    for name in ODD:
        lake.store.put(f"bronze/t/{name}", name.encode())
        lake.store.put(f"bronze/tt/{name}", name.encode())
    for file in lake.store.list(""):
        os.utime(Path(lake.settings.root) / file.name, ns=(0, (NOW - 5 * DAY) * 1_000_000))
    listing = walked(lake.store)
    rows = [row_of(each) for each in listing]
    for days, file_format in ((3, "CSV"), (2, "ORC"), (1, "Parquet")):
        write_report(lake.store, rows, created_ms=NOW - days * DAY, file_format=file_format)
        outcome = update_inventory(lake, [], now_ms=NOW)
        assert outcome.newly_loaded == outcome.inventory.object_count == len(listing)
        assert held(lake) == listing
    for row, each in zip(rows_in(lake), listing, strict=True):
        owner = "bronze/t" if each.key.startswith("bronze/t/") else None
        assert (row["key"], row["size_bytes"], row["lake_table"]) == (
            each.key,
            each.size_bytes,
            owner,
        )
    again = update_inventory(lake, [], now_ms=NOW)
    assert again.newly_loaded == 0
    assert again.reconciliation.file_count == len(listing)

    scanned = update_inventory(lake, [], now_ms=NOW, configuration=SCAN)
    names = {outcome.inventory.name, scanned.inventory.name}
    assert {row["report"] for row in rows_in(lake)} == names
    assert [each.configuration for each in known_inventories(lake)] == [SCAN, "daily"]
    assert held(lake, configuration="daily") == listing
    with pytest.raises(Refused, match="no complete report of configuration 'weekly'"):
        update_inventory(lake, [], now_ms=NOW, configuration="weekly")


def test_every_column_comes_through_and_a_refused_report_changes_nothing(lake: Lake) -> None:
    marker = version("a/x", None, 0, is_delete_marker=True)
    objects = [marker, version("a/x", 1, 7, is_latest=False)]
    rows = [row_of(each, versions=True) for each in objects]
    write_report(lake.store, rows, created_ms=NOW - 2 * HOUR, file_format="ORC")
    update_inventory(lake, [], now_ms=NOW)
    assert held(lake) == objects
    bad = [row_of(objects[1]), row_of(objects[1]) | {"bucket": "another"}]
    write_report(lake.store, bad, created_ms=NOW, file_format="CSV", files=2)
    before = data_files(lake)
    with pytest.raises(Refused, match="rows of bucket 'another'"):
        update_inventory(lake, [], now_ms=NOW)
    facts = lake.facts(KEY)
    assert facts is not None and facts.snapshot.version == 0
    assert (data_files(lake), held(lake)) == (before, objects)


class Ending(DiskStore):
    """A store whose listing fails, or whose commits are made by others first, once."""

    listed: int | None = None
    is_late = False

    def walk(self, prefix: str) -> Iterator[StoredObject]:
        for number, each in enumerate(super().walk(prefix)):
            if number == self.listed:
                raise Transient("the storage does not answer")
            yield each

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.is_late and name.startswith(f"{KEY}/_delta_log/"):
            super().put_if_absent(name, b'{"commitInfo":{"timestamp":1}}')
        return super().put_if_absent(name, data)


def test_a_listing_that_ends_early_or_a_commit_that_comes_second_is_no_inventory(
    tmp_path: Path,
) -> None:
    store = Ending(tmp_path / "lake")
    lake = lake_of(store, tmp_path)
    store.put("a", b"1")
    store.put("b", b"1")
    store.listed = 1
    with pytest.raises(Transient):
        scan(lake, now_ms=NOW)
    assert known_inventories(lake) == []
    store.listed = None
    first = scan(lake, now_ms=NOW).inventory
    store.is_late = True
    with pytest.raises(Transient, match="another program changed the table"):
        scan(lake, now_ms=NOW + 60_000)
    store.is_late = False
    assert [each.name for each in known_inventories(lake)] == [first.name]


def test_an_inventory_that_lost_a_row_or_a_file_is_none(lake: Lake) -> None:
    lake.store.put("landing/x", b"1")
    lake.store.put("landing/y", b"1")
    scan(lake, now_ms=NOW)
    [name] = data_files(lake)
    data = lake.store.read(name)
    lake.store.put(name, data.replace(b"landing", b"bandinl"))
    with pytest.raises(Refused, match="cannot be read"):
        held(lake)
    lake.store.delete([name])
    with pytest.raises(Refused, match="cannot be read"):
        held(lake)
    lake.store.put(name, data)
    assert len(held(lake)) == 2
    DeltaTable(lake.table_uri(KEY)).delete("key = 'landing/x'")
    with pytest.raises(Refused, match="there is none yet"):
        held(lake)


def test_dead_files_go_a_week_after_their_last_version_and_no_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.store.put("landing/x", b"1")
    lake.store.put(f"{KEY}/of_others.parquet", b"1")
    lake.store.put(f"{KEY}/{'0' * 36}.parquet", b"left by a load that was killed")
    old = scan(lake, now_ms=NOW - 20 * DAY).inventory.name
    [first] = [each for each in data_files(lake) if "000" not in each and "of_" not in each]
    scan(lake, now_ms=NOW)
    assert first in data_files(lake)
    root = Path(lake.settings.root)
    for name in data_files(lake):
        os.utime(root / name, ns=(0, (NOW - 20 * DAY) * 1_000_000))
    scan(lake, now_ms=NOW + 60_000)
    assert first in data_files(lake)  # removed just now
    for module in (load, commits):
        monkeypatch.setattr(module, "now_ms", lambda: now_ms() + 9 * DAY)
    scan(lake, now_ms=NOW + 9 * DAY)
    left = data_files(lake)
    assert first not in left and f"{KEY}/{'0' * 36}.parquet" not in left
    assert f"{KEY}/of_others.parquet" in left and len(left) == 3
    assert old not in {each.name for each in known_inventories(lake)}


def test_a_scan_holds_little_of_what_it_lists(tmp_path: Path) -> None:
    class Endless(MemoryStore):
        def walk(self, prefix: str) -> Any:
            for number in range(0 if prefix else self.count):
                key = f"bronze/table/day={number % 365}/part-{number:05}.parquet"
                yield StoredObject(bucket="local", key=key, size_bytes=number, modified_ms=NOW)

        count = 0

    def peak(count: int) -> int:
        store = Endless()
        store.count = count
        tracemalloc.start()
        scan(lake_of(store, tmp_path), now_ms=NOW)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(40_000) < 1.3 * peak(20_000)


def test_a_lake_is_reconciled_with_tables_inside_tables(store: Store, tmp_path: Path) -> None:
    story = LogBuilder(store, "bronze/t").create().append([("a", 5), ("b", 6)]).store_data()
    story.optimize(["a", "b"], into=("c", 10)).store_data()
    LogBuilder(store, "bronze/t/nested").create().append([("x", 7)]).store_data()
    LogBuilder(store, "bronze/tt").create().append([("x", 8), ("gone", 9)]).store_data()
    store.delete(["bronze/tt/gone"])
    store.put("bronze/broken/_delta_log/00000000000000000003.json", b"{}")
    store.put("bronze/broken/data", b"123")
    lake = lake_of(store, tmp_path)
    report = scan(lake, [table_of("bronze/declared")], now_ms=NOW).reconciliation
    again = reconciled(lake, [table_of("bronze/declared")], now_ms=NOW)
    assert again.file_count == report.file_count
    found = {table.table: table for table in report.tables}
    parts: dict[str, dict[str, int]] = {}
    for name, table in found.items():
        parts[name] = {s.part.name: s.size_bytes for s in table.shares if s.part}
    assert sorted(found) == ["bronze/broken", "bronze/t", "bronze/t/nested", "bronze/tt"]
    assert (parts["bronze/t"]["LIVE"], parts["bronze/t"]["TOMBSTONED_PAST"]) == (10, 11)
    assert (parts["bronze/t/nested"]["LIVE"], parts["bronze/tt"]["LIVE"]) == (7, 8)
    assert parts["bronze/broken"] == {"UNREAD": 5} and "missing" in found["bronze/broken"].problem
    missing = {name: table.missing for name, table in found.items() if table.missing}
    assert missing == {"bronze/tt": ("gone",)}


@pytest.mark.parametrize("is_current", [True, False])
def test_a_log_of_old_versions_alone_makes_no_table(is_current: bool, tmp_path: Path) -> None:
    store, name = MemoryStore(), f"bronze/t/d=1/_delta_log/{0:020}.json"
    newest = version(name, None, 7, is_delete_marker=not is_current)
    versions = (newest, version(name, None, 9, is_latest=False))
    rows = [row_of(each, versions=True) for each in versions]
    write_report(store, rows, created_ms=NOW, file_format="Parquet", files=1)
    lake = lake_of(store, tmp_path)
    update_inventory(lake, [], now_ms=NOW)
    [inventory] = known_inventories(lake)
    assert InventoryRows(lake, inventory).tables == ({"bronze/t/d=1"} if is_current else set())
