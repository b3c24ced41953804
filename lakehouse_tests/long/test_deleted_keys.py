"""A deleted key stays deleted, whatever arrives later."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse import Debezium, Merge
from lakehouse.cdc.deleted_keys import (
    REMEMBERED_AT,
    forget_replaced,
    remember,
    remembered_deletions,
)
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import landed_files
from lakehouse.land.plan import choose_files
from lakehouse.land.plan.batches import Batch
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from lakehouse_tests.cdc.test_read import KEY, PREFIX, _remembering, event, people


def test_a_deleted_key_stays_deleted_when_an_older_change_of_it_comes_batches_later(
    lake: Lake, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a batch takes over what the one before it remembered, unless that is too old."""
    from pyspark.sql import functions as F  # noqa: N812

    table = people(Debezium(), Merge(keys=("id",)))
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", 1)
    land(lake, "1.json", [event("d", 9, 1), event("d", 9, 2), event("c", 3, 5)], prefix=PREFIX)
    land(
        lake,
        "2.json",
        [{"op": "t", "source": {"lsn": 4}}, *(event("c", 5, id_) for id_ in (1, 2, 3, 4))],
        prefix=PREFIX,
    )
    # What is remembered of a table that is no more, and cannot be read.
    lake.store.put(f"_lakehouse/deleted_keys/{KEY}/0/_SUCCESS", b"")
    write_table(lake, spark, table)
    assert (rows_in(lake, KEY, "id"), _remembering(lake)) == ([(3,), (4,)], {"2"})
    kept = shutil.copytree(
        Path(lake.settings.root) / "_lakehouse/deleted_keys" / KEY, tmp_path / "kept"
    )
    # A first try of the second that was killed before its commit has left the same: what its own file deletes is not taken for older.
    second = tuple(file for file in landed_files(lake.store, table.source) if file.name == "2.json")
    session = TableSession(lake=lake, spark=spark, table=table)
    own = remembered_deletions(session, Batch(number=2, files=second, prefix=PREFIX))
    assert own is not None and sorted(row.id for row in own.collect()) == [1, 2]
    shutil.rmtree(Path(lake.settings.root) / "_lakehouse/deleted_keys" / KEY)
    shutil.copytree(kept, Path(lake.settings.root) / "_lakehouse/deleted_keys" / KEY)
    # The table is put back as it was after the first batch, and the second comes again: what it deleted is not forgotten.
    older = remembered_deletions(session, Batch(number=2, files=(), prefix=PREFIX))
    assert older is not None and _remembering(lake) == {"1"}
    forget_replaced(lake.store, KEY, last_loaded=0)
    assert _remembering(lake) == {"1"}
    older = older.where("id IS NOT NULL")
    newer = older.where("id = 1").withColumn("id", F.lit(7).cast("bigint")).drop(REMEMBERED_AT)
    # Once a deletion is forgotten, that is remembered: a row without a key says so.
    for hours, ids in [(1, [1, 2, 7]), (0, [7, None])]:
        forgetful = people(Debezium(lateness_hours=hours), Merge(keys=("id",)))
        remember(replace(session, table=forgetful), 3, newer, older)
        found = remembered_deletions(session, Batch(number=4, files=()))
        assert found is not None and sorted((row.id for row in found.collect()), key=str) == ids
