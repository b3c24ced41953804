"""A scan or a load whose process is killed leaves nothing that is taken for a report or for rows; the next one makes it good."""

from typing import TYPE_CHECKING

import pytest

from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.reconcile_lake import fresh_report
from lakehouse.engine.inventory.reports_table import inventory_table, load_report
from lakehouse.engine.inventory.stored_reports import newest_report
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.clients import SCANNED
from lakehouse_tests.engine.example import rows_of
from lakehouse_tests.engine.test_kills import PROGRAM, type_of_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = inventory_table("local")
BEFORE_COMMIT, AFTER_COMMIT = len(SCANNED), len(SCANNED) + 1


@pytest.mark.parametrize("step", [*range(len(SCANNED)), BEFORE_COMMIT, AFTER_COMMIT])
def test_a_killed_scan_or_load_is_made_good_by_the_next(
    lake: Lake, spark: "SparkSession", new_client: type_of_client, step: int
) -> None:
    for name in ("landing/x", "landing/y"):
        lake.store.put(name, b"1")
    listing = sorted(each.key for each in lake.store.walk(""))
    client = new_client(PROGRAM, lake.settings, "load_and_die", str(step))
    assert client.wait(timeout=120) == -9
    scanned = newest_report(lake.store, now_ms=now_ms())
    assert (scanned is not None) == (step >= BEFORE_COMMIT)
    assert (lake.facts(KEY) is not None) == (step == AFTER_COMMIT)
    report = fresh_report(lake, now_ms=now_ms())
    assert scanned is None or report.name == scanned.name
    outcome = load_report(lake, report, [], spark=lambda: spark, now_ms=now_ms(), owner="a test")
    assert outcome.newly_loaded == (0 if step == AFTER_COMMIT else outcome.load.object_count)
    rows = rows_of(spark, lake, KEY, "key", "report")
    assert {row[1] for row in rows} == {report.name}
    assert [row[0] for row in rows if row[0] in listing] == listing and len(rows) == len(
        {row[0] for row in rows}
    )
