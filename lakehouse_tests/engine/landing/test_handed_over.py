"""What the sensor found is what the run reads, or nothing."""

from dataclasses import replace

import pytest

from lakehouse import Landing
from lakehouse.core.ingest.batches import LandedFile
from lakehouse.engine.landing.handed_over import hand_over, handed_over
from lakehouse_tests.memory_store import MemoryStore

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING", queue="orders")
FILES = [LandedFile(name="a b/ü.json", size_bytes=2, modified_ms=3, etag="e"), LandedFile(name="z.json", size_bytes=0, modified_ms=1)]


def test_files_are_handed_over_as_they_were_found() -> None:
    store = MemoryStore()
    assert handed_over(store, "bronze/orders", LANDING) is None
    hand_over(store, "bronze/orders", LANDING, FILES[:1])
    hand_over(store, "bronze/orders", LANDING, FILES)
    assert handed_over(store, "bronze/orders", LANDING) == FILES
    assert handed_over(store, "bronze/others", LANDING) is None
    assert handed_over(store, "bronze/orders", replace(LANDING, prefix="landing/elsewhere/")) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"7", b"[]", b"\xff", b'{"prefix":"landing/orders/"}', b'{"prefix":"landing/orders/","files":[{"a":1}]}']
)
def test_what_is_not_understood_counts_as_nothing(data: bytes) -> None:
    store = MemoryStore()
    store.put("_lakehouse/landed/bronze/orders.json", data)
    assert handed_over(store, "bronze/orders", LANDING) is None
