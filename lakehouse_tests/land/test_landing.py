"""`lakehouse landing`: what comes next for a landed table, or what the next load stops with."""

from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.batches import FOREIGN, Batch, SetAside
from lakehouse.store import DiskStore
from lakehouse_tests.support.terminal import Terminal


def test_files_that_were_set_aside_are_named_without_asking(told: Terminal) -> None:
    aside = (
        *(
            SetAside(name=f"{name}.tmp", size_bytes=1, modified_ms=0, why=f"{FOREIGN}.json, .jsonl")
            for name in "abcd"
        ),
        SetAside(name="e.json", size_bytes=1, modified_ms=0, why="it contains no record"),
    )
    PlannedBatches(DiskStore(told.root), "bronze/orders", prefix="").plan(
        Batch(number=1, files=(), set_aside=aside, prefix="landing/orders/")
    )
    found = told.run("landing", "bronze/orders").stdout.splitlines()[1]
    assert found.startswith("bronze/orders: 4 files set aside, since the name ends in none of ")
    assert found.endswith(
        ": landing/orders/a.tmp, landing/orders/b.tmp, landing/orders/c.tmp and 1 more; "
        "1 file set aside for other reasons: landing/orders/e.json"
    )
