"""When a vacuum runs by itself."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from lakehouse.assets.keys import compaction_key, inventory_key, table_key, vacuum_key
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Pause
from lakehouse.cli.app import commands
from lakehouse.declare.policies import Vacuum
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Found, Lake
from lakehouse.lake.state_tables import pause_table, vacuum_records
from lakehouse.vacuum import command, run
from lakehouse.vacuum.asset import DELETED, vacuum_asset
from lakehouse.vacuum.run import VacuumProgress
from lakehouse_tests.lake.test_vacuums import record_vacuum
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import observed
from lakehouse_tests.support.example_assets import orders
from lakehouse_tests.vacuum.plan.test_vacuum import past

Work = VacuumProgress  # patched below, and made by itself
HELD = replace(orders, vacuum=Vacuum(after_compaction=True))


@pytest.fixture
def written(dagster_lake: Lake) -> None:
    """The table has a version."""
    LogBuilder(dagster_lake.store, orders.key).create().append([("f", 100, 1)]).store_data()


def vacuumed(
    lake: Lake, instance: dg.DagsterInstance, *, by_itself: bool = False
) -> dg.ExecuteInProcessResult:
    """A run of the table's vacuum."""
    return dg.materialize(
        [vacuum_asset(orders, lake, lambda: (lake, [orders]))],
        instance=instance,
        resources={"spark": spark_resource(lake.settings)},
        tags={"dagster/from_automation_condition": "true"} if by_itself else {},
        raise_on_error=False,
    )


def told_by(done: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    return list(done.asset_materializations_for_node(f"vacuum__{orders.key.replace('/', '__')}"))


def definitions(table: Table, lake: Lake) -> dg.Definitions:
    keys = (table_key(table), compaction_key(table), inventory_key(lake))
    others = [dg.AssetSpec(key) for key in keys]
    return dg.Definitions(
        assets=[vacuum_asset(table, lake, lambda: (lake, [table])), *others],
        resources={"spark": spark_resource(lake.settings)},
    )


def reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(key))


@pytest.mark.parametrize(("table", "after_compaction"), [(orders, 0), (HELD, 1)])
def test_it_follows_a_new_inventory_and_neither_a_write_nor_the_look_at_a_table(
    dagster_lake: Lake, instance: dg.DagsterInstance, table: Table, after_compaction: int
) -> None:
    defs = definitions(table, dagster_lake)
    inventory, compaction = inventory_key(dagster_lake), compaction_key(table)
    seen = dg.evaluate_automation_conditions(defs, instance)
    assert seen.total_requested == 0
    for key in (inventory, compaction, vacuum_key(table)):
        reported(instance, key)
    seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
    for number in range(2):
        observed(instance, table, file_count=number)
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
        assert seen.total_requested == 0
    wanted = {table_key(table): 0, compaction: after_compaction, inventory: 1}
    for key, asked in wanted.items():
        reported(instance, key)
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
        assert seen.get_num_requested(vacuum_key(table)) == asked, key
        reported(instance, vacuum_key(table))
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("failed", [{}, {"f": "AccessDenied", "g": "AccessDenied"}])
@pytest.mark.parametrize("by_itself", [True, False])
def test_a_paused_table_is_left_alone_keeps_what_its_last_vacuum_could_not_delete_and_fails_only_a_run_that_a_person_asked_for(
    dagster_lake: Lake, instance: dg.DagsterInstance, failed: dict[str, str], by_itself: bool
) -> None:
    record_vacuum(dagster_lake, orders, past(failed=failed))
    pause_table(dagster_lake, Pause(table=orders.key, since_ms=now_ms(), why="a backfill"))
    done = vacuumed(dagster_lake, instance, by_itself=by_itself)
    evaluated = done.get_asset_check_evaluations()
    checks = [(check.check_name, check.passed, check.description) for check in evaluated]
    denied = "2 files could not be deleted, for example f: AccessDenied"
    said = denied if failed else "no deletion failed"
    assert checks == ([(DELETED, not failed, said)] if by_itself else [])
    assert done.success == by_itself and len(vacuum_records(dagster_lake, orders.key)) == 1


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("deleted", [True, False])
def test_a_vacuum_that_may_not_delete_fails_its_check_and_the_command(
    dagster_lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """1,001 keys are denied inside an answer that says 200: a thousand are named, and storage is looked through again."""
    failed = {} if deleted else {f"f{number:04}": "AccessDenied" for number in range(1_001)}

    class Denied(Work):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.failed, self.spared = dict(failed), dict(failed)

    monkeypatch.setattr(run, "VacuumProgress", Denied)
    done = vacuumed(dagster_lake, instance)
    [check], [event] = done.get_asset_check_evaluations(), told_by(done)
    document = event.metadata["lakehouse/vacuum"].value
    [noted] = vacuum_records(dagster_lake, orders.key)
    assert check.passed == noted.is_complete == deleted
    named = (noted.failed, document["failed"], document["spared"])
    assert [len(each) for each in named] == [min(len(failed), 1_000)] * 3
    declared = SimpleNamespace(choose=lambda _: [orders], lake=dagster_lake, tables={})
    monkeypatch.setattr(command, "open_declared", lambda: declared)
    outcome = SimpleNamespace(as_json=lambda: document)
    monkeypatch.setattr(command, "attempt", lambda *_: Found(table=orders, value=outcome))
    # click keeps what a command learns when it is called by itself
    ended = CliRunner().invoke(commands, ["vacuum", "--json"])
    assert ended.exit_code == (0 if deleted else 1)
    told = "files that could not be deleted: 1,000, for example f0000: AccessDenied"
    assert (told in ended.stderr) != deleted


@pytest.mark.parametrize("mode", ["recommend", "off"])
def test_nothing_runs_by_itself_unless_declared(dagster_lake: Lake, mode: str) -> None:
    asset = vacuum_asset(replace(orders, vacuum=Vacuum(mode=mode)), dagster_lake, [orders])  # type: ignore[arg-type]
    assert not asset.automation_conditions_by_key


@pytest.mark.usefixtures("no_java", "written")
def test_nothing_to_delete_takes_no_spark(dagster_lake: Lake, instance: dg.DagsterInstance) -> None:
    [told] = told_by(vacuumed(dagster_lake, instance))
    figures = told.metadata["lakehouse/vacuum"].value["figures"]
    assert (figures["files"]["predicted"], figures["files"]["actual"]) == (0, 0)
    [past] = vacuum_records(dagster_lake, orders.key)
    assert (past.mode, past.is_complete) == ("FULL", True)


def test_a_table_that_is_not_there_yet_is_told_and_no_failure(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    done = vacuumed(dagster_lake, instance)
    assert done.success and told_by(done) == []
