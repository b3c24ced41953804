"""docs/shapes.md shows, for each command, exactly the names that the command gives."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.declaration.compaction_policy import Compaction, policy_for
from lakehouse.core.declaration.table import Append, Landing, Table
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.core.vacuum.facts import VacuumRecord
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import open_lake
from lakehouse.engine.store import DiskStore
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.table_facts import plan
from lakehouse_tests.cli.conftest import Terminal, type_of_story
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.core.example_snapshots import plan_of
from lakehouse_tests.log_builder import LogBuilder

PAGE = (Path(__file__).parents[2] / "docs" / "shapes.md").read_text()
SHOWN: dict[str, Any] = {
    name: json.loads(text)
    for name, text in re.findall(r"```json (\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
}
# Their names are data: what was predicted, the parts of a score, the sizes of a histogram, requests by kind, files.
OPEN = {"figures", "left", "parts", "histogram", "requests", "actual_requests", "spared", "failed"}


def shape(document: Any) -> Any:
    """The names of a document, at every level; of a list of documents, those of the first."""
    match document:
        case dict():
            return {
                name: None if name in OPEN else shape(value) for name, value in document.items()
            }
        case [dict() | list() as first, *_]:
            return [shape(first)]
        case _:
            return None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pause", ("pause", "bronze/orders")),
        ("landing", ("landing", "bronze/orders")),
        ("quarantine_list", ("quarantine", "list")),
        ("health", ("health",)),
        ("plan", ("plan",)),
        ("history", ("history", "silver/orders", "--compactions")),
        (
            "backtest",
            (
                "backtest",
                "bronze/orders",
                "--policy",
                "min_small_files=2",
                "--reads-per-day",
                "1e9",
            ),
        ),
        ("server", ("server", "status")),
        ("take_over", ("server", "take-over")),
        ("config", ("config",)),
    ],
)
def test_the_page_shows_what_the_command_gives(
    told: Terminal, name: str, arguments: tuple[str, ...]
) -> None:
    assert shape(told.json(*arguments)) == shape(SHOWN[name])


def test_the_page_shows_a_schema(told: Terminal) -> None:
    hail = AddedColumn(
        name="hail", type="BIGINT", file="landing/orders/8.json", policy="add", at_ms=0
    )
    LandedBatches(DiskStore(told.root), "bronze/orders", prefix="").plan(
        Batch(number=1, files=(), columns=(hail,))
    )
    assert shape(told.json("schema", "bronze/orders")) == shape(SHOWN["schema"])


def test_the_page_shows_a_vacuum(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    LogBuilder(lake.store, "bronze/orders").create().append([("a", 1), ("b", 1)]).delete(
        ["a"]
    ).store_data()
    orders = Table(
        key="bronze/orders",
        source=Landing(prefix="landing/o/", format="json", schema="id BIGINT"),
        write=Append(),
    )
    planned = plan(LakeFacts(lake, [orders]), orders, mode="LITE")
    assert planned is not None
    record = VacuumRecord(
        **dict.fromkeys((field.name for field in fields(VacuumRecord)), 0)
        | {"requests": {}, "failed": {}}
    )  # type: ignore[arg-type]
    assert shape([VacuumOutcome(plan=planned, record=record).as_json()]) == shape(SHOWN["vacuum"])


def test_the_page_shows_the_inventory(told: Terminal) -> None:
    assert shape(told.json("inventory", "scan")) == shape(SHOWN["inventory_scan"])
    LogBuilder(DiskStore(told.root), "bronze/more").create().append([("a", 1)]).store_data()
    assert shape(told.json("inventory", "scan")) == shape(SHOWN["inventory_scan"])
    assert shape(told.json("inventory", "report", exit_code=1)) == shape(SHOWN["inventory_report"])


def test_the_page_shows_errors_and_a_table_that_is_left_alone(told: Terminal) -> None:
    assert shape(told.json("plan", "nothing", exit_code=2)) == shape(SHOWN["error"])
    told.run("pause", "bronze/orders")
    assert shape(told.json("tables")) == shape(SHOWN["tables"])


def test_the_page_shows_the_account_of_a_compaction(story: type_of_story) -> None:
    snapshot = story("bronze/t").create().append([("a", 1), ("b", 1)]).snapshot()
    plan = plan_of(snapshot, policy_for("bronze", Compaction()))
    assert shape(CompactionOutcome(plan=plan, version_after=None).as_json()) == shape(
        SHOWN["compact"]
    )
