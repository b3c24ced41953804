"""The compaction sensor: what it reads, when it asks, and that it asks once."""

import os
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType, SensorResult

from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.resources import spark_resource
from lakehouse.assets.runs import machine_tag, recorded_process
from lakehouse.base.operation import Pause
from lakehouse.base.processes import identify
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor, read_cursor
from lakehouse.lake.state_tables import pause_table
from lakehouse_tests.support.dagster_events import (
    asked,
    begun,
    ended,
    materialized,
    observed,
    requested,
    skip_text,
    tick_of,
)
from lakehouse_tests.support.example_assets import (
    TABLES,
    example_lake,
    latest_orders,
    orders,
)

LAKE = example_lake(Path("/lake"))
pytestmark = pytest.mark.usefixtures("no_java")


def tick(instance: dg.DagsterInstance, *, cursor: str | None = None) -> SensorResult:
    return tick_of(compaction_sensor(TABLES, LAKE), instance, cursor=cursor)


def asks_once(instance: dg.DagsterInstance) -> dg.RunRequest:
    [request] = tick(instance).run_requests or []
    return request


def tries(*numbers: int) -> list[str]:
    """The run keys of these tries to compact version 7."""
    return [f"compaction/bronze/orders/version=7/attempt={number}" for number in numbers]


def test_it_says_of_every_table_why_it_waits(instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=3, mergeable_file_count=3)
    materialized(instance, latest_orders, version=1, mergeable_file_count=0)
    assert skip_text(tick(instance)) == (
        "bronze/orders: 3 mergeable files, 4 needed;\n"
        "silver/orders: 0 mergeable files, 2 needed;\n"
        "gold/totals: the table was never materialized or observed, so no file count is known; 2 mergeable files are needed"
    )


def test_it_asks_when_the_threshold_is_reached(instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    request = asks_once(instance)
    assert (request.asset_selection, [request.run_key]) == ([compaction_key(orders)], tries(1))
    assert request.tags == {
        machine_tag("state"): "compaction/bronze/orders/version=7",
        "lakehouse/table": "bronze/orders",
        "lakehouse/version": "7",
        "lakehouse/mergeable_files": "4",
    }


@pytest.mark.parametrize("cursor", ["", "odd", "[]", '{"other": [1]}'])
def test_a_wrong_cursor_costs_places_alone(cursor: str, instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    assert read_cursor(cursor) == {}
    assert len(tick(instance, cursor=cursor).run_requests or []) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_the_newer_of_two_events_is_believed(instance: dg.DagsterInstance, asks: bool) -> None:
    first, newer = (observed, materialized) if asks else (materialized, observed)
    first(instance, orders, version=7, mergeable_file_count=0 if asks else 40)
    newer(instance, orders, version=8, mergeable_file_count=40 if asks else 0)
    assert asked(tick(instance)) == ["compaction/bronze/orders"] * asks


def test_one_state_is_never_asked_for_twice(instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    run = requested(instance, asks_once(instance))
    assert asked(tick(instance)) == []
    ended(instance, run, DagsterEventType.RUN_SUCCESS)
    assert asked(tick(instance)) == []
    materialized(instance, orders, version=8, mergeable_file_count=5)
    assert asked(tick(instance)) == ["compaction/bronze/orders"]


def test_tries_of_another_state_do_not_count(instance: dg.DagsterInstance) -> None:
    """Of an older version, and of the same version of a table that was created again."""
    materialized(instance, orders, version=6, mergeable_file_count=4)
    keys_until_it_waits(instance, FAILS, FAILS, FAILS)
    materialized(instance, orders, version=7, mergeable_file_count=4)
    keys_until_it_waits(instance, FAILS, FAILS, FAILS)
    assert "failed 3 times" in skip_text(tick(instance))
    materialized(instance, orders, version=7, committed_ms=5, mergeable_file_count=4)
    key = "compaction/bronze/orders/version=7/committed_ms=5/attempt=1"
    assert asks_once(instance).run_key == key
    ended(instance, requested(instance, asks_once(instance)), DagsterEventType.RUN_SUCCESS)
    assert "was already requested" in skip_text(tick(instance))


def keys_until_it_waits(instance: dg.DagsterInstance, *hows: DagsterEventType) -> list[str | None]:
    """The run keys of the requests that follow each other while each run ends in its way."""
    keys: list[str | None] = []
    for how in hows:
        requests = tick(instance).run_requests
        if not requests:
            break
        keys.append(requests[0].run_key)
        run = requested(instance, requests[0])
        ended(instance, run, DagsterEventType.RUN_START)
        ended(instance, run, how)
    return keys


FAILS, IS_CANCELED = DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED


def test_a_canceled_run_is_a_try_like_one_that_failed(instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    assert keys_until_it_waits(instance, FAILS, IS_CANCELED, FAILS, FAILS) == tries(1, 2, 3)
    assert "failed 3 times" in skip_text(tick(instance))


@pytest.mark.parametrize("how", [FAILS, IS_CANCELED])
def test_a_run_that_a_person_executed_again_is_no_failure_unless_dagster_itself_repeated_it(
    instance: dg.DagsterInstance, how: DagsterEventType
) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    first = ended(instance, requested(instance, asks_once(instance)), FAILS)
    copied = {**first.tags, "dagster/parent_run_id": first.run_id}
    for _ in range(3):
        ended(instance, begun(instance, compaction_key(orders), tags=copied), how)
    assert [asks_once(instance).run_key] == tries(2)
    for _ in range(2):
        retried = {**copied, "dagster/retry_number": "1"}
        ended(instance, begun(instance, compaction_key(orders), tags=retried), FAILS)
    assert "failed 3 times" in skip_text(tick(instance))


def test_a_rerun_with_success_has_compacted_that_version(instance: dg.DagsterInstance) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    first = ended(instance, requested(instance, asks_once(instance)), FAILS)
    copied = {**first.tags, "dagster/parent_run_id": first.run_id}
    again = begun(instance, compaction_key(orders), tags=copied)
    ended(instance, again, DagsterEventType.RUN_SUCCESS)
    assert "was already requested" in skip_text(tick(instance))


def test_a_run_of_a_paused_table_is_refused_and_counts_as_a_try(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    lake = example_lake(tmp_path)
    pause_table(lake, Pause(table=orders.key, since_ms=0))
    for _ in range(3):
        request = asks_once(instance)
        run_key = {"dagster/run_key": request.run_key or ""}
        refused = dg.materialize(
            [compaction_asset(orders, lake)],
            instance=instance,
            resources={"spark": spark_resource(lake.settings)},
            tags=request.tags | {"dagster/sensor_name": "compaction_sensor"} | run_key,
            raise_on_error=False,
        )
        assert not refused.success
    # It tells its process before it asks for a session, which takes a while.
    assert recorded_process(instance.get_run_by_id(refused.run_id)) == identify(os.getpid())
    assert "failed 3 times" in skip_text(tick(instance))


@pytest.mark.parametrize("key", [table_key(orders), compaction_key(orders)])
def test_a_person_s_run_is_waited_for(instance: dg.DagsterInstance, key: dg.AssetKey) -> None:
    materialized(instance, orders, version=7, mergeable_file_count=4)
    run = begun(instance, key)
    waits = f"bronze/orders: a run of this table is under way ({run.run_id[:8]})"
    assert waits in skip_text(tick(instance))
