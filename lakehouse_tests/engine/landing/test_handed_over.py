"""What the sensor found is what the run reads, or nothing."""

from dataclasses import replace

import pytest

from lakehouse import Landing
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.engine.landing.handed_over import hand_over, handed_over
from lakehouse_tests.memory_store import MemoryStore

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING", queue="orders")
FILES = [LandedFile(name="a b/ü.json", size_bytes=2, modified_ms=3, etag="e"), LandedFile(name="z.json", size_bytes=0, modified_ms=1)]


def test_files_are_handed_over_as_they_were_found() -> None:
    store = MemoryStore()
    assert handed_over(store, "bronze/orders", LANDING, 1, None) is None
    hand_over(store, "bronze/orders", LANDING, 1, FILES[:1])
    hand_over(store, "bronze/orders", LANDING, 1, FILES)
    assert handed_over(store, "bronze/orders", LANDING, 1, None) == FILES
    assert handed_over(store, "bronze/others", LANDING, 1, None) is None
    assert handed_over(store, "bronze/orders", replace(LANDING, prefix="landing/elsewhere/"), 1, None) is None


def test_a_run_that_comes_late_or_twice_lists() -> None:
    store, after_two = MemoryStore(), Batch(number=2, files=())
    hand_over(store, "bronze/orders", LANDING, 2, FILES)
    assert handed_over(store, "bronze/orders", LANDING, 2, Batch(number=1, files=())) == FILES
    assert handed_over(store, "bronze/orders", LANDING, 2, after_two) is None  # a file of these may have been overwritten since
    assert handed_over(store, "bronze/orders", LANDING, 3, after_two) is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"7", b"[]", b"\xff", b'{"prefix":"landing/orders/","files":[]}', b'{"batch":1,"prefix":"landing/orders/"}'),
        b'{"batch":1,"prefix":"landing/orders/","files":[{"a":1}]}',
    ],
)
def test_what_is_not_understood_counts_as_nothing(data: bytes) -> None:
    store = MemoryStore()
    store.put("_lakehouse/landed/bronze/orders.json", data)
    assert handed_over(store, "bronze/orders", LANDING, 1, None) is None
