"""Poison files: older quarantines, and constraints of the table."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse import Append, Overwrite
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.reasons import Reason
from lakehouse.engine.ingest import batch_rows
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake, TableSession
from lakehouse_tests.engine.example import rows_in, version_of
from lakehouse_tests.engine.ingest.quarantine.test_unwritable_files import (
    HALVED,
    PARTS,
    SOURCE,
    part,
    put,
    quarantined,
)
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_quarantine_that_is_older_than_the_ledger_gets_the_files_of_each_batch(
    lake: Lake, spark: "SparkSession"
) -> None:
    """It knows the numbers of the batches that were deleted with the table; each of them names other files now."""
    halved = replace(PARTS, source=replace(SOURCE, derived=HALVED))
    put(lake, "a.json", part(1, 2))
    put(lake, "b.json", part(3, 3))
    lake.store.put(f"{SOURCE.prefix}x.json.gz", b"no gzip")
    write_table(lake, spark, halved)
    assert quarantined(lake) == [("b.json", None), ("x.json.gz", None)]
    lake.store.delete(
        [
            file.name
            for folder in (PARTS.key, "_lakehouse/ingest")
            for file in lake.store.list(folder)
        ]
    )
    put(lake, "c.json", part(4, 5), part(5, 2))
    write_table(lake, spark, halved)
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == (
        [(1,)],
        [("b.json", None), ("c.json", None), ("x.json.gz", None)],
    )
    lake.store.put(f"{SOURCE.prefix}y.json.gz", b"no gzip")
    with killed_at(batch_rows, "quarantine", "before"):
        write_table(lake, spark, halved)
    write_table(lake, spark, halved)
    assert quarantined(lake)[-1] == ("y.json.gz", None)
    assert write_table(lake, spark, halved).reason is Reason.NOTHING_LANDED


def test_a_constraint_of_the_table_sets_files_aside_and_none_where_every_file_or_row_fails(
    lake: Lake, spark: "SparkSession"
) -> None:
    put(lake, "1.json", part(1, 2))
    write_table(lake, spark, PARTS)
    DeltaTable(lake.settings.table_uri(PARTS.key)).alter.add_constraint({"small": "size < 9"})
    put(
        lake, "2.json", part(2, 9), part(3, 3)
    )  # alone in its batch, and one of its records can be written
    alone = write_table(lake, spark, PARTS)
    assert (alone.rows_written, [aside.name for aside in alone.set_aside]) == (0, ["2.json"])
    assert (
        "CHECK constraint small (size < 9) violated by row with values: - size : 9"
        in alone.set_aside[0].why
    )
    put(lake, "3.json", part(4, 10))
    put(lake, "4.json", part(5, 10))
    before = PlannedBatches(lake.store, PARTS.key, prefix=SOURCE.prefix).ledger()
    with pytest.raises(
        Broken,
        match=r"batch 3 \(2 files\) cannot be written, and neither can any file or record of it that was tried alone: .*CHECK",
    ):
        write_table(lake, spark, PARTS)
    after = PlannedBatches(lake.store, PARTS.key, prefix=SOURCE.prefix).ledger()
    assert (
        before.seen.keys() - after.seen.keys(),
        after.newest and after.newest.set_aside,
        version_of(lake, PARTS.key),
    ) == (set(), (), 1)
    assert quarantined(lake) == [("2.json", None)]
    DeltaTable(lake.settings.table_uri(PARTS.key)).alter.drop_constraint("small")
    with pytest.raises(Refused, match="batch 3 is unfinished"):
        retry(TableSession(lake=lake, spark=spark, table=PARTS), [], dry_run=False)
    assert write_table(lake, spark, PARTS).rows_written == 2
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == (
        [(1,), (4,), (5,)],
        [("2.json", None)],
    )


def test_a_text_that_is_too_long_for_a_partition_stops_no_table(
    lake: Lake, spark: "SparkSession"
) -> None:
    by_name = replace(
        PARTS,
        source=replace(SOURCE, schema="id BIGINT, name STRING"),
        write=Append(partition_by=("name",)),
    )
    put(lake, "1.json", {"id": 1, "name": "x" * 200})
    put(lake, "2.json", {"id": 2, "name": "x" * 300})
    [aside] = write_table(lake, spark, by_name).set_aside
    assert (
        aside.name,
        "perhaps because its value is too long: Mkdirs failed to create file:/" in aside.why,
    ) == ("2.json", True)
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == ([(1,)], [("2.json", None)])


def test_an_overwrite_keeps_its_rows_where_those_of_the_newest_file_cannot_be_written(
    lake: Lake, spark: "SparkSession"
) -> None:
    whole = replace(PARTS, write=Overwrite(), source=replace(SOURCE, derived=HALVED))
    put(lake, "1.json", part(1, 2))
    put(lake, "2.json", part(2, 2), part(3, 3), "nope")
    with killed_at(PlannedBatches, "replace", "after"):
        write_table(lake, spark, whole)
    outcome = write_table(lake, spark, whole)
    assert (rows_in(lake, PARTS.key, "id"), [aside.name for aside in outcome.set_aside]) == (
        [(1,)],
        ["2.json"],
    )
    assert quarantined(lake) == [("2.json", None)]
