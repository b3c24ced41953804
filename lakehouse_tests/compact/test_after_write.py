"""What a run tells after its table was committed: it cannot undo the run, and cannot make it run again."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.events import Event, reporter_of
from lakehouse.assets.keys import table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.compact.asset import table_events
from lakehouse.lake.lake import Lake
from lakehouse.materialize.asset import table_asset
from lakehouse.watch.check import health_check
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder
from lakehouse_tests.support.example_assets import AwayStore, example_lake, orders


def run_of(lake: Lake, instance: dg.DagsterInstance, log: LogBuilder) -> dg.ExecuteInProcessResult:
    @dg.asset(output_required=False)
    def upkeep(context: dg.AssetExecutionContext) -> Iterator[Event]:
        yield from table_events(reporter_of(context), orders, lake, log.facts())

    return dg.materialize([upkeep], instance=instance, raise_on_error=False)


def test_storage_that_does_not_answer_after_a_compaction_is_a_warning(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    log = LogBuilder(key=orders.key).create().append([("f", 100, 1)])
    done = run_of(example_lake(tmp_path, AwayStore()), instance, log)
    assert done.success
    told = [entry.user_message for entry in instance.all_logs(done.run_id)]
    assert any(
        "bronze/orders was changed, but its new state could not be reported: Transient: " in each
        for each in told
    )
    assert newest_facts(instance, [orders])[orders.key].values["lakehouse/file_count"] == 1


def test_the_table_is_observed_and_checked_after_a_compaction(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    done = run_of(
        dagster_lake,
        instance,
        LogBuilder(dagster_lake.store, orders.key).create().append([("f", 100, 1)]).store_data(),
    )
    assert newest_facts(instance, [orders])[orders.key].values["lakehouse/file_count"] == 1
    assert len(done.get_asset_check_evaluations()) == 6


def test_the_event_tells_when_the_table_was_last_compacted_so_that_other_records_may_be_lost(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    log = LogBuilder(dagster_lake.store, orders.key).create().append([("a", 100, 1), ("b", 100, 1)])
    log.optimize(["a", "b"], into=("c", 190, 2), user_metadata='{"compaction": "1"}').store_data()
    run_of(dagster_lake, instance, log)
    assert (
        newest_facts(instance, [orders])[orders.key].values["lakehouse/state"]["last_compaction_ms"]
        == START_MS + 2 * MINUTE_MS
    )


def test_the_checks_are_left_to_a_run_that_already_waits_to_write_the_table(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    log = LogBuilder(dagster_lake.store, orders.key).create().append([("f", 100, 1)]).store_data()
    definitions = dg.Definitions(
        assets=[table_asset(orders, dagster_lake), health_check(orders, dagster_lake)],
        resources={"spark": spark_resource(dagster_lake.settings)},
    )
    waiting = instance.create_run_for_job(
        definitions.resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({table_key(orders)}),
    )
    done = run_of(dagster_lake, instance, log)
    assert newest_facts(instance, [orders]).get(orders.key) is not None
    assert done.get_asset_check_evaluations() == []
    instance.report_run_canceled(waiting)
    assert len(run_of(dagster_lake, instance, log).get_asset_check_evaluations()) == 6
