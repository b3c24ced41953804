"""Reading a table with its archive, rewritten rows, and restores, with Spark."""

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse import Append, Archive, Table
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.materialize.run import write_table
from lakehouse.retain.run import read as read_module
from lakehouse.retain.run.archive import archive_key, read_state, run_archive
from lakehouse.retain.run.read import archived_rows, restore_plan, run_restore
from lakehouse_tests.kills import DyingStore, Killed
from lakehouse_tests.retain.example_days import (
    DAYS,
    KEY,
    ROWS,
    add_rows,
    all_rows,
    archive_rows,
    archived,
    table_rows,
)
from lakehouse_tests.support.example_lake import facts_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read_all(lake: Lake, spark: "SparkSession", *columns: str) -> list[tuple[object, ...]]:
    """The rows of the table and its archive, sorted."""
    facts = facts_of(lake, KEY)
    session = TableSession(lake=lake, spark=spark, table=DAYS)
    rows = read_module.table_at(spark, facts.snapshot)
    more = archived_rows(session, facts)
    both = rows if more is None else rows.unionByName(more)
    return sorted(map(tuple, both.select(*(columns or ("id",))).collect()), key=str)


@pytest.fixture
def uri(lake: Lake) -> str:
    return f"delta.`{lake.settings.table_uri(KEY)}`"


@pytest.mark.long
def test_rows_behind_deletion_vectors_are_purged_before_their_files_leave(
    lake: Lake, spark: "SparkSession", uri: str
) -> None:
    add_rows(lake, ROWS)
    spark.sql(f"ALTER TABLE {uri} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {uri} WHERE id = 10")
    outcome = run_archive(lake, DAYS, lambda: spark)
    assert outcome.plan.notes == () and outcome.plan.figures["rows"] == 1
    assert archive_rows(lake) == [(11, 1)]
    assert read_all(lake, spark) == [(id_,) for id_, _ in ROWS if id_ != 10]


@pytest.mark.long
def test_renamed_dropped_and_added_columns_never_bring_back_foreign_values(
    lake: Lake, spark: "SparkSession", uri: str
) -> None:
    spark.sql(
        f"CREATE TABLE {uri} (id BIGINT, a STRING, b STRING, day DATE) USING delta"
        " PARTITIONED BY (day) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    values = ", ".join(f"({n}, 'a{n}', 'b{n}', DATE '2013-01-0{n}')" for n in (1, 2, 3, 9))
    spark.sql(f"INSERT INTO {uri} VALUES {values}")
    run_archive(lake, DAYS, lambda: spark)
    assert [row[0] for row in read_all(lake, spark)] == [1, 2, 3, 9]
    spark.sql(f"ALTER TABLE {uri} RENAME COLUMN a TO renamed")
    spark.sql(f"ALTER TABLE {uri} DROP COLUMN b")
    spark.sql(f"ALTER TABLE {uri} ADD COLUMN b STRING")
    spark.sql(f"ALTER TABLE {uri} RENAME COLUMN day TO date_of")
    spark.sql(
        f"INSERT INTO {uri} (id, renamed, date_of, b) VALUES (4, 'a4', DATE '2013-01-08', 'new'),"
        " (20, 'a20', DATE '2013-01-20', 'new')"
    )
    run_archive(lake, DAYS, lambda: spark)
    added = [(each, f"a{each}", "new") for each in (4, 20)]
    before = [(each, f"a{each}", None) for each in (1, 2, 3, 9)]
    assert read_all(lake, spark, "id", "renamed", "b") == sorted([*before, *added], key=str)


PARTS = ("region", "day")
REGIONS = replace(
    DAYS,
    source=replace(DAYS.landing, schema="id BIGINT, region STRING, day DATE"),
    write=Append(partition_by=PARTS),
)


def overwrite(lake: Lake, rows: "DataFrame", *partition_by: str) -> None:
    """Another program replaces rows, columns and partitions."""
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy(*partition_by).save(lake.settings.table_uri(KEY))


@pytest.mark.long
def test_a_table_with_other_partitions_gets_its_rows_back_and_a_new_archive(
    lake: Lake, spark: "SparkSession", uri: str
) -> None:
    """The rest of the archive, once empty, follows the table: its partitions, and the type of id."""
    add_rows(lake, ROWS)
    archived(lake)
    rows = spark.sql(f"SELECT CAST(id AS STRING) AS id, 'r' AS region, day FROM {uri}")
    overwrite(lake, rows, *PARTS)
    with pytest.raises(Refused, match=r"archive of .* Use lakehouse restore bronze/days"):
        archived(lake, REGIONS)
    overwrite(lake, spark.sql(f"SELECT CAST(id AS BIGINT) AS id, region, day FROM {uri}"), *PARTS)
    with pytest.raises(Refused, match="partitioned by region, day, and its archive by day"):
        archived(lake, REGIONS)
    run_restore(TableSession(lake=lake, spark=spark, table=REGIONS))
    assert table_rows(lake) == ROWS
    overwrite(lake, spark.sql(f"SELECT CAST(id AS STRING) AS id, region, day FROM {uri}"), *PARTS)
    shorter = replace(REGIONS, archive=Archive(older_than_days=1))
    with_restored = archived(lake, REGIONS)
    assert with_restored.plan.notes == ()
    archived(lake, shorter)
    assert len(read_all(lake, spark)) == len(ROWS)


@pytest.mark.long
def test_a_column_that_another_program_dropped_and_added_again_is_refused(
    lake: Lake, spark: "SparkSession", uri: str
) -> None:
    """Without column mapping, files tell the two apart in no other way."""
    add_rows(lake, ROWS)
    archived(lake)
    overwrite(lake, spark.sql(f"SELECT day, 1 AS other FROM {uri}"), "day")
    archived(lake)
    spark.sql(f"ALTER TABLE {uri} ADD COLUMN id BIGINT")
    with pytest.raises(Refused, match="column id was dropped and added again"):
        archived(lake)
    assert read_all(lake, spark) == [(None,)] * len(ROWS)
    run_restore(TableSession(lake=lake, spark=spark, table=DAYS))
    archived(lake)
    assert read_all(lake, spark) == [(None,)] * len(ROWS)


@pytest.mark.long
def test_rows_computed_again_do_not_join_the_archive_after_their_partition_column_was_widened(
    lake: Lake, spark: "SparkSession", uri: str
) -> None:
    spark.sql(
        f"CREATE TABLE {uri} (id BIGINT, day DATE) USING delta PARTITIONED BY (day) TBLPROPERTIES"
        " ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    values = ", ".join(f"({id_}, DATE '2013-01-0{day}')" for id_, day in ROWS)
    spark.sql(f"INSERT INTO {uri} VALUES {values}")
    run_archive(lake, DAYS, lambda: spark)
    spark.sql(f"ALTER TABLE {uri} ALTER COLUMN day TYPE TIMESTAMP_NTZ")
    again = "SELECT 10L AS id, TIMESTAMP_NTZ '2013-01-01' AS day"
    spark.sql(f"MERGE INTO {uri} t USING ({again}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    outcome = run_archive(lake, DAYS, lambda: spark)
    [note] = outcome.plan.notes
    assert note.startswith("rows that a MERGE wrote to archived partitions stay in the table")
    run_archive(lake, DAYS, lambda: spark, replace=[{"day": "2013-01-01 00:00:00"}])
    assert [row[0] for row in read_all(lake, spark)] == [id_ for id_, _ in ROWS if id_ != 11]


@pytest.mark.long
def test_a_restore_brings_rows_back_while_they_may_stay(lake: Lake, spark: "SparkSession") -> None:
    add_rows(lake, ROWS)
    add_rows(lake, [(8, 8)])
    archived(lake)
    session = TableSession(lake=lake, spark=spark, table=DAYS)
    request = [{"day": "2013-01-02"}]
    [planned] = restore_plan(lake, DAYS, request).partitions
    assert planned.text == "day=2013-01-02"
    version = run_restore(session, request).version_after
    assert version is not None and version == version_of(lake, KEY)
    assert (20, 2) in table_rows(lake) and (20, 2) not in archive_rows(lake)
    assert all_rows(lake) == sorted([*ROWS, (8, 8)])
    outcome = archived(lake)
    assert outcome.version_after is None
    stay = "restored partitions stay in the table for 3 days: day=2013-01-02"
    assert outcome.plan.notes == (stay,)
    with pytest.raises(Refused, match="not partitioned by 'id'"):
        restore_plan(lake, DAYS, [{"id": "1"}])
    table = DeltaTable(lake.settings.table_uri(KEY))
    table.restore(version - 1)
    for act in (lambda: archived(lake), lambda: read_state(lake, KEY)):
        with pytest.raises(Broken, match=f"in neither. RESTORE the table to version {version}, or"):
            act()
    table.restore(version)
    assert all_rows(lake) == sorted([*ROWS, (8, 8)])
    assert archived(lake).plan.notes == (stay,)


def test_a_dead_restore_leaves_each_row_in_one_place(lake: Lake, spark: "SparkSession") -> None:
    add_rows(lake, ROWS)
    archived(lake)
    for when in ("before", "after"):
        dying = replace(lake, store=DyingStore(lake.store, 1, when))
        with pytest.raises(Killed):
            run_restore(TableSession(lake=dying, spark=spark, table=DAYS))
        assert all_rows(lake) == ROWS
    real = read_module.write_frame

    def taken_back_first(*arguments: object) -> None:
        archived(lake)
        real(*arguments)  # pyright: ignore[reportArgumentType]

    session = TableSession(lake=lake, spark=spark, table=DAYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_module, "hold", lambda *_, **__: nullcontext())
        patch.setattr(read_module, "write_frame", taken_back_first)
        with pytest.raises(Transient, match="another run took it back"):
            run_restore(session)
    assert (archive_rows(lake), table_rows(lake)) == (ROWS[:2], ROWS[2:])
    run_restore(session)
    assert (archive_rows(lake), table_rows(lake)) == ([], ROWS)


def test_a_missing_archived_file_stops_the_restore(lake: Lake, spark: "SparkSession") -> None:
    add_rows(lake, ROWS)
    archived(lake)
    [name] = [f.name for f in lake.store.list(archive_key(KEY)) if f.name.endswith(".parquet")]
    lake.store.delete([name])
    with pytest.raises((Broken, Transient)):
        run_restore(TableSession(lake=lake, spark=spark, table=DAYS))
    assert table_rows(lake) == ROWS[2:]


COPIES = Table(key="silver/copies", inputs=(DAYS,), transform=lambda days: days, write=Append())


@pytest.mark.long
def test_a_table_downstream_reads_archived_rows_once_and_restored_ones_not_again(
    lake: Lake, spark: "SparkSession"
) -> None:
    add_rows(lake, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    archived(lake)
    outcome = write_table(lake, spark, COPIES)
    assert outcome.explanation.sentence.endswith("; with the rows of its archive")
    add_rows(lake, [(6, 6)])
    archived(lake)
    run_restore(TableSession(lake=lake, spark=spark, table=DAYS))
    write_table(lake, spark, COPIES)
    copies = spark.read.format("delta").load(lake.settings.table_uri(COPIES.key))
    assert sorted(row["id"] for row in copies.collect()) == sorted([*(i for i, _ in ROWS), 6])
