"""Verification of compactions whose files cannot be read at first, or no more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.base.errors import Broken
from lakehouse.compact import run, verify
from lakehouse.compact.run import compact
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse_tests.support.example_lake import events, facts_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from lakehouse_tests.compact.test_verify import (
    EVERY_ROW,
    ROWS,
    _interrupted,
    _rewriting,
    _three_files,
)


def test_a_compaction_whose_files_could_not_be_read_once_stays(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_files(lake)
    real, asked = verify.content_sums, list[int]()

    def damaged_at_first(
        spark: "SparkSession",
        snapshot: Snapshot,
        sides: Sequence[verify.Side],
    ) -> Any:
        asked.append(len(sides))
        name = f"{events.key}/{sides[-1].files[0].path}"
        kept = lake.store.read(name)
        if len(asked) == 1:
            lake.store.put(name, b"no Parquet")
        try:
            return real(spark, snapshot, sides)
        finally:
            lake.store.put(name, kept)

    monkeypatch.setattr(run, "run_statement", _rewriting(ROWS))
    monkeypatch.setattr(verify, "content_sums", damaged_at_first)
    assert (compact(lake, spark, EVERY_ROW).rows_verified, version_of(lake, events.key)) == (30, 3)
    assert asked == [2, 1, 1]


def test_a_commit_that_can_be_verified_no_more_is_told_once_and_one_that_was_never_made_not_at_all(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    _three_files(lake)
    monkeypatch.setattr(run, "run_statement", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(lake, spark, EVERY_ROW)
    monkeypatch.setattr(run, "run_statement", _rewriting(ROWS))
    monkeypatch.setattr(run, "verify", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(lake, spark, EVERY_ROW)
    monkeypatch.undo()
    facts = facts_of(lake, events.key)
    assert facts.snapshot.version == 3
    lake.store.delete([f"{events.key}/{path}" for path in facts.history.commits[-1].removed_paths])
    with pytest.raises(
        Broken,
        match="version 3 ended before it compared the rows, and they can no longer be compared",
    ):
        compact(lake, spark, EVERY_ROW)
    assert (compact(lake, spark, EVERY_ROW).version_after, version_of(lake, events.key)) == (
        None,
        3,
    )
