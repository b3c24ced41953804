"""Values that were not sent, with marked rows; beside `lakehouse_tests.long.test_unsent_merge`."""

from typing import TYPE_CHECKING

from lakehouse import Merge
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.long.test_unsent_merge import UNSENT, event, table_of
from lakehouse_tests.support.example_lake import land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_marked_row_keeps_the_values_that_its_last_changes_did_not_send(
    lake: Lake, spark: "SparkSession"
) -> None:
    table = table_of(Merge(keys=("id",), deletes="soft"))
    first = [
        event("c", 10, 1, 1, "one"),
        event("c", 10, 2, 1, "two"),
        event("c", 10, 3, 1, "three"),
        event("d", 20, 3, 1, None),
    ]
    land(lake, "1.json", first, prefix=table.landing.prefix)
    write_table(lake, spark, table)
    second = [
        event("u", 20, 1, 2, UNSENT),
        event("u", 20, 2, 2, UNSENT),
        event("d", 30, 2, 2, None, data=None, tags=None),
        # The row was deleted, and the insert before this update is missing.
        event("u", 30, 3, 3, UNSENT),
    ]
    land(lake, "2.json", second, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 1
    assert rows_in(lake, table.key, "id", "n", "doc", "size", "_deleted")[:2] == [
        (1, 2, "one", 3, False),
        (2, 2, "two", 3, True),
    ]
    # A late change counts if it is newer than the one that the kept value is from; and one may be told again.
    third = [
        event("u", 5, 1, 7, "OLD"),
        event("u", 15, 1, 9, "ONE MORE"),
        event("u", 20, 1, 2, UNSENT),
    ]
    land(lake, "3.json", third, prefix=table.landing.prefix)
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert rows_in(lake, table.key, "id", "n", "doc")[0] == (1, 2, "ONE MORE")
