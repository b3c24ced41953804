"""Knobs: with one value the sensor or the vacuum holds back, with the next it does not."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.metadata import table_metadata
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.compact.assess import assess
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import record_operation
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.table_facts import plan
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support import faults
from lakehouse_tests.support.dagster_events import skip_text, tick_of
from lakehouse_tests.support.example_histories import failed
from lakehouse_tests.support.vacuums import table_of

KEY, FILES, HOUR_MS = "bronze/events", 3, 3_600_000


def table_with(**knobs: Any) -> Table:
    """The table as declared: nothing but these knobs makes it due, or holds it back."""
    quiet = {
        "min_small_files": 1_000,
        "max_small_file_age_hours": 0,
        "purge_deleted_rows_share": 0,
        "cooldown_minutes": 0,
    }
    source = Landing(prefix="landing/events/", format="json", schema="id BIGINT")
    return Table(
        key=KEY, source=source, write=Append(), compaction=Compaction(**{**quiet, **knobs})
    )


@pytest.fixture
def lake(dagster_lake: Lake) -> Lake:
    """A lake of one table of three small files, which are years old."""
    small = [(f"f{number}", 100, 10) for number in range(FILES)]
    LogBuilder(dagster_lake.store, KEY).create().append(small)
    return dagster_lake


def tick(lake: Lake, instance: dg.DagsterInstance, table: Table) -> dg.SensorResult:
    """The decision of the sensor about the table, which was just looked at."""
    metadata = table_metadata(table, assess(lake, table, lake.facts(table.key)))
    instance.report_runless_asset_event(dg.AssetObservation(table_key(table), metadata=metadata))
    return tick_of(compaction_sensor([table], lake), instance)


def check_asked_for(lake: Lake, instance: dg.DagsterInstance, table: Table) -> None:
    [request] = tick(lake, instance, table).run_requests or []
    assert request.asset_selection == [compaction_key(table)]


def check_left_alone(lake: Lake, instance: dg.DagsterInstance, why: str, table: Table) -> None:
    result = tick(lake, instance, table)
    assert not result.run_requests and why in skip_text(result)


def test_the_sensor_leaves_a_table_alone_by_the_knob_and_asks_for_it_by_the_knob(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    held, let = (table_with(max_small_file_age_hours=hours) for hours in (1e6, 5.0))
    check_left_alone(lake, instance, "3 mergeable files, 1000 needed", held)
    check_asked_for(lake, instance, let)


def test_the_breaker_holds_a_sick_table_for_its_hours_and_then_lets_a_try_through(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    table = table_with(min_small_files=FILES)
    for hours in (9, 8, 7, 2):
        if hours == 2:
            check_asked_for(lake, instance, table)
        failure = failed(now_ms() - hours * HOUR_MS, table=table.key, why="disk full")
        record_operation(lake, failure)
    check_left_alone(lake, instance, "4 compactions in a row failed", table)


@pytest.fixture
def aged(tmp_path: Path) -> Lake:
    """A lake with a table of which two files, of 33 bytes, are past their retention: one that its log removed, and one that no log has."""
    lake = open_lake(parse_settings({"LAKEHOUSE_REPLAY": "off"}, base=tmp_path))
    faults.story_of(lake)
    faults.age(lake)
    return lake


@pytest.mark.parametrize(("hours", "mode"), [(25, "INVENTORY"), (27, "FULL")])
def test_a_report_is_used_for_26_hours_and_then_storage_is_listed(
    aged: Lake, hours: int, mode: str
) -> None:
    faults.report(aged, created_ms=now_ms() - hours * HOUR_MS)
    table = table_of(faults.KEY)
    found = plan(LakeFacts(aged, [table]), table)
    assert (found.mode, faults.paths(found)) == (mode, faults.PAST)
    gone, _ = faults.carried_out(aged, found)
    assert gone == {*faults.PAST}
