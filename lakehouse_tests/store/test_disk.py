"""A lake's store in which a table's folder lies elsewhere: read by its key, and never written."""

from collections.abc import Callable

import pytest

from lakehouse.base.errors import Refused
from lakehouse.store import MountedStore, S3Store, Store
from lakehouse_tests.memory_store import MemoryStore

KEY, MORE = "silver/orders", "silver/more"
OURS, OWN = f"{KEY}/d=1/a", "silver/customers/a"


@pytest.fixture
def mounted(store: Store) -> MountedStore:
    """A lake in memory; on a disk, on S3 and in memory, the folder `far/t` of another store is its table `silver/orders`."""
    lake = MemoryStore()
    lake.put("silver/customers/a", b"own")
    for name in ("far/t/_delta_log/0", "far/t/d=1/a", "far/t/d=1/b", "far/t2/c", "far/d"):
        store.put(name, name.encode())
    return MountedStore(lake, {KEY: (store, "far/t"), MORE: (store, "far/t2")})


def test_a_table_that_lies_elsewhere_is_listed_and_read_by_its_key(mounted: MountedStore) -> None:
    names = [f"{KEY}/_delta_log/0", f"{KEY}/d=1/a", f"{KEY}/d=1/b"]
    assert [file.name for file in mounted.list(KEY)] == names
    assert [file.name for file in mounted.list(f"{KEY}/d=1")] == names[1:]
    assert list(mounted.folders(KEY)) == ["_delta_log", "d=1"]
    assert mounted.read(names[1]) == b"far/t/d=1/a"
    assert [*mounted.read_many(names)] == [b"far/t/_delta_log/0", b"far/t/d=1/a", b"far/t/d=1/b"]
    assert [*mounted.read_many(["silver/customers/a", names[1]])] == [b"own", b"far/t/d=1/a"]
    found = mounted.stat(names[1])
    assert found is not None and (found.name, found.size_bytes) == (names[1], 11)
    assert mounted.stat(f"{KEY}/d=1/z") is None


def test_its_objects_have_the_keys_that_they_would_have_in_the_lake(mounted: MountedStore) -> None:
    walked = sorted(mounted.walk(KEY), key=lambda each: each.key)
    keys = [each.key for each in walked if not each.is_dir]
    assert keys == [f"{KEY}/_delta_log/0", OURS, f"{KEY}/d=1/b"]
    assert {each.bucket for each in walked} == {mounted.bucket}


def test_the_lakes_own_listing_holds_nothing_of_it(mounted: MountedStore) -> None:
    for prefix in ("", "silver"):
        assert [file.name for file in mounted.list(prefix)] == [OWN]
    assert list(mounted.folders("silver")) == ["customers"]
    assert [each.key for each in mounted.walk("")] == ["silver/customers/a"]


def test_its_files_are_copied_into_the_lake(mounted: MountedStore) -> None:
    mounted.copy(mounted.list(KEY)[1], "archive/a")
    assert mounted.read("archive/a") == b"far/t/d=1/a"


WRITES: dict[str, Callable[[MountedStore], object]] = {
    "put": lambda store: store.put(f"{KEY}/a", b""),
    "put_if_absent": lambda store: store.put_if_absent(f"{KEY}/_delta_log/1", b""),
    "copy into it": lambda store: store.copy(store.list("")[0], f"{KEY}/a"),
    "delete": lambda store: store.delete([OURS]),
    "delete_each": lambda store: store.delete_each([OURS]),
    "delete_each of two places, the lake's first": lambda store: store.delete_each([OWN, OURS]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_is_written_into_it(
    mounted: MountedStore, write: Callable[[MountedStore], object]
) -> None:
    before = [*mounted.list(KEY), *mounted.list("")]
    with pytest.raises(Refused):
        write(mounted)
    assert [*mounted.list(KEY), *mounted.list("")] == before


def test_its_files_are_deleted_through_the_real_store(mounted: MountedStore) -> None:
    store, name = mounted.place_of(OURS)
    assert (store is mounted.base, name) == (False, "far/t/d=1/a")
    assert store.delete_each([name]) == {}
    assert [file.name for file in mounted.list(KEY)] == [f"{KEY}/_delta_log/0", f"{KEY}/d=1/b"]
    mounted.put("silver/customers/b", b"")
    mounted.delete_each(["silver/customers/b"])
    assert [file.name for file in mounted.list("")] == ["silver/customers/a"]


@pytest.mark.parametrize("rest", ["../t2/c", "../../far/d", "./a", "d=1//a"])
def test_no_name_leads_out_of_it(mounted: MountedStore, rest: str) -> None:
    with pytest.raises(Refused):
        mounted.read(f"{KEY}/{rest}")
    with pytest.raises(Refused):
        mounted.delete_each([f"{KEY}/{rest}"])


def test_an_error_that_passes_in_the_lake_passes_in_a_lake_with_mounted_tables() -> None:
    base = S3Store("bucket", "")
    assert MountedStore(base, {}).passing == base.passing != frozenset()


def test_requests_of_both_places_are_counted_once(mounted: MountedStore) -> None:
    before = mounted.requests
    mounted.read(f"{KEY}/d=1/a")
    assert sum((mounted.requests - before).values()) in (0, 1)
