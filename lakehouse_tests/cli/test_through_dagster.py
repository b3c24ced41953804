"""`materialize` and `compact`: real Spark, and what Dagster's records say afterwards."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterEventType, DagsterRunStatus
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse.assets.home import dagster_home
from lakehouse.base.settings import Settings
from lakehouse.declare.table import Table
from lakehouse.query import run as query_run
from lakehouse_tests.support.shapes import documented, shape
from lakehouse_tests.support.terminal import Terminal

pytestmark = pytest.mark.spark

ORDERS, LATEST, TOTALS = "bronze/orders", "silver/orders", "gold/totals"


@pytest.fixture
def settings(settings: Settings, spark: SparkSession, tmp_path: Path) -> Settings:
    """A fresh lake on the shared server and its session, with the tables of the example and Dagster's records of its own."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "server").symlink_to(settings.home / "server")
    dagster = home / "dagster"
    own = replace(
        settings, home=home, dagster_home=dagster, tables="lakehouse_tests.support.example_terminal"
    )
    dagster_home(own)
    with records(own) as instance:
        # Made here, since Dagster cannot make its files in two processes at once.
        assert instance.get_runs() == []
    return own


def run(settings: Settings, *arguments: str) -> Any:
    """What `lakehouse … --json` gives, in this process."""
    return Terminal(settings.home, **settings.as_environ()).json(*arguments)


def land(settings: Settings, name: str, *rows: Mapping[str, object]) -> None:
    """A file of orders lands."""
    folder = Path(settings.root) / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def records(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """Dagster's records of the lake."""
    with dg.DagsterInstance.from_config(str(settings.home / "dagster")) as instance:
        yield instance


def test_landing_to_gold_and_compaction_as_planned(
    settings: Settings,
    log_reads: Counter[str],
    plans_made: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_names = list[Table]()
    monkeypatch.setattr(query_run, "name_tables", lambda _, __, tables: given_names.extend(tables))
    good = ({"id": "a", "amount": 1, "d": "1"}, {"id": "b", "amount": 2, "d": "2"})
    land(settings, "1.json", *good, {"amount": 3})
    documents = run(settings, "materialize")
    assert shape(documents) == shape(documented()["materialize"])
    assert [table.key for table in given_names] == [ORDERS, LATEST, TOTALS]
    first = {each["table"]: each for each in documents}
    expected = [(ORDERS, "done", 0), (LATEST, "done", 0), (TOTALS, "done", 0)]
    assert [(each["table"], each["state"], each["version"]) for each in first.values()] == expected
    assert (first[ORDERS]["rows_written"], first[ORDERS]["rows_quarantined"]) == (2, 1)
    assert first[ORDERS]["files_read"] == 1
    refused = f"0 files set aside; 1 line in quarantine: lakehouse quarantine show {ORDERS}"
    assert first[ORDERS]["sentence"].endswith(refused)
    land(settings, "2.json", {"id": "c", "amount": 1, "d": "1"})
    log_reads.clear()
    plans_made.clear()
    again = {
        each["table"]: (each["rows_written"], each["version"])
        for each in run(settings, "materialize", TOTALS, "bronze", LATEST)
    }
    # Each table before and after its own commit, and once more as the input of the next one; the checks are handed what the write read.
    assert log_reads == {ORDERS: 3, LATEST: 3, TOTALS: 2, f"quarantine/{ORDERS}": 1}
    assert plans_made == {ORDERS: 1, LATEST: 1, TOTALS: 1}  # of each table as the write left it
    assert again[ORDERS] == (1, 1)
    plan = run(settings, "compact", ORDERS, "--dry-run")
    assert (plan["files_removed"], plan["files_added"]) == (2, 1)
    log_reads.clear()
    plans_made.clear()
    done = run(settings, "compact", ORDERS)
    # Before and after the commit, and the compared statistics.
    assert (log_reads[ORDERS], log_reads[f"quarantine/{ORDERS}"]) == (3, 1)
    assert plans_made == {ORDERS: 2}  # the run's, and of the table as it is then
    assert {name: done[name] for name in plan} == plan
    for name in ("files_removed", "files_added", "bytes_removed"):
        assert done[f"actual_{name}"] == plan[name]
    assert shape(done) == shape(documented()["compact"])
    assert done["actual_seconds"] > 0 and done["figures"]["files_removed"]["error"] == 0
    assert done["version_after"] == plan["version"] + 1
    assert done["rows_verified"] == 2

    again = run(settings, "compact", ORDERS)
    assert (again["version_after"], again["actual_files_removed"]) == (None, 0)
    assert again["files_removed"] == 0
    newest = run(settings, "history", ORDERS, "--limit", "1")["commits"][0]
    assert newest["compaction"]["as_predicted"]
    assert newest["compaction"]["figures"]["files_removed"]["actual"] == 2
    assert newest["compaction"]["sentence"] == plan["sentence"]
    assert_dagster_knows(settings)
    [named] = run(settings, "vacuum", TOTALS, "--dry-run")
    assert (named["reason"], named["parts"]["tombstoned_past"]) == ("VACUUM_DUE", 1)
    [latest, gone] = run(settings, "vacuum", LATEST, TOTALS)
    assert shape(gone) == shape(documented()["vacuum"][0])
    figures = gone["figures"]
    assert (gone["paths"], figures["files"]["actual"]) == (named["paths"], named["files"])
    assert figures["bytes"]["actual"] == named["bytes"]
    assert (latest["reason"], latest["figures"]["files"]["actual"]) == ("NOTHING_PAST", 0)
    assert_the_refused_line_is_shown_read_again_and_dropped(settings)


def assert_the_refused_line_is_shown_read_again_and_dropped(settings: Settings) -> None:
    """The commands of the quarantine, for the one line of the story that has no id."""
    expected = shape(documented()["quarantine_show"])
    assert shape(run(settings, "quarantine", "show", ORDERS)) == expected
    with records(settings) as instance:
        runs = instance.get_runs_count()
    retried = run(settings, "quarantine", "retry", ORDERS)
    assert shape(retried) == shape(documented()["quarantine_review"])
    assert (retried["lines"], retried["left"]) == (1, {})
    with records(settings) as instance:
        assert instance.get_runs_count() == runs + 1
    planned = run(settings, "quarantine", "drop", ORDERS, "--why", "it was a test", "--dry-run")
    assert shape(planned) == shape(documented()["quarantine_review"])
    assert planned["sentence"] == "would drop 1 line and 0 files"
    run(settings, "quarantine", "drop", ORDERS, "--why", "it was a test")
    assert run(settings, "landing", ORDERS)["quarantine_rows"] == 0
    result = Terminal(settings.home, **settings.as_environ()).run("quarantine", "show", LATEST)
    said = "is derived from other tables. Use a table that is loaded from landed files"
    assert result.exit_code == 2 and said in result.stderr


def assert_dagster_knows(settings: Settings) -> None:
    """Both materializations are runs in Dagster's records; the compactions are none, and are recorded with their table and its checks."""
    with records(settings) as instance:
        runs = instance.get_runs()
        assert [each.status for each in runs] == [DagsterRunStatus.SUCCESS] * 2
        key = dg.AssetKey(ORDERS.split("/"))
        observed = instance.fetch_observations(key, limit=1).records[0].asset_observation
        assert observed is not None
        assert observed.metadata["lakehouse/file_count"].value == 2
        # A compaction is no materialization of its table, so that nothing downstream runs.
        assert len(instance.fetch_materializations(key, limit=9).records) == 2
        compaction = dg.AssetKey(["compaction", *key.path])
        assert len(instance.fetch_materializations(compaction, limit=9).records) == 2
        evaluated = instance.all_logs(
            runs[-1].run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION
        )
        checked = {
            entry.dagster_event.asset_check_evaluation_data.asset_key
            for entry in evaluated
            if entry.dagster_event
        }
        assert checked == {dg.AssetKey(key.split("/")) for key in (ORDERS, LATEST, TOTALS)}


def test_an_inventory_is_loaded_and_told(settings: Settings) -> None:
    (Path(settings.root) / "landing").mkdir(parents=True)
    (Path(settings.root) / "landing" / "x").write_bytes(b"12345")
    told = run(settings, "inventory", "load")
    assert shape(told) == shape(documented()["inventory_load"])
    assert (told["object_count"], told["size_bytes"], told["rows_loaded"]) == (1, 5, 1)


SHOP = (
    "Order No;Größe;amount;placed_at\n"
    "1;L;1.234,50;2026-01-15 10:00:00\n"
    "2;S;9,5;2026-01-16\n"
    "3;M;NA;2026-01-16 09:30:00\n"
)


def test_a_project_of_init_is_materialized_as_it_was_written(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders-2026-01.csv").write_bytes(SHOP.encode("cp1252"))
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(settings.home, **settings.as_environ())
    assert terminal.run("init", "bakery", "--from", "orders-2026-01.csv").exit_code == 0
    project = tmp_path / "bakery"  # imported, so no other test may use this name
    (project / ".lakehouse" / "server").symlink_to(settings.home / "server")
    monkeypatch.chdir(project / "bakery")  # a folder of the project is enough
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    loads = terminal.json("materialize")
    expected = [(ORDERS, "done", 3), (LATEST, "done", 3)]
    assert [(each["table"], each["state"], each["rows_written"]) for each in loads] == expected
    assert loads[0]["rows_quarantined"] == 0
    silver = pa.table(DeltaTable(project / ".lakehouse" / "lake" / LATEST).to_pyarrow_table())
    rows = sorted(silver.to_pylist(), key=lambda row: row["order_no"])
    expected = [(1, "L", 1234.5), (2, "S", 9.5), (3, "M", None)]
    assert [(*row.values(),)[:3] for row in rows] == expected
    assert [*rows[0]] == ["order_no", "Größe", "amount", "placed_at"]
