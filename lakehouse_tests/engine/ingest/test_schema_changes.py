"""A declaration gains a column, or an overwritten table another shape: the table follows, and no row is lost on the way."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse import Append, Compaction, Landing, LiquidClustering, Merge, Overwrite, Table
from lakehouse.core.reasons import Reason
from lakehouse.engine.ingest import commit_rows, merge_rows
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import facts_of, land, rows_in
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "landing/shops/"
SHOPS = Table(
    key="bronze/shops",
    source=Landing(
        prefix=PREFIX, format="csv", schema="id BIGINT, name STRING, at INT", required=("id",)
    ),
    write=Append(),
)
WITH_CITY = replace(
    SHOPS,
    source=replace(
        SHOPS.landing,
        schema="id BIGINT, name STRING, city STRING COMMENT 'of the shop', at INT",
    ),
)


def names_of(lake: Lake, table: Table) -> list[str]:
    return [column.name for column in facts_of(lake, table.key).snapshot.columns]


def test_a_new_column_is_added_with_the_next_batch_and_files_that_lack_it_load_with_null(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Also where the process dies between the two commits. A table that selects all columns follows."""
    follower = Table(
        key="silver/shops",
        inputs=(SHOPS,),
        write=Merge(keys=("id",), order_by=("at",)),
        transform=lambda shops: shops,
    )
    land(lake, "1.csv", ["id,name,at", "1,a,5"], prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    write_table(lake, spark, follower)
    assert write_table(lake, spark, WITH_CITY).reason is Reason.NOTHING_LANDED
    land(lake, "2.csv", ["id,name,at", "2,b,5"], prefix=PREFIX)
    land(lake, "3.csv", ["id,name,city,at", "3,c,Rome,5"], prefix=PREFIX)
    with killed_at(commit_rows, "write_rows", "before"):
        write_table(lake, spark, WITH_CITY)
    facts = facts_of(lake, SHOPS.key)
    assert (facts.history.commits[-1].operation, facts.snapshot.row_count) == ("ADD COLUMNS", 1)
    assert write_table(lake, spark, follower).reason is Reason.INPUTS_UNCHANGED
    outcome = write_table(lake, spark, WITH_CITY)
    assert (outcome.rows_written, outcome.files_read) == (2, 2)
    city = facts_of(lake, SHOPS.key).snapshot.columns[2]
    assert (names_of(lake, SHOPS)[:4], city.comment) == (
        ["id", "name", "city", "at"],
        "of the shop",
    )
    rows = [(1, "a", None), (2, "b", None), (3, "c", "Rome")]
    assert rows_in(lake, SHOPS.key, "id", "name", "city") == rows
    with killed_at(merge_rows, "merge_rows", "before"):
        write_table(lake, spark, follower)
    assert write_table(lake, spark, follower).rows_written == 2
    assert rows_in(lake, follower.key, "id", "name", "city") == rows
    assert names_of(lake, follower) == names_of(lake, SHOPS)


def test_an_overwrite_takes_the_shape_of_its_declaration_in_one_commit(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Types, columns that go, and partitions; also where no input has changed. A commit without rows upstream is no news."""
    land(lake, "1.csv", ["id,name,at", "1,a,5", "2,b,6"], prefix=PREFIX)
    write_table(lake, spark, SHOPS)

    def gold(*columns: str, write: Append | Overwrite) -> Table:
        return Table(
            key="gold/totals",
            inputs=(SHOPS,),
            write=write,
            transform=lambda shops: shops.selectExpr(*columns),
        )

    narrow = ("id", "CAST(at AS DECIMAL(22,2)) AS total", "name")
    write_table(lake, spark, gold(*narrow, write=Append(partition_by=("name",))))
    wide = gold("id", "CAST(at AS DECIMAL(24,2)) AS total", write=Overwrite())
    outcome = write_table(lake, spark, wide)
    commit = facts_of(lake, wide.key).history.commits[-1]
    assert (commit.version, commit.operation, outcome.rows_written) == (1, "WRITE", 2)
    snapshot = facts_of(lake, wide.key).snapshot
    assert [(column.name, column.type) for column in snapshot.columns] == [
        ("id", "bigint"),
        ("total", "decimal(24,2)"),
    ]
    assert snapshot.partition_columns == ()
    assert write_table(lake, spark, wide).reason is Reason.INPUTS_UNCHANGED
    spark.sql(f"ALTER TABLE delta.`{facts_of(lake, SHOPS.key).snapshot.uri}` ADD COLUMNS (zip INT)")
    assert write_table(lake, spark, wide).reason is Reason.INPUTS_UNCHANGED
    layout = Compaction(data_layout=LiquidClustering(columns=("id",)))
    other = replace(gold("id", "CAST(at AS STRING) AS total", write=Overwrite()), compaction=layout)
    outcome = write_table(lake, spark, other)
    assert outcome.reason is Reason.DECLARATION_CHANGED
    assert "total is declared as string and decimal(24,2) in the table" in outcome.sentence
    assert rows_in(lake, other.key, "id", "total") == [(1, "5"), (2, "6")]
    # Delta ends the clustering with each overwrite.
    assert facts_of(lake, other.key).snapshot.clustering_columns == ("id",)
