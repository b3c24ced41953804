"""When rows past their time are deleted by themselves, and when they are not."""

from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from lakehouse import Landing, Ttl
from lakehouse.core.journal_records import Pause
from lakehouse.defs.keys import ttl_key
from lakehouse.defs.resources import spark_resource
from lakehouse.defs.ttl import ttl_asset
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse_tests.defs.example import orders
from lakehouse_tests.log_builder import LogBuilder

SOURCE = Landing(prefix="landing/orders/", format="json", schema="id STRING, at TIMESTAMP")
EXPIRING = replace(orders, source=SOURCE, ttl=Ttl(column="at", days=30))


def ran(
    lake: Lake, instance: dg.DagsterInstance, *, by_itself: bool = False
) -> dg.ExecuteInProcessResult:
    """A run of the table's TTL, in which no Spark session can be opened."""
    return dg.materialize(
        [ttl_asset(EXPIRING, lake)],
        instance=instance,
        resources={"spark": spark_resource(lake.settings)},
        tags={"dagster/from_automation_condition": "true"} if by_itself else {},
        raise_on_error=False,
    )


def write(lake: Lake, day: str) -> LogBuilder:
    statistics = {
        "numRecords": 1,
        "minValues": {"at": f"{day}T00:00:00.000Z"},
        "maxValues": {"at": f"{day}T00:00:00.000Z"},
        "nullCount": {"at": 0},
    }
    story = LogBuilder(lake.store, orders.key).create(columns={"id": "string", "at": "timestamp"})
    return story.append([("f", 100, statistics)])


def test_a_run_that_finds_nothing_says_so_and_opens_no_session(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert ran(lake, instance).success  # there is no table yet
    write(lake, "9000-01-01")
    done = ran(lake, instance)
    [told] = done.asset_materializations_for_node("ttl__bronze__orders")
    assert told.metadata["lakehouse/reason"].value == "NOTHING_PAST_THE_CUTOFF"
    document = told.metadata["lakehouse/ttl"].value
    assert isinstance(document, dict) and document["version_after"] is None


def test_a_log_without_its_first_commits_and_pointer_is_a_table(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    write(lake, "9000-01-01").checkpoint().forget_before(1)
    done = ran(lake, instance)
    assert len(done.asset_materializations_for_node("ttl__bronze__orders")) == 1


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_paused_table_keeps_its_rows_and_fails_only_a_run_that_a_person_asked_for(
    lake: Lake, instance: dg.DagsterInstance, by_itself: bool
) -> None:
    write(lake, "2020-01-01")
    Journal(lake.store).pause(Pause(table=orders.key, since_ms=0, why="an audit"))
    done = ran(lake, instance, by_itself=by_itself)
    assert done.success is by_itself
    assert done.asset_materializations_for_node("ttl__bronze__orders") == []


def test_it_runs_once_a_day(lake: Lake, instance: dg.DagsterInstance) -> None:
    defs = dg.Definitions(
        assets=[ttl_asset(EXPIRING, lake)], resources={"spark": spark_resource(lake.settings)}
    )
    asked, cursor = list[int](), None
    for hour in (3, 4, 5, 28, 29, 30):
        now = datetime.fromtimestamp(hour * 3_600 + 1_800_000_000 // 86_400 * 86_400 + 60, tz=UTC)
        seen = dg.evaluate_automation_conditions(defs, instance, cursor=cursor, evaluation_time=now)
        cursor = seen.cursor
        asked.append(seen.get_num_requested(ttl_key(EXPIRING)))
    assert asked == [0, 0, 1, 0, 1, 0]
