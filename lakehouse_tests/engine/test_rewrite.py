"""Every knob of what is merged into what changes what really happens, and each statement does what its plan said."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse.core.compaction import CompactionPlan
from lakehouse.core.layout import Layout
from lakehouse.core.outcome import CompactionOutcome
from lakehouse.core.policy import MIB, Compaction
from lakehouse.core.reason import Reason
from lakehouse.core.table import Table
from lakehouse.engine.compaction import compact, plan
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import events, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_backlog_is_worked_off_in_bounded_steps_each_as_planned(lake: Lake, spark: "SparkSession") -> None:
    for rows in (10, 20, 40, 60, 80, 300, 500, 700):
        append(spark, lake, f"SELECT id FROM range({rows})")
    table = declared(target_file_bytes=16_384, max_bytes_per_run=6_000)
    left, steps = planned(lake, declared(target_file_bytes=16_384)).files_removed, 0
    while (outcome := compact(lake, spark, table)).plan.bins:
        check_as_planned(lake, outcome)
        assert outcome.plan.files_left < left
        left, steps = outcome.plan.files_left, steps + 1
    assert steps >= 2 and left == 0
    assert layout_of(lake).file_count == 1


def test_a_bounded_run_takes_some_partitions_and_the_next_the_others(lake: Lake, spark: "SparkSession") -> None:
    for _ in range(2):
        append(spark, lake, "SELECT id, INT(id % 3) AS day FROM range(90)", by="day")
    table = declared(max_bytes_per_run=layout_of(lake).size_bytes // 2)
    outcomes = [compact(lake, spark, table) for _ in range(4)]
    for outcome in outcomes[:3]:
        check_as_planned(lake, outcome)
    assert [(outcome.files_removed, outcome.plan.files_left) for outcome in outcomes] == [(2, 4), (2, 2), (2, 0), (0, 0)]


def test_right_files_stay_under_a_larger_target_until_the_second_tier_takes_them_once(lake: Lake, spark: "SparkSession") -> None:
    for _ in range(16):
        append(spark, lake, "SELECT uuid() AS text FROM range(90)")
    small = 2 * max(file.size_bytes for file in layout_of(lake).files) + 200
    first = compact(lake, spark, declared(target_file_bytes=small))
    assert (first.files_removed, first.files_added) == (16, 8)
    right = paths_of(lake)
    for _ in range(2):
        append(spark, lake, "SELECT uuid() AS text FROM range(2)")
    second = compact(lake, spark, declared(target_file_bytes=4 * small))
    check_as_planned(lake, second)
    assert (second.files_removed, right < paths_of(lake)) == (2, True)
    third = compact(lake, spark, declared(target_file_bytes=8 * small))
    check_as_planned(lake, third)
    assert (third.plan.reason, third.files_removed, right & paths_of(lake)) == (Reason.SECOND_TIER, 9, set())
    assert compact(lake, spark, declared(target_file_bytes=8 * small)).version_after is None


def test_a_table_keeps_as_many_files_as_cores_scan_it(lake: Lake, spark: "SparkSession") -> None:
    for _ in range(6):
        append(spark, lake, "SELECT randstr(2000000, 1) AS text FROM range(1)")
    assert layout_of(lake).size_bytes > 3 * 4 * MIB // 2
    assert planned(lake, declared()).files_added == 1
    outcome = compact(lake, spark, declared(scan_cores=2))
    check_as_planned(lake, outcome)
    assert layout_of(lake).file_count == 2


def test_only_cold_partitions_are_compacted(lake: Lake, spark: "SparkSession") -> None:
    for day in (1, 1, 2, 2):
        append(spark, lake, f"SELECT id, {day} AS day FROM range(10)", by="day")
        time.sleep(0.5)  # the second partition is younger by more than what a plan takes
    written = sorted(file.modified_ms for file in layout_of(lake).files)
    between_hours = (time.time() * 1_000 - (written[1] + written[2]) / 2) / 3_600_000
    outcome = compact(lake, spark, declared(cold_hours=between_hours))
    check_as_planned(lake, outcome)
    assert outcome.plan.partitions == ((("day", "1"),),)
    assert compact(lake, spark, declared(cold_hours=1)).plan.reason is Reason.ALL_WARM


def declared(**knobs: Any) -> Table:
    """The table under these knobs."""
    return replace(events, compaction=Compaction(**knobs))


def planned(lake: Lake, table: Table) -> CompactionPlan:
    found = plan(lake, table)
    assert found is not None
    return found


def layout_of(lake: Lake) -> Layout:
    facts = lake.facts(events.key)
    assert facts is not None
    return facts.layout


def paths_of(lake: Lake) -> set[str]:
    return {file.path for file in layout_of(lake).files}


def append(spark: "SparkSession", lake: Lake, query: str, *, by: str | None = None) -> None:
    """One commit of one file, or of one for each partition."""
    writer = spark.sql(query).coalesce(1).write.format("delta").mode("append")
    (writer.partitionBy(by) if by else writer).save(lake.settings.table_uri(events.key))


def check_as_planned(lake: Lake, outcome: CompactionOutcome) -> None:
    """Actual is predicted, file by file, in the table's newest commit."""
    told = outcome.as_json()
    for figure in ("files_removed", "files_added", "bytes_removed"):
        assert told[figure] == told[f"actual_{figure}"] > 0
    facts = lake.facts(events.key)
    assert facts is not None and outcome.version_after == version_of(lake, events.key)
    assert {path for bin_ in told["bins"] for path in bin_} == set(facts.history.commits[-1].removed_paths)
