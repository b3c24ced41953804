"""Why a run recorded nothing for a table, in the words of `lakehouse materialize`. No Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.cli.dagster_runs import AssetRun
from lakehouse.materialize import command as materialize
from lakehouse_tests.memory_store import MemoryStore

ORDERS = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id STRING"),
    write=Append(),
)
LATEST = Table(
    key="silver/orders", inputs=(ORDERS,), write=Append(), transform=lambda orders: orders
)


@pytest.mark.parametrize(
    ("table", "selected", "sentence"),
    [
        (ORDERS, [ORDERS], "no file to load has landed"),
        (LATEST, [ORDERS, LATEST], "not run: its input bronze/orders failed or does not exist yet"),
        (LATEST, [LATEST], "run 7 recorded nothing. Look at it on Dagster's page"),
    ],
)
def test_a_table_for_which_nothing_was_recorded_says_why_and_only_a_landed_one_names_files(
    table: Table, selected: list[Table], sentence: str
) -> None:
    opened: Any = SimpleNamespace(lake=SimpleNamespace(store=MemoryStore()))
    runs = {each.key: AssetRun(key=each.key, run_id="7") for each in selected}
    assert runs[table.key].state == "skipped"
    assert materialize._why_skipped(table, runs, opened) == sentence
