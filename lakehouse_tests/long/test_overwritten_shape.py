"""An overwritten table takes the shape of its declaration."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse import Append, Compaction, LiquidClustering, Overwrite, Table
from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import facts_of, land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from lakehouse_tests.land.test_schema_changes import PREFIX, SHOPS


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
    assert "total is declared as string, but is decimal(24,2) in the table" in outcome.sentence
    assert rows_in(lake, other.key, "id", "total") == [(1, "5"), (2, "6")]
    # Delta ends the clustering with each overwrite.
    assert facts_of(lake, other.key).snapshot.clustering_columns == ("id",)
