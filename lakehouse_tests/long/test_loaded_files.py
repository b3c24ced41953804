"""Loaded files leave the landing area beside Delta's own upkeep of the log that tells of them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest import retire as retiring
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import event, events, land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_files_of_a_table_that_is_loaded_seldom_go_though_the_load_makes_delta_forget_their_commit(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    assert events.source is not None
    source = replace(events.source, after_load="delete", keep_days=30)
    deleting = replace(events, source=source, properties={"delta.checkpointInterval": "1"})
    land(lake, "a.json", [event(1, 5, "new")])
    write_table(lake, spark, deleting)
    land(lake, "b.json", [event(2, 5, "new")])
    log = Path(lake.settings.root, events.key, "_delta_log")
    for path in log.iterdir():  # forty days pass
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 40 * 86_400))
    monkeypatch.setattr(retiring, "now_ms", lambda: now_ms() + 40 * DAY_MS)
    write_table(lake, spark, deleting)
    assert not (log / f"{0:020}.json").exists()  # Delta has cleaned up
    assert [file.name for file in lake.store.list("landing/events")] == ["landing/events/b.json"]
    assert rows_in(lake, events.key, "id") == [(1,), (2,)]
