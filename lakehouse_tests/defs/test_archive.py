"""The daily run of an archive: what it moves and deletes, and what its table and Dagster show."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from lakehouse import Archive
from lakehouse.core.journal_records import Pause
from lakehouse.defs.archive import archive_asset
from lakehouse.defs.keys import archive_key, table_key
from lakehouse.defs.resources import spark_resource
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse_tests.cli.shapes import documented, shape
from lakehouse_tests.core.archive.example_archive import DAYS
from lakehouse_tests.engine.archive.cases import add_rows, archive_rows, contents_now, table_rows

TABLE = replace(DAYS, archive=Archive(older_than_days=3, keep_days=0, clock="newest_row"))


def archived(
    lake: Lake, instance: dg.DagsterInstance, *, by_itself: bool = True, **config: Any
) -> dg.ExecuteInProcessResult:
    """A run of the table's archive."""
    return dg.materialize(
        [archive_asset(TABLE, lake, [TABLE])],
        instance=instance,
        resources={"spark": spark_resource(lake.settings)},
        tags={"dagster/from_automation_condition": "true"} if by_itself else {},
        run_config={"ops": {"archive__bronze__days": {"config": config}}},
        raise_on_error=False,
    )


@pytest.mark.spark
def test_a_run_moves_old_days_and_deletes_those_past_their_time_and_the_table_is_only_observed(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    add_rows(lake, [(1, 1), (2, 2), (9, 9)])
    done = archived(lake, instance, only="archive")
    [event] = done.asset_materializations_for_node("archive__bronze__days")
    assert event.metadata["lakehouse/rows_moved"].value == 2
    document = event.metadata["lakehouse/archive"].value
    assert shape(document) == shape(documented()["archive_run"])
    assert (table_rows(lake), archive_rows(lake)) == ([(9, 9)], [(1, 1), (2, 2)])
    events = instance.fetch_observations(table_key(TABLE), limit=10).records
    assert len(events) == 1 and events[0].asset_observation is not None
    assert not instance.fetch_materializations(table_key(TABLE), limit=1).records
    done = archived(lake, instance)
    [event] = done.asset_materializations_for_node("archive__bronze__days")
    assert event.metadata["lakehouse/files_expired"].value == 2
    assert contents_now(lake).partitions == () and table_rows(lake) == [(9, 9)]
    assert len(instance.fetch_observations(table_key(TABLE), limit=10).records) == 1


def test_it_runs_daily_by_itself_whatever_happens_to_the_table(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    defs = dg.Definitions(
        assets=[archive_asset(TABLE, lake, [TABLE]), dg.AssetSpec(table_key(TABLE))],
        resources={"spark": spark_resource(lake.settings)},
    )
    times = [datetime(2026, 1, 1, 3, 59), datetime(2026, 1, 1, 4, 1), datetime(2026, 1, 1, 9)]
    cursor, requested = None, list[int]()
    for time in times:
        instance.report_runless_asset_event(dg.AssetMaterialization(table_key(TABLE)))
        seen = dg.evaluate_automation_conditions(
            defs, instance, cursor=cursor, evaluation_time=time.replace(tzinfo=UTC)
        )
        cursor = seen.cursor
        requested.append(seen.get_num_requested(archive_key(TABLE)))
    assert requested == [0, 1, 0]


def test_a_log_without_its_first_commits_and_pointer_is_a_table(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    from lakehouse_tests.log_builder import LogBuilder

    story = LogBuilder(lake.store, TABLE.key).create(partition_by=["day"])
    story.append([("f", 100)]).checkpoint().forget_before(1)
    done = archived(lake, instance, only="expire")
    assert len(done.asset_materializations_for_node("archive__bronze__days")) == 1


def test_a_paused_table_is_left_alone_and_fails_only_a_run_that_a_person_asked_for(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert archived(lake, instance).success  # there is no table
    from lakehouse_tests.log_builder import LogBuilder

    LogBuilder(lake.store, TABLE.key).create(partition_by=["day"])
    Journal(lake.store).pause(Pause(table=TABLE.key, since_ms=now_ms(), why="a backfill"))
    assert archived(lake, instance).success
    done = archived(lake, instance, by_itself=False)
    [failed] = [event for event in done.all_events if event.is_step_failure]
    assert "use lakehouse archive run bronze/days --anyway" in str(failed.step_failure_data)
    done = archived(lake, instance, by_itself=False, only="expire")
    [failed] = [event for event in done.all_events if event.is_step_failure]
    assert "use lakehouse archive expire bronze/days --anyway" in str(failed.step_failure_data)
