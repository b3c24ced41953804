"""The first header of CSV files is pinned."""

from typing import TYPE_CHECKING

from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import columns_of, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from lakehouse_tests.engine.ingest.test_inferred import PRICES


def test_the_first_header_of_csv_is_pinned_by_the_first_file_that_is_loaded(
    lake: Lake, spark: "SparkSession"
) -> None:
    lake.store.put("landing/prices/1.csv", b"ID\n")
    write_table(lake, spark, PRICES)
    assert columns_of(lake, PRICES) == []
    lake.store.put("landing/prices/2.csv", b"id,note\n007,\n")
    assert write_table(lake, spark, PRICES).columns_added == ("id", "note")
    lake.store.put("landing/prices/3.csv", b"id,x,note\n8,9,z\n")
    lake.store.put("landing/prices/4.csv", b"ID,note\n1,z\n")
    outcome = write_table(lake, spark, PRICES)
    assert (outcome.columns_added, [aside.why for aside in outcome.set_aside]) == (
        ("x",),
        [
            (
                "its header is 'ID,note' and not id,note; it lacks id and has ID, which may be the same. Either land the file with the declared "
                "name, or declare ID, too, as a column or in Table(renamed=…)"
            )
        ],
    )
    assert rows_in(lake, PRICES.key, "id", "note", "x") == [("8", "z", "9")]
