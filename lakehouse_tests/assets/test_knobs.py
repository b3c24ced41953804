"""A knob of a table: with one value the sensor leaves it alone, with the next it asks for its compaction."""

import dagster as dg

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.assets.keys import table_key
from lakehouse.assets.metadata import table_metadata
from lakehouse.compact.assess import assess
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.lake.lake import Lake
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import skip_text, tick_of

KEY = "bronze/events"


def tick(lake: Lake, instance: dg.DagsterInstance, *, max_age_hours: float) -> dg.SensorResult:
    """The decision of the sensor about the table, which was just looked at, and which only its age makes due."""
    knobs = Compaction(min_small_files=1_000, max_small_file_age_hours=max_age_hours)
    source = Landing(prefix="landing/events/", format="json", schema="id BIGINT")
    table = Table(key=KEY, source=source, write=Append(), compaction=knobs)
    metadata = table_metadata(table, assess(lake, table, lake.facts(KEY)))
    instance.report_runless_asset_event(dg.AssetObservation(table_key(table), metadata=metadata))
    return tick_of(compaction_sensor([table], lake), instance)


def test_the_sensor_leaves_a_table_alone_by_the_knob_and_asks_for_it_by_the_knob(
    dagster_lake: Lake, instance: dg.DagsterInstance
) -> None:
    small = [(f"f{number}", 100, 10) for number in range(3)]  # they are years old
    LogBuilder(dagster_lake.store, KEY).create().append(small)
    held = tick(dagster_lake, instance, max_age_hours=1e6)
    assert not held.run_requests and "3 mergeable files, 1000 needed" in skip_text(held)
    [request] = tick(dagster_lake, instance, max_age_hours=5.0).run_requests or []
    assert request.asset_selection == [dg.AssetKey(["compaction", *KEY.split("/")])]
