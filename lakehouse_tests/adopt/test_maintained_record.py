"""The terminal in a Dagster project of one's own, whose tables `maintain` maintains. No Java."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from lakehouse import Compaction, maintain
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.cli.app import commands
from lakehouse.declare.adopted import MAINTAINED, maintained_table
from lakehouse.declare.table import Adopted
from lakehouse.lake.declared_tables import MaintainedRecord
from lakehouse.lake.lake import open_lake
from lakehouse.lake.state_tables import pauses
from lakehouse.store import DiskStore
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import sensor_tick

pytestmark = pytest.mark.usefixtures("no_java")
SMALL = [("a", 10, 1), ("b", 10, 1), ("c", 10, 1)]
DAY_SECONDS = 86_400


@dg.asset(key=["sales", "orders"], metadata={"dagster/uri": "w/orders"}, pool="orders")
def orders() -> None:
    """A table of the project."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project with one table, in which Dagster runs."""
    monkeypatch.chdir(tmp_path)
    LogBuilder(DiskStore(tmp_path), "w/orders").create().append(SMALL).store_data()
    return tmp_path


def tick(cursor: str | None = None, **options: Any) -> str | None:
    """One tick of the observation sensor of a newly loaded code location."""
    knobs = {"compaction": Compaction(min_small_files=3), **options}
    definitions = dg.Definitions.merge(dg.Definitions(assets=[orders]), maintain([orders], **knobs))
    with dg.DagsterInstance.ephemeral() as instance:
        look = partial(sensor_tick, instance, definitions.get_repository_def())
        return look("maintenance_observation", cursor).cursor


def run(*arguments: str) -> Result:
    """One command line with settings of nobody."""
    ours: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith("LAKEHOUSE_")
    }
    return CliRunner(env=ours).invoke(commands, arguments, prog_name="lakehouse")


def shown(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def record_of(project: Path) -> Path:
    [record] = (project / ".lakehouse/lake/_lakehouse/maintained").iterdir()
    return record


def test_the_terminal_answers_as_the_sensor_does_by_address_and_by_key(project: Path) -> None:
    tick()
    by_address, by_key = (shown("plan", each) for each in ("./w/orders", "silver/sales_orders"))
    expected = [{**each, "sentence": ""} for each in by_key]
    assert [{**each, "sentence": ""} for each in by_address] == expected
    plan, vacuum = by_key
    assert (plan["table"], plan["operation"]) == ("silver/sales_orders", "compact")
    assert plan["reason"] == "DUE"
    assert (vacuum["operation"], vacuum["is_due"]) == ("vacuum", False)
    [health] = shown("health")
    assert (health["table"], health["uri"]) == ("silver/sales_orders", f"{project}/w/orders")
    assert [each["table"] for each in shown("tables")] == ["silver/sales_orders"]
    assert shown("history", "./w/orders")["table"] == "silver/sales_orders"
    assert shown("vacuum", "./w/orders", "--dry-run")[0]["table"] == "silver/sales_orders"
    assert run("compact", "./w/orders", "--dry-run").exit_code == 0


def test_a_pause_by_address_holds_the_sensor_s_own_table(project: Path) -> None:
    tick()
    assert shown("pause", "./w/orders", "--why", "a backfill")["table"] == "silver/sales_orders"
    assert [each["reason"] for each in shown("plan")] == ["PAUSED", "PAUSED"]
    [pause] = pauses(open_lake(parse_settings({}, base=project))).values()
    assert (pause.table, pause.why) == ("silver/sales_orders", "a backfill")


@pytest.mark.usefixtures("project")
def test_what_maintain_has_is_not_adopted() -> None:
    tick()
    refused = run("adopt", "./w/orders")
    assert refused.exit_code == 2
    assert "it is already declared as silver/sales_orders. Use lakehouse health" in refused.stderr
    [found] = shown("adopt", "--prefix", "./w", "--dry-run")
    assert (found["table"], found["adopted"]) == ("silver/sales_orders", True)


def test_the_record_is_written_when_code_is_loaded_and_then_once_a_day(project: Path) -> None:
    [table] = [maintained_table("silver/t", Adopted(uri="/w/t", asset_key=("t",)))]
    lake = open_lake(parse_settings({}, base=project))
    record = MaintainedRecord(lake, [table], name="maintenance_observation")
    written = list[bool]()
    for hours in (0, 1, 23, 25, 24):  # at last, the clock was set back
        for file in lake.store.list(MAINTAINED):
            lake.store.delete([file.name])
        record.confirm(now_ms() + hours * 3_600_000)
        written.append(bool(lake.store.list(MAINTAINED)))
    assert written == [True, False, False, True, True]
    tick(compaction=Compaction(min_small_files=8))
    tables = json.loads(record_of(project).read_text())["tables"]
    assert tables["silver/sales_orders"]["compaction"] == {
        "kind": "Compaction",
        "min_small_files": 8,
    }


def test_a_record_that_no_sensor_confirms_ends_after_30_days(project: Path) -> None:
    tick()
    record = record_of(project)
    stale = record.with_name("gone-00000000.json")
    stale.write_bytes(record.read_bytes().replace(b"sales_orders", b"gone"))
    os.utime(stale, (old := now_ms() // 1000 - 31 * DAY_SECONDS, old))
    assert [each["table"] for each in shown("tables")] == ["silver/sales_orders"]
    tick(orphans="delete")
    assert record_of(project) == record


def test_a_record_that_does_not_parse_stops_the_command_and_names_it(project: Path) -> None:
    tick()
    record = record_of(project)
    record.write_text(record.read_text().replace("min_small_files", "least_small_files"))
    refused = run("health")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "least_small_files" in refused.stderr and record.name in refused.stderr
    record.write_text("{")
    assert "is not JSON" in run("health").stderr
