"""The daily runs of archives and TTLs in Dagster, and their commands."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from lakehouse import Archive, Landing, Ttl
from lakehouse.assets.keys import table_key, upkeep_key
from lakehouse.assets.resources import spark_resource
from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Pause
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table
from lakehouse.retain.asset import retention_asset
from lakehouse.store import DiskStore
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.retain.example_days import DAYS, add_rows, archive_rows, table_rows
from lakehouse_tests.support.example_assets import orders
from lakehouse_tests.support.shapes import documented
from lakehouse_tests.support.terminal import Terminal

TABLE = replace(DAYS, archive=Archive(older_than_days=3, keep_days=0, clock="newest_row"))
SOURCE = Landing(prefix="landing/orders/", format="json", schema="id STRING, at TIMESTAMP")
EXPIRING = replace(orders, source=SOURCE, ttl=Ttl(column="at", days=30))


def ran(
    lake: Lake, instance: dg.DagsterInstance, *, by_itself: bool = True, operation: str = "archive"
) -> dg.ExecuteInProcessResult:
    """A run of the asset, in which no Spark session is needed."""
    table = TABLE if operation == "archive" else EXPIRING
    return dg.materialize(
        [retention_asset(operation, table, lake)],
        instance=instance,
        resources={"spark": spark_resource(lake.settings)},
        tags={"dagster/from_automation_condition": "true"} if by_itself else {},
        raise_on_error=False,
    )


def metadata_of(done: dg.ExecuteInProcessResult, node: str) -> Any:
    [event] = done.asset_materializations_for_node(node)
    return event.metadata


def test_old_days_move_and_then_expire(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert ran(lake, instance).success  # there is no table yet
    add_rows(lake, [(1, 1), (2, 2), (3, 3), (9, 9)])
    metadata = metadata_of(ran(lake, instance), "archive__bronze__days")
    document = metadata["lakehouse/archive"].value
    assert document["rows"] == 2 and document["version_after"] == 1
    assert set(document) == set(documented()["archive"])
    assert (table_rows(lake), archive_rows(lake)) == ([(3, 3), (9, 9)], [(1, 1), (2, 2)])
    assert len(instance.fetch_observations(table_key(TABLE), limit=10).records) == 1
    assert not instance.fetch_materializations(table_key(TABLE), limit=1).records
    metadata = metadata_of(ran(lake, instance), "archive__bronze__days")
    assert metadata["lakehouse/archive"].value["expired_rows"] == 2
    assert archive_rows(lake) == [] and table_rows(lake) == [(3, 3), (9, 9)]


@pytest.mark.parametrize("operation", ["archive", "ttl"])
def test_a_paused_table_is_left_alone_and_fails_only_a_run_that_a_person_asked_for(
    lake: Lake, instance: dg.DagsterInstance, operation: str
) -> None:
    table = TABLE if operation == "archive" else EXPIRING
    columns = {"id": "string", "at": "timestamp", "day": "date"}
    LogBuilder(lake.store, table.key).create(columns=columns, partition_by=["day"])
    pause_table(lake, Pause(table=table.key, since_ms=now_ms(), why="a backfill"))
    assert ran(lake, instance, operation=operation).success
    done = ran(lake, instance, by_itself=False, operation=operation)
    [failed] = [event for event in done.all_events if event.is_step_failure]
    assert f"use: lakehouse {operation} {table.key} --anyway" in str(failed.step_failure_data)


def test_they_run_once_a_day_whatever_happens(lake: Lake, instance: dg.DagsterInstance) -> None:
    assets = [retention_asset("archive", TABLE, lake), retention_asset("ttl", EXPIRING, lake)]
    resources = {"spark": spark_resource(lake.settings)}
    defs = dg.Definitions([*assets, dg.AssetSpec(table_key(TABLE))], resources=resources)
    cursor, requested = None, list[tuple[int, int]]()
    for hour, minute in ((3, 59), (4, 1), (4, 31), (9, 0)):
        instance.report_runless_asset_event(dg.AssetMaterialization(table_key(TABLE)))
        time = datetime(2026, 1, 1, hour, minute, tzinfo=UTC)
        more: Any = {"cursor": cursor, "evaluation_time": time}
        seen = dg.evaluate_automation_conditions(defs, instance, **more)
        cursor = seen.cursor
        archive, ttl = upkeep_key("archive", TABLE), upkeep_key("ttl", EXPIRING)
        requested.append((seen.get_num_requested(archive), seen.get_num_requested(ttl)))
    assert requested == [(0, 0), (1, 0), (0, 1), (0, 0)]


TABLES = """
from lakehouse import Append, Archive, Landing, Table, Ttl

SOURCE = Landing(prefix="landing/x/", format="json", schema="at TIMESTAMP, day DATE, id BIGINT")
days = Table(
    key="bronze/days",
    source=SOURCE,
    write=Append(partition_by=("day",)),
    archive=Archive(older_than_days=3, clock="newest_row"),
)
sessions = Table(
    key="bronze/sessions",
    source=SOURCE,
    write=Append(),
    ttl=Ttl(column="at", days=30, clock="newest_row"),
)
forever = Table(key="bronze/forever", source=SOURCE, write=Append())
"""


@pytest.fixture
def declared(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    folder = terminal.home / "declared"
    folder.mkdir(parents=True)
    (folder / "retained_tables.py").write_text(TABLES)
    monkeypatch.syspath_prepend(str(folder))
    terminal.environ["LAKEHOUSE_TABLES"] = "retained_tables"
    return terminal


def test_an_archive_and_its_restore_are_planned_without_a_jvm(declared: Terminal) -> None:
    log = LogBuilder(DiskStore(declared.root), "bronze/days")
    log.create(columns={"id": "bigint", "day": "date"}, partition_by=["day"])
    for day in (1, 2, 3, 9):
        log.append([(f"day=2013-01-0{day}/f", 10, 3)])
    plan = declared.json("archive", "bronze/days", "--dry-run")
    assert [each["values"]["day"] for each in plan["partitions"]] == ["2013-01-01", "2013-01-02"]
    shown = declared.run("archive", "bronze/days", "--dry-run").stdout
    assert "2 partitions (6 rows in 2 files, 20 B) move to the archive" in shown
    nothing = declared.json("restore", "bronze/days", "--dry-run")
    assert nothing["sentence"].startswith("nothing to restore")


def test_a_ttl_is_planned_from_the_log(declared: Terminal) -> None:
    log = LogBuilder(DiskStore(declared.root), "bronze/sessions")
    log.create(columns={"at": "timestamp", "d": "string"})

    def times(first: str, last: str, rows: int) -> dict[str, object]:
        low, high = ({"at": f"2026-{day}T12:00:00.000Z"} for day in (first, last))
        counts = {"numRecords": rows, "nullCount": {"at": 0}}
        return {**counts, "minValues": low, "maxValues": high}

    log.append([("1", 100, times("01-01", "01-31", 10))])
    log.append([("2", 200, times("01-01", "03-10", 20))])
    plan = declared.json("ttl", "bronze/sessions", "--dry-run")
    assert (plan["reason"], plan["row_count"]) == ("PAST_THE_CUTOFF", None)
    shown = declared.run("ttl", "bronze/sessions", "--dry-run").stdout
    assert shown.startswith(
        "bronze/sessions: all rows of 1 file (100 B) and some rows of up to 1 file (200 B): from"
        " before 2026-02-08 12:00 UTC, 30 days before the newest row\n"
    )
