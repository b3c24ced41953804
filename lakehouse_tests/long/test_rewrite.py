"""Every knob of what is merged into what changes what really happens, and each statement does what its plan said."""

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.compact.run import compact, plan
from lakehouse.declare.policies import Compaction, LiquidClustering, ZOrder
from lakehouse.declare.table import Append, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse_tests.support.example_lake import events, facts_of


def test_deleted_rows_are_purged_once_file_by_file(lake: Lake, spark: SparkSession) -> None:
    append(spark, lake, "SELECT id, INT(id % 2) AS day FROM range(0, 300, 1, 3)", by="day", files=3)
    uri = lake.settings.table_uri(events.key)
    spark.sql(
        f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE day = 1 AND id % 100 < 60 OR id = 2")
    table = declared(target_file_bytes=4_096, purge_deleted_rows_share=0.2)
    outcome = compact(lake, spark, table)
    check_as_planned(lake, outcome)
    assert (outcome.plan.reason, outcome.entry.compaction.files_removed) == (Reason.DELETED_ROWS, 4)
    assert outcome.rows_verified == 109
    assert {file.deletion_vector for file in facts_of(lake, events.key).snapshot.files} == {None}
    assert planned(lake, table).as_json()["statement"] == "packing"


def test_rows_are_laid_out_along_columns_once_until_enough_is_new(
    lake: Lake, spark: SparkSession
) -> None:
    append(
        spark,
        lake,
        "SELECT id, id % 7 AS other, INT(id % 2) AS day FROM range(0, 9000, 1, 2)",
        by="day",
        files=2,
    )
    table = arranged(ZOrder(columns=("other", "id")), by=("day",))
    outcome = compact(lake, spark, table)
    check_as_planned(lake, outcome, exact_added=False)
    assert (outcome.plan.reason, outcome.entry.compaction.files_removed) == (Reason.OUT_OF_ORDER, 4)
    assert outcome.rows_verified == 9_000
    assert 2 < outcome.entry.compaction.files_added <= outcome.plan.files_added
    assert planned(lake, table).reason is Reason.IN_ORDER
    append(
        spark, lake, "SELECT id, id AS other, 1 AS day FROM range(0, 5000, 1, 2)", by="day", files=2
    )
    again = planned(lake, table)
    assert again.partitions == ((("day", "1"),),)


def test_liquid_clustering_runs_once_until_enough_is_new(lake: Lake, spark: SparkSession) -> None:
    uri = lake.settings.table_uri(events.key)
    spark.sql(f"CREATE TABLE delta.`{uri}` (id BIGINT, other BIGINT) USING delta CLUSTER BY (id)")
    append(spark, lake, "SELECT id, id % 7 AS other FROM range(0, 6000, 1, 2)", files=2)
    table = arranged(LiquidClustering(columns=("id",)))
    outcome = compact(lake, spark, table)
    check_as_planned(lake, outcome, exact_added=False)
    assert (outcome.plan.reason, outcome.entry.compaction.files_removed) == (Reason.OUT_OF_ORDER, 2)
    assert outcome.rows_verified == 6_000
    assert planned(lake, table).reason is Reason.IN_ORDER
    append(spark, lake, "SELECT id, id AS other FROM range(0, 5000, 1, 2)", files=2)
    again = compact(lake, spark, table)
    check_as_planned(lake, again, exact_added=False)
    assert again.entry.compaction.files_removed == outcome.entry.compaction.files_added + 2


def declared(**knobs: Any) -> Table:
    """The table under these knobs."""
    return replace(events, compaction=Compaction(**knobs))


def arranged(data_layout: ZOrder | LiquidClustering, *, by: tuple[str, ...] = ()) -> Table:
    """A table of three columns under such a layout, in files of 8 KiB."""
    source = Landing(
        prefix="landing/events/", format="json", schema="id BIGINT, other BIGINT, day INT"
    )
    knobs = Compaction(target_file_bytes=8_192, data_layout=data_layout)
    return replace(events, source=source, write=Append(partition_by=by), compaction=knobs)


def planned(lake: Lake, table: Table) -> CompactionPlan:
    found = plan(lake, table)
    assert found is not None
    return found


def append(
    spark: SparkSession, lake: Lake, query: str, *, by: str | None = None, files: int = 1
) -> None:
    """One commit of so many files, in each partition."""
    writer = spark.sql(query).coalesce(files).write.format("delta").mode("append")
    (writer.partitionBy(by) if by else writer).save(lake.settings.table_uri(events.key))


def check_as_planned(lake: Lake, outcome: CompactionOutcome, *, exact_added: bool = True) -> None:
    """Actual is predicted, file by file, in the table's newest commit."""
    told = outcome.as_json()
    for figure in ("files_removed", "bytes_removed", *(["files_added"] if exact_added else [])):
        assert told[figure] == told[f"actual_{figure}"] > 0
    newest = facts_of(lake, events.key).history.commits[-1]
    assert outcome.version_after == newest.version
    assert {path for bin_ in told["bins"] for path in bin_} == set(newest.removed_paths)
