"""Rows that an archive refused are loaded under another declaration; an operation that is not applied refuses nothing."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse import Archive
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse_tests.engine.example import event, events, land, rows_in
from lakehouse_tests.engine.ingest.test_late_rows import REFUSING, archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_refused_rows_wait_for_another_declaration(lake: Lake, spark: "SparkSession") -> None:
    land(lake, "1.json", [event(1, 5, "a", day=1), event(2, 5, "a", day=20)])
    assert write_table(lake, spark, REFUSING).rows_written == 2
    archived(lake, 1, is_applied=False)
    land(lake, "2.json", [event(3, 5, "b", day=2)])
    assert write_table(lake, spark, REFUSING).rows_quarantined == 0
    lake.store.delete(["_lakehouse/archives/bronze/events/0000000001.json"])
    archived(lake, 1, is_applied=True)
    land(lake, "3.json", [event(4, 23, "c", day=10)])
    assert write_table(lake, spark, REFUSING).rows_quarantined == 1
    kept = replace(events, archive=Archive(late="keep"))
    session = TableSession(lake=lake, spark=spark, table=kept)
    assert retry(session, [], dry_run=False).lines == 1
    assert write_table(lake, spark, kept).rows_written == 1
    assert [id_ for (id_,) in rows_in(lake, events.key, "id")] == [1, 2, 3, 4]
