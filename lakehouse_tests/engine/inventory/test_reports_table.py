"""The inventory table: the reports of all formats are a listing to the row, a day is there once, and a refused report changes nothing."""

import os
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory import reports_table
from lakehouse.engine.inventory import scan as scan_module
from lakehouse.engine.inventory.reconcile_lake import fresh_report, known_report
from lakehouse.engine.inventory.reports_table import InventoryOutcome, inventory_table, load_report
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import rows_of, version_of
from lakehouse_tests.engine.reports import row_of, write_report
from lakehouse_tests.kills import killed_at
from lakehouse_tests.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW, HOUR, DAY = now_ms(), 3_600_000, 86_400_000
KEY = inventory_table("local")
COLUMNS = tuple(each.name for each in fields(StoredObject))
ODD = [
    "d=a b/x",
    "d=100%/x",
    "d=a%2Fb/x",
    "d=ä€😀/x",
    "d=a+b/x",
    "d=a%20b/x",
    "d=#?&=/x",
    "d='\"/,x",
]


def day_of(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()


def load(lake: Lake, spark: "SparkSession") -> InventoryOutcome:
    return load_report(
        lake, known_report(lake, now_ms=NOW), [], spark=lambda: spark, now_ms=NOW, owner="a test"
    )


def rows(listing: list[StoredObject], owner: str, ms: int, report: str) -> list[tuple[Any, ...]]:
    """What the table must hold of these objects, of which those below `owner` are its."""
    plain = [
        (
            *(getattr(each, name) for name in COLUMNS),
            owner if each.key.startswith(f"{owner}/") else None,
            report,
            day_of(ms),
        )
        for each in listing
    ]
    return sorted(plain, key=str)


def held(spark: "SparkSession", lake: Lake) -> list[tuple[Any, ...]]:
    return rows_of(spark, lake, KEY, *COLUMNS, "lake_table", "report", "report_day")


def test_csv_orc_and_parquet_reports_give_the_listing_to_the_row_and_a_day_is_there_once(
    lake: Lake, spark: "SparkSession"
) -> None:
    LogBuilder(lake.store, "bronze/t").create().append([("a", 5)]).store_data()
    for name in ODD:
        lake.store.put(f"bronze/t/{name}", name.encode())
        lake.store.put(f"bronze/tt/{name}", name.encode())
    for file in lake.store.list(""):
        os.utime(Path(lake.settings.root) / file.name, ns=(0, (NOW - 5 * DAY) * 1_000_000))
    listing = list(lake.store.walk(""))
    expected: list[tuple[Any, ...]] = []
    created_ms = 0
    for days, file_format in ((3, "CSV"), (2, "ORC"), (1, "Parquet")):
        created_ms = NOW - days * DAY
        manifest = write_report(
            lake.store,
            [row_of(each) for each in listing],
            created_ms=created_ms,
            file_format=file_format,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan_module, "FILE_ROWS", 5)
            outcome = load(lake, spark)
        expected += rows(listing, "bronze/t", created_ms, "/".join(manifest.split("/")[3:5]))
        assert (outcome.newly_loaded, outcome.row_count, outcome.load.object_count) == (
            len(listing),
        ) * 3
        assert (outcome.before is None) == (file_format == "CSV")
    assert held(spark, lake) == sorted(expected, key=str)
    assert [file.name for file in lake.store.list("_lakehouse/inventory/_loading")] == []

    version = version_of(lake, KEY)
    assert load(lake, spark).newly_loaded == 0
    assert version_of(lake, KEY) == version

    manifest = write_report(
        lake.store,
        [row_of(listing[0])],
        created_ms=created_ms,
        file_format="CSV",
        files=1,
        configuration="weekly",
    )
    assert load(lake, spark).newly_loaded == 1
    again = rows(listing[:1], "bronze/t", created_ms, "/".join(manifest.split("/")[3:5]))
    assert held(spark, lake) == sorted(
        [row for row in expected if row[-1] != day_of(created_ms)] + again, key=str
    )


def test_every_column_comes_through_and_a_refused_report_changes_nothing(
    lake: Lake, spark: "SparkSession"
) -> None:
    objects = [
        StoredObject(
            bucket="local",
            key="a/x",
            size_bytes=0 if gone else 7,
            modified_ms=NOW - DAY,
            is_latest=gone,
            is_delete_marker=gone,
            version_id=None if gone else "v1",
            storage_class="GLACIER",
            archive_tier="ARCHIVE",
            encryption="SSE-S3",
            multipart=True,
            checksum_algorithm="SHA256",
            owner="me",
        )
        for gone in (True, False)
    ]
    write_report(
        lake.store,
        [row_of(each, versions=True) for each in objects],
        created_ms=NOW - 2 * HOUR,
        file_format="ORC",
    )
    outcome = load(lake, spark)
    assert held(spark, lake) == rows(objects, "-", NOW - 2 * HOUR, outcome.report.name)
    before = version_of(lake, KEY)

    write_report(
        lake.store,
        [row_of(objects[1]), row_of(objects[1]) | {"bucket": "another"}],
        created_ms=NOW,
        file_format="CSV",
        files=2,
    )
    with pytest.raises(Refused, match="rows of bucket 'another'"):
        load(lake, spark)
    assert version_of(lake, KEY) == before
    assert lake.store.list("_lakehouse/locks") == []


def test_our_own_scan_is_loaded_and_its_own_leftovers_are_cleared(
    lake: Lake, spark: "SparkSession"
) -> None:
    lake.store.put("landing/x", b"1")
    lake.store.put("_lakehouse/inventory/_loading/local/left.parquet", b"no parquet at all")
    listing = list(lake.store.walk(""))
    report = fresh_report(lake, now_ms=NOW)
    assert fresh_report(lake, now_ms=NOW + HOUR // 2).name == report.name
    outcome = load(lake, spark)
    assert [row[1] for row in held(spark, lake)] == sorted(each.key for each in listing)
    assert (outcome.report.name, outcome.newly_loaded) == (report.name, 2)
    assert fresh_report(lake, now_ms=NOW + 2 * HOUR).name > report.name


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_load_that_dies_is_made_good_by_the_next(
    lake: Lake, spark: "SparkSession", when: str
) -> None:
    lake.store.put("landing/x", b"1")
    fresh_report(lake, now_ms=NOW)
    for _ in range(1 if when == "after" else 2):
        with killed_at(reports_table, "_overwrite", when):
            load(lake, spark)
    assert (
        len([*lake.store.list("_lakehouse/inventory/_loading")]) == 1
    )  # what the first death left is gone
    outcome = load(lake, spark)
    assert (outcome.newly_loaded, outcome.row_count) == (0 if when == "after" else 1, 1)
    assert [row[1] for row in held(spark, lake)] == ["landing/x"]
