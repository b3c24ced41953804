"""Rows for an archived partition go to quarantine, if the archive refuses them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lakehouse import Archive
from lakehouse.core.archive.records import APP_ID, ArchiveOperation
from lakehouse.engine.archive.records import record_operation
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import event, events, land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUTOFF = datetime(2013, 1, 11, tzinfo=UTC)
WHY = (
    "its partition is in the table's archive, whose cutoff is 2013-01-11 00:00 UTC. Use "
    'Archive(late="append"), then lakehouse quarantine retry bronze/events'
)
REFUSING = replace(events, archive=Archive(late="refuse"))


def archived(lake: Lake, number: int, *, is_applied: bool) -> None:
    """An operation on the archive whose cutoff is midnight of 11 January 2013."""
    facts = lake.facts(events.key)
    assert facts is not None
    operation = ArchiveOperation(
        number=number,
        kind="archive",
        table_id=facts.snapshot.table_id,
        version=facts.snapshot.version,
        created_ms=1,
        cutoff_ms=int(CUTOFF.timestamp() * 1_000),
        storage_class="STANDARD",
        partitions=(),
    )
    record_operation(lake.store, events.key, operation)
    if is_applied:
        uri = lake.settings.table_uri(events.key)
        nothing = DeltaTable(uri).to_pyarrow_table().slice(0, 0)
        applied = CommitProperties(app_transactions=[Transaction(APP_ID, number)])
        write_deltalake(uri, nothing, mode="append", commit_properties=applied)


def test_rows_of_an_archived_partition_are_refused_with_the_cutoff_and_the_way_out(
    lake: Lake, spark: "SparkSession"
) -> None:
    """A partition that ends at the cutoff is archived, and the next one is not; one that is in the table was restored."""
    land(lake, "1.json", [event(1, 5, "a", day=20), event(2, 5, "a", day=5)])
    assert write_table(lake, spark, REFUSING).rows_written == 2
    archived(lake, 1, is_applied=True)
    late = [event(4, 23, "c", day=10), event(5, 0, "c", day=11), event(6, 1, "c", day=5)]
    land(lake, "2.json", [*late, '{"id": 7, "state": "no time"}'])
    outcome = write_table(lake, spark, REFUSING)
    assert (outcome.rows_written, outcome.rows_quarantined) == (3, 1)
    assert rows_in(lake, "quarantine/bronze/events", "line", "reason") == [(1, WHY)]
    assert [id_ for (id_,) in rows_in(lake, events.key, "id")] == [1, 2, 5, 6, 7]
