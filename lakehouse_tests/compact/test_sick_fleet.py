"""A fleet with a sick table, a paused, a recommend-only and a looping one: each is left alone for its reason, the others are served."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.assets.keys import compaction_key, table_key
from lakehouse.assets.metadata import table_metadata
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings
from lakehouse.compact.assess import assess, hold_now
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import Pause
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.records import pause_table
from lakehouse.watch.check import health_check
from lakehouse_tests.support.dagster_events import skip_text, tick_of
from lakehouse_tests.support.sick_fleet import FLEET, advised, healthy, looped, paused, sick
from lakehouse_tests.support.terminal import Terminal

pytestmark = pytest.mark.spark

type_of_compaction = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A lake of the fleet."""
    return open_lake(replace(settings, tables="lakehouse_tests.support.sick_fleet"))


@pytest.fixture
def compacted(lake: Lake, instance: dg.DagsterInstance) -> type_of_compaction:
    """The compaction of a table: as the sensor starts it, or (`anyway`) as a person does who insists."""

    def run(table: Table, *, anyway: bool = False) -> dg.ExecuteInProcessResult:
        config = (
            {"ops": {f"compaction__{table.layer}__{table.name}": {"config": {"anyway": anyway}}}}
            if anyway
            else None
        )
        return dg.materialize(
            [compaction_asset(table, lake), health_check(table, lake)],
            selection=[compaction_key(table)],
            resources={"spark": spark_resource(lake.settings)},
            instance=instance,
            run_config=config,
            tags={} if anyway else {"dagster/sensor_name": "compaction_sensor"},
            raise_on_error=False,
        )

    return run


def append_two_files(lake: Lake, table: Table) -> None:
    for start in (0, 50):
        write_deltalake(
            lake.settings.table_uri(table.key),
            pa.table({"id": range(start, start + 50)}),
            mode="append",
        )


def held(lake: Lake) -> dict[str, str]:
    """Who is left alone, and why, as the lake itself tells it."""
    found = {table.key: hold_now(lake, table, lake.facts(table.key).history) for table in FLEET}
    return {key: off.reason.name for key, off in found.items() if off is not None}


@pytest.mark.long
def test_each_is_left_alone_for_its_reason_and_the_others_are_served(
    lake: Lake, instance: dg.DagsterInstance, compacted: type_of_compaction
) -> None:
    for table in FLEET:
        append_two_files(lake, table)
    assert held(lake) == {advised.key: "RECOMMEND_ONLY"}

    whole = spoil(lake, sick)
    breaker = dg.AssetCheckKey(table_key(sick), "breaker")
    for told in ("SUCCEEDED", "SUCCEEDED", "FAILED"):
        assert not compacted(sick).success
        [newest] = instance.event_log_storage.get_asset_check_execution_history(breaker, limit=1)
        assert newest.status.value == told
    pause_table(lake, Pause(table=paused.key, since_ms=now_ms(), why="a backfill"))
    for _ in range(
        4
    ):  # another hand: the first of them gathers the files, the others move the same bytes again
        DeltaTable(lake.settings.table_uri(looped.key)).optimize.z_order(["id"])
    append_two_files(lake, looped)
    reasons = {
        advised.key: "RECOMMEND_ONLY",
        sick.key: "BREAKER_OPEN",
        paused.key: "PAUSED",
        looped.key: "REWRITE_LOOP",
    }
    assert held(lake) == reasons
    check_the_terminal(lake, reasons)
    for table in FLEET:
        observe(lake, instance, table)
    [request] = tick(lake, instance).run_requests or []
    assert request.asset_selection == [compaction_key(healthy)]
    assert compacted(healthy).success
    check_the_sensors_text(skip_text(tick(lake, instance)))

    assert breaker_check(lake, instance, sick) == (False, "3 compactions in a row failed")
    assert breaker_check(lake, instance, looped) == (
        False,
        "the same bytes were rewritten 3 times in a row for nothing",
    )
    assert breaker_check(lake, instance, healthy) == (True, "the breaker is closed")

    refused = compacted(paused)
    assert not refused.success and version_of(lake, paused) == 1
    assert compacted(paused, anyway=True).success and version_of(lake, paused) == 2
    assert compacted(advised).success and version_of(lake, advised) == 2
    whole()
    assert compacted(sick).success and compacted(looped).success
    assert held(lake) == {advised.key: "RECOMMEND_ONLY", paused.key: "PAUSED"}


def spoil(lake: Lake, table: Table) -> Callable[[], int]:
    """One live file of the table is overwritten with garbage of the same length; what is returned puts it right again."""
    path = Path(lake.settings.root) / table.key / lake.facts(table.key).snapshot.files[0].path
    data = path.read_bytes()
    path.write_bytes(b"x" * len(data))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return lambda: path.write_bytes(data)


def observe(lake: Lake, instance: dg.DagsterInstance, table: Table) -> None:
    """The event that every write of ours leaves."""
    metadata = table_metadata(table, assess(lake, table, lake.facts(table.key)))
    instance.report_runless_asset_event(dg.AssetObservation(table_key(table), metadata=metadata))


def tick(lake: Lake, instance: dg.DagsterInstance) -> dg.SensorResult:
    return tick_of(compaction_sensor(FLEET, lake), instance)


def check_the_sensors_text(text: str) -> None:
    told = dict(line.split(": ", 1) for line in text.split(";\n"))
    assert told[healthy.key].startswith("0 mergeable files")
    assert told[sick.key].startswith("3 compactions in a row failed")
    assert told[paused.key].startswith("paused since")
    assert told[advised.key].startswith("its declaration says mode recommend")
    assert told[looped.key].startswith("the same bytes were rewritten 3 times in a row for nothing")


def check_the_terminal(lake: Lake, reasons: dict[str, str]) -> None:
    terminal = Terminal(lake.settings.home, **lake.settings.as_environ())
    shown = terminal.compactions()
    assert {key: shown[key]["reason"] for key in reasons} == reasons
    assert ": a backfill; " in shown["bronze/paused"]["sentence"]
    assert all(each["size_bytes"] for each in terminal.compactions(*reasons).values())


def breaker_check(lake: Lake, instance: dg.DagsterInstance, table: Table) -> tuple[bool, str]:
    """The check `breaker` as Dagster runs it: passed, and how its text begins."""
    only = dg.AssetSelection.checks(dg.AssetCheckKey(table_key(table), "breaker"))
    result = dg.materialize([health_check(table, lake)], selection=only, instance=instance)
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation.passed, re.split("[,:]", evaluation.description or "")[0]


def version_of(lake: Lake, table: Table) -> int:
    return lake.facts(table.key).snapshot.version
