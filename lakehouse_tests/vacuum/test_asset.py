"""When a vacuum runs by itself."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.keys import compaction_key, inventory_key, table_key, vacuum_key
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.declare.policies import Vacuum
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import Pause
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table, vacuum_records
from lakehouse.vacuum import run
from lakehouse.vacuum.asset import vacuum_asset
from lakehouse.vacuum.run import VacuumProgress
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_assets import orders

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
    others = [
        dg.AssetSpec(key) for key in (table_key(table), compaction_key(table), inventory_key(lake))
    ]
    return dg.Definitions(
        assets=[vacuum_asset(table, lake, lambda: (lake, [table])), *others],
        resources={"spark": spark_resource(lake.settings)},
    )


def reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(key))


@pytest.mark.parametrize(("table", "after_compaction"), [(orders, 0), (HELD, 1)])
def test_it_follows_a_new_inventory_and_no_write(
    dagster_lake: Lake, instance: dg.DagsterInstance, table: Table, after_compaction: int
) -> None:
    defs = definitions(table, dagster_lake)
    triggers = [inventory_key(dagster_lake), compaction_key(table)]
    seen = dg.evaluate_automation_conditions(defs, instance)
    assert seen.total_requested == 0
    for key in (*triggers, vacuum_key(table)):
        reported(instance, key)
    seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
    for key, asked in (
        (table_key(table), 0),
        (compaction_key(table), after_compaction),
        (inventory_key(dagster_lake), 1),
    ):
        reported(instance, key)
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)
        assert seen.get_num_requested(vacuum_key(table)) == asked, key
        reported(instance, vacuum_key(table))
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=seen.cursor)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("by_itself", [True, False])
def test_a_paused_table_is_left_alone_and_fails_only_a_run_that_a_person_asked_for(
    dagster_lake: Lake, instance: dg.DagsterInstance, by_itself: bool
) -> None:
    pause_table(dagster_lake, Pause(table=orders.key, since_ms=now_ms(), why="a backfill"))
    done = vacuumed(dagster_lake, instance, by_itself=by_itself)
    assert (done.success, told_by(done), vacuum_records(dagster_lake, orders.key)) == (
        by_itself,
        [],
        (),
    )


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("failed_count", [0, 2, 1_001])
def test_a_vacuum_that_may_not_delete_fails_and_its_record_names_the_files(
    dagster_lake: Lake,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    failed_count: int,
) -> None:
    """Keys are denied inside an answer that says 200: a thousand are named; with more, storage is looked through again."""
    failed = {f"f{number:04}": "AccessDenied" for number in range(failed_count)}

    class Denied(Work):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.failed = dict(failed)

    monkeypatch.setattr(run, "VacuumProgress", Denied)
    done = vacuumed(dagster_lake, instance)
    [noted] = vacuum_records(dagster_lake, orders.key)
    assert (done.success, len(told_by(done))) == (not failed, int(not failed))
    assert (len(noted.failed), noted.is_complete) == (
        min(failed_count, 1_000),
        failed_count < 1_001,
    )
    message = f"{failed_count} files could not be deleted, for example f0000: AccessDenied"
    ended = [each for each in done.all_events if each.event_type_value == "STEP_FAILURE"]
    assert [message in str(each.step_failure_data.user_failure_data) for each in ended] == (
        [True] * bool(failed)
    )


@pytest.mark.parametrize("mode", ["recommend", "off"])
def test_nothing_runs_by_itself_unless_the_declaration_says_so(
    dagster_lake: Lake, mode: str
) -> None:
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
