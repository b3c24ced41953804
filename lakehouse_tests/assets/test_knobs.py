"""Knobs on a real table: with one value the sensor, the compaction or the vacuum holds back, with the next it does not.

Spark makes the table once, and each case has a copy of it. A vacuum's knobs decide before Spark is asked, so their table is a log.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.metadata import table_metadata
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.compact.assess import assess
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import record_operation
from lakehouse.spark.session import connect
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.table_facts import plan
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


@pytest.fixture(scope="module")
def made(shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of one table: a file that lost a tenth of its rows to a deletion vector, and two smaller ones."""
    spark = connect(shared_settings)
    lake = open_lake(replace(shared_settings, root=str(tmp_path_factory.mktemp("knobs") / "lake")))
    uri = lake.settings.table_uri(KEY)
    large = (
        spark.range(0, 10_000, numPartitions=1)
        .write.format("delta")
        .option("delta.enableDeletionVectors", "true")
    )
    large.save(uri)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id % 10 = 0")
    spark.range(10_000, 10_020, numPartitions=2).write.format("delta").mode("append").save(uri)
    return Path(lake.settings.root)


@pytest.fixture
def lake(made: Path, settings: Settings) -> Lake:
    """A copy of it."""
    shutil.copytree(made, settings.root)
    return open_lake(settings)


def layout_of(lake: Lake) -> Snapshot:
    return lake.facts(KEY).snapshot


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


# The knob as it holds back, what the sensor then says, and the knob as it lets through.
KNOBS = {
    "max_small_file_age_hours": (
        lambda: {"max_small_file_age_hours": 5.0},
        "3 mergeable files, 1000 needed",
        lambda: {"max_small_file_age_hours": 1e-6},
    )
}


@pytest.mark.spark
@pytest.mark.parametrize(("held", "why", "let"), KNOBS.values(), ids=KNOBS)
def test_the_sensor_leaves_a_table_alone_by_the_knob_and_asks_for_it_by_the_knob(
    lake: Lake,
    instance: dg.DagsterInstance,
    held: Callable[[], dict[str, Any]],
    why: str,
    let: Callable[[], dict[str, Any]],
) -> None:
    check_left_alone(lake, instance, why, table_with(**held()))
    check_asked_for(lake, instance, table_with(**let()))


@pytest.mark.spark
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
