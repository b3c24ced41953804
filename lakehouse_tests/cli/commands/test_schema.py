"""`lakehouse schema`: where the columns of a landed table come from."""

from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal

HAIL = AddedColumn(name="hail", type="BIGINT", file="landing/orders/8.json", policy="add", at_ms=1_763_722_800_000)


def test_declared_columns_stand_before_those_that_came_and_one_declared_since_is_told_once(told: Terminal) -> None:
    batches = LandedBatches(DiskStore(told.root), "bronze/orders", prefix="landing/orders/")
    now_declared = AddedColumn(name="AMOUNT", type="STRING", file="", policy="add", at_ms=0)
    batches.plan(Batch(number=1, files=(), prefix="landing/orders/", columns=(HAIL, now_declared)))
    document = told.json("schema", "bronze/orders")
    assert [(each["name"], each["type"], each["by"]) for each in document["columns"]] == [
        ("id", "STRING", "declared"),
        ("amount", "BIGINT", "declared"),
        ("d", "STRING", "declared"),
        ("hail", "BIGINT", "add"),
    ]
    assert told.run("schema", "bronze/orders").stdout.splitlines()[-1].split() == [
        *("hail", "BIGINT", "add", "2025-11-21", "11:00", "UTC", "landing/orders/8.json")
    ]
    assert told.run("schema", "silver/orders").stderr == (
        "Refused: schema silver/orders: it is made from other tables; accepted: a table that is loaded from landed files\n"
    )
