"""The write path on S3, as moto speaks it: landed, merged, compacted, streams of changes."""

from dataclasses import replace
from random import Random

import pytest

from lakehouse import Append, Archive
from lakehouse.base.settings import Settings
from lakehouse.compact.run import compact
from lakehouse.lake.lake import TableSession, open_lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse.retain.run.archive import run_archive
from lakehouse.retain.run.read import archived_rows
from lakehouse.spark.session import connect
from lakehouse_tests.change_streams import differences, draw_stream, load_with_kills
from lakehouse_tests.evolve.test_rebuild import rebuilt, staged_files
from lakehouse_tests.land.spark import test_json as test_spark_json
from lakehouse_tests.land.spark import test_text as test_spark_text
from lakehouse_tests.land.spark.test_parquet import ROWS, as_parquet, declared
from lakehouse_tests.retain.example_days import DAYS
from lakehouse_tests.support.example_lake import event, events, land, rows_of, states, version_of


def test_landed_files_are_loaded_merged_and_compacted_once(on_s3: Settings) -> None:
    lake, spark = open_lake(on_s3), connect(on_s3)
    for number in range(2):
        land(
            lake,
            ("T05:30 100%+ü.json", "a [b]*.json")[number],
            [event(number, 5, "planned"), event(0, 6, "left"), "nope"],
        )
        write_table(lake, spark, events)
        write_table(lake, spark, states)
    versions = [version_of(lake, table.key) for table in (events, states)]
    assert [write_table(lake, spark, table).rows_written for table in (events, states)] == [0, 0]
    assert [version_of(lake, table.key) for table in (events, states)] == versions
    assert rows_of(spark, lake, states.key, "id", "state") == [(0, "left"), (1, "planned")]
    name = "landing/events/T05:30 100%+ü.json"
    assert rows_of(spark, lake, "quarantine/bronze/events", "source_file", "line")[0] == (name, 3)
    land(lake, "[05:30].json", [event(0, 7, "left")])
    # No name is a pattern to those who read it themselves.
    assert write_table(lake, spark, events).set_aside == ()
    outcome = compact(lake, spark, events)
    assert (
        outcome.entry.compaction.files_removed,
        outcome.entry.compaction.files_added,
        outcome.rows_verified,
    ) == (3, 1, 5)
    assert outcome.entry.compaction.bytes_removed == outcome.plan.bytes_removed
    assert not compact(lake, spark, events).plan.bins
    rows = rows_of(spark, lake, events.key, "id", "state")
    rebuilt(lake, spark, replace(events, write=Append()), "rows")
    rebuilt(lake, spark, states, "inputs")
    assert rows_of(spark, lake, events.key, "id", "state") == rows
    assert rows_of(spark, lake, states.key, "id", "state") == [(0, "left"), (1, "planned")]
    assert staged_files(lake) == []


def test_spark_reads_large_parquet_on_s3(on_s3: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    lake, spark = open_lake(on_s3), connect(on_s3)
    orders = declared("parquet")
    for name in ("T05:30 100%+ü.parquet", "a [b]*.parquet"):
        lake.store.put(f"landing/parquet/{name}", as_parquet(ROWS))
    outcome = write_table(lake, spark, orders)
    assert (outcome.files_read, outcome.rows_written, outcome.rows_quarantined) == (2, 10, 10)
    assert write_table(lake, spark, orders).files_read == 0
    files = rows_of(spark, lake, orders.key, "_source_file", "_source_line")
    assert files[0] == ("landing/parquet/T05:30 100%+ü.parquet", 1)
    assert files[-1] == ("landing/parquet/a [b]*.parquet", 9)


def test_spark_reads_large_texts_on_s3(on_s3: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    lake, spark = open_lake(on_s3), connect(on_s3)
    for module, format, content in (
        (
            test_spark_json,
            "json",
            "\n".join([*test_spark_json.GOOD, *test_spark_json.BAD]).encode(),
        ),
        (test_spark_text, "csv", test_spark_text.content_of(test_spark_text.LINES)),
    ):
        table = module.declared(f"large_{format}")
        for name in ("T05:30 100%+ü", "a [b]*"):
            lake.store.put(f"landing/large_{format}/{name}.{format}", content)
        outcome = write_table(lake, spark, table)
        assert outcome.files_read == 2 and outcome.set_aside == ()
        counts = (outcome.rows_written, outcome.rows_quarantined)
        of_json = 2 * len(test_spark_json.GOOD), 2 * len(test_spark_json.BAD)
        assert counts == {"json": of_json, "csv": (8, 20)}[format]
        assert write_table(lake, spark, table).files_read == 0
        files = {file for (file,) in rows_of(spark, lake, table.key, "_source_file")}
        assert files == {
            f"landing/large_{format}/{name}.{format}" for name in ("T05:30 100%+ü", "a [b]*")
        }


def test_old_partitions_are_copied_by_s3_itself_into_a_storage_class(on_s3: Settings) -> None:
    settings = replace(on_s3, root=f"{on_s3.root}/archived")
    lake, spark = open_lake(settings), connect(settings)
    into = Archive(older_than_days=3, clock="newest_row", storage_class="STANDARD_IA")
    table = replace(DAYS, archive=into)
    session = TableSession(lake=lake, spark=spark, table=table)
    uri = lake.settings.table_uri(DAYS.key)
    days = spark.range(1, 11).selectExpr("id", "date_add(DATE'2012-12-31', int(id)) AS day")
    writer = days.write.format("delta").partitionBy("day")
    writer.option("delta.enableDeletionVectors", "true").save(uri)
    before = lake.store.requests["CopyObject"]
    first = run_archive(lake, table, lambda: spark)
    assert first.version_after is not None and lake.store.requests["CopyObject"] - before == 6
    # From now on, files have deletion vectors: Spark writes their rows again, and S3 copies these.
    later = spark.range(11, 21).selectExpr("id", "date_add(DATE'2012-12-31', 20) AS day")
    spark.range(50, 52).selectExpr("id", "DATE'2013-01-08' AS day").coalesce(1).write.format(
        "delta"
    ).mode("append").save(uri)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 50")
    later.write.format("delta").mode("append").save(uri)
    run_archive(lake, table, lambda: spark)
    files = [file for file in lake.store.list("archive") if file.name.endswith(".parquet")]
    assert {file.storage_class for file in files} == {"STANDARD_IA"}
    facts = lake.facts(DAYS.key)
    assert facts is not None
    archived = archived_rows(session, facts)
    assert archived is not None
    assert sorted(row["id"] for row in archived.collect()) == [*range(1, 10), 51]
    present = {row["id"] for row in spark.read.format("delta").load(uri).collect()}
    assert present == {*range(10, 21)}


# Of two batches each, both with rows of a full load; the second has deletions, changed keys, and
# changes that are older than deletions in the first, or were told there; found by trying.
@pytest.mark.parametrize(
    ("seed", "source", "write"), [(389, "dms", "merge"), (89, "debezium", "merge")]
)
def test_a_stream_of_changes_with_kills_between_is_a_dictionary(
    on_s3: Settings, seed: int, source: str, write: str
) -> None:
    settings = replace(on_s3, root=f"{on_s3.root}/{source}")
    lake, stream = open_lake(settings), draw_stream(seed, source, write)
    stream.land(lake)
    load_with_kills(lake, connect(settings), stream, Random(seed))  # nothing secret
    assert differences(stream, lake) == []
