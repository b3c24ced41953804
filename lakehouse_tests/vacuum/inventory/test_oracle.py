"""The reconciliation held against delta-rs: what it would vacuum is what we call past and orphaned."""

import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.base.stored_objects import Part
from lakehouse.lake.lake import open_lake
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.support.reports import reconciled

GOING = (Part.TOMBSTONED_PAST, Part.ORPHANED_OLD, Part.CHANGE_DATA_PAST, Part.VECTORS_DEAD)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_another_implementation_would_vacuum_the_same(tmp_path: Path, checkpointed: bool) -> None:
    folder = tmp_path / "lake" / "bronze" / "t"
    properties = {
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
        "delta.enableChangeDataFeed": "true",
    }
    for number in range(3):
        rows = {
            "id": list(range(number * 10, number * 10 + 10)),
            "p": [f"a b%2F{row % 2}=+ä" for row in range(10)],
        }
        deltalake.write_deltalake(
            str(folder), pa.table(rows), partition_by=["p"], mode="append", configuration=properties
        )
    table = deltalake.DeltaTable(str(folder))
    table.optimize.compact()
    table.delete("id < 3")
    if checkpointed:
        table.create_checkpoint()
    (folder / "p=stray").mkdir()
    (folder / "p=stray" / "x.parquet").write_bytes(b"123")
    (folder / "_SUCCESS").touch()
    time.sleep(0.01)  # the retention of 0 seconds must be over by the millisecond
    lake = open_lake(
        parse_settings(
            {"LAKEHOUSE_ROOT": str(tmp_path / "lake"), "LAKEHOUSE_REPLAY": "off"}, base=tmp_path
        )
    )
    scanned = scan(lake, now_ms=now_ms()).inventory
    found = reconciled(lake, now_ms=now_ms())
    [ours] = found.tables
    going = [share for share in ours.shares if share.part in GOING]
    theirs = table.vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True
    )
    assert len(theirs) > 5 and sum(share.file_count for share in going) == len(theirs)
    live = [share for share in ours.shares if share.part is Part.LIVE]
    assert [share.file_count for share in live] == [len(table.file_uris())]
    assert (ours.missing, ours.resized) == ((), ())
    assert sum(share.size_bytes for share in going) == sum(
        (folder / name).stat().st_size for name in theirs
    )
    assert (found.file_count, found.size_bytes) == (scanned.object_count, scanned.size_bytes)
