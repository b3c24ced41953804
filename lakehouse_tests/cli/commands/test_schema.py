"""`lakehouse schema`: where the columns of a landed table come from."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal

HAIL = AddedColumn(
    name="hail", type="BIGINT", file="landing/orders/8.json", policy="add", at_ms=1_763_722_800_000
)


def test_declared_columns_stand_before_those_that_came_and_one_declared_since_is_told_once(
    told: Terminal,
) -> None:
    batches = PlannedBatches(DiskStore(told.root), "bronze/orders", prefix="landing/orders/")
    now_declared = AddedColumn(name="AMOUNT", type="STRING", file="", policy="add", at_ms=0)
    batches.plan(Batch(number=1, files=(), prefix="landing/orders/", columns=(HAIL, now_declared)))
    document = told.json("schema", "bronze/orders")
    columns = [" ".join((each["name"], each["type"], each["by"])) for each in document["columns"]]
    assert columns == [
        "id STRING declared",
        "amount BIGINT declared",
        "d STRING declared",
        "hail BIGINT add",
    ]
    last = told.run("schema", "bronze/orders").stdout.splitlines()[-1]
    assert last.split() == [
        "hail",
        "BIGINT",
        "add",
        "2025-11-21",
        "11:00",
        "UTC",
        "landing/orders/8.json",
    ]
    assert told.run("schema", "silver/orders").stderr == (
        "Refused: schema silver/orders: it is derived from other tables. Use a table that is loaded from landed files\n"
    )


WITHOUT_SCHEMA = """
from lakehouse import Append, Landing, Table
orders = Table(key="bronze/orders", source=Landing(prefix="landing/orders/", format="json"{more}), write=Append(){renamed})
"""


def test_an_inferred_schema_is_told_with_its_origin_also_when_it_is_declared_since(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, more, renamed in (
        ("not_declared", "", ""),
        ("declared_since", ", schema='id BIGINT'", ""),
        ("renamed_since", "", ", renamed={'amount': 'total'}"),
        ("both_since", ", schema='total BIGINT'", ", renamed={'amount': 'total'}"),
    ):
        text = WITHOUT_SCHEMA.format(more=more, renamed=renamed)
        (tmp_path / f"{name}.py").write_text(text)
    terminal.environ["LAKEHOUSE_TABLES"] = "not_declared"
    unknown = {
        "table": "bronze/orders",
        "schema": None,
        "new_columns": "rescue",
        "columns": [],
        "history": [],
    }
    assert terminal.json("schema", "bronze/orders") == unknown
    assert terminal.run("schema", "bronze/orders").stdout.startswith(
        "bronze/orders: no schema is declared, and none has been inferred yet. It will be inferred from the first batch of landed files\n"
    )
    batches = PlannedBatches(DiskStore(terminal.root), "bronze/orders", prefix="landing/orders/")
    pinned = [replace(HAIL, name=name, policy="infer") for name in ("id", "amount")]
    batches.plan(Batch(number=1, files=(), prefix="landing/orders/", columns=(*pinned, HAIL)))
    document = terminal.json("schema", "bronze/orders")
    assert document["schema"] == "inferred" and document["columns"] == document["history"]
    origins = [(each["name"], each["by"], each["file"]) for each in document["columns"]]
    assert origins == [
        ("id", "infer", HAIL.file),
        ("amount", "infer", HAIL.file),
        ("hail", "add", HAIL.file),
    ]
    since = terminal.json("schema", "bronze/orders", LAKEHOUSE_TABLES="declared_since")
    assert since["schema"] == "declared" and since["history"] == document["history"]
    assert [(each["name"], each["by"], each["file"]) for each in since["columns"]] == [
        ("id", "declared", HAIL.file),
        *origins[1:],
    ]
    renamed = terminal.json("schema", "bronze/orders", LAKEHOUSE_TABLES="renamed_since")
    assert renamed["history"] == document["history"]
    assert [(each["name"], each["by"]) for each in renamed["columns"]] == [
        ("id", "infer"),
        ("total", "infer"),
        ("hail", "add"),
    ]
    both = terminal.json("schema", "bronze/orders", LAKEHOUSE_TABLES="both_since")
    assert [(each["name"], each["by"], each["file"]) for each in both["columns"]] == [
        ("total", "declared", HAIL.file),
        origins[0],
        origins[2],
    ]
