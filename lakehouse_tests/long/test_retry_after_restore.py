"""Retried lines after a table or its quarantine is restored from a copy."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.lake.lake import Lake
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse_tests.land.test_quarantine import (
    QUARANTINE,
    A,
    of,
    of_refused,
    places,
    refused,
    retried_files,
)
from lakehouse_tests.support.example_lake import events, rows_in

__all__ = ["of_refused", "refused"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_that_is_put_back_from_a_copy_gets_the_retried_lines_again(
    refused: Lake, spark: "SparkSession", tmp_path: Path
) -> None:
    lake = refused
    folder, copy = Path(lake.settings.root, events.key), tmp_path / "copy"
    shutil.copytree(folder, copy)
    retry(of(lake, spark), [A], dry_run=False)
    write_table(lake, spark, events)
    after = places(lake), rows_in(lake, events.key, "id")
    assert after[1] == [(1,), (2,), (3,)]

    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    write_table(lake, spark, events)
    assert (places(lake), rows_in(lake, events.key, "id")) == after


def test_a_quarantine_that_is_put_back_from_a_copy_does_not_double_a_row(
    refused: Lake, spark: "SparkSession", tmp_path: Path
) -> None:
    lake = refused
    folder, copy = Path(lake.settings.root, QUARANTINE), tmp_path / "copy"
    shutil.copytree(folder, copy)
    retry(of(lake, spark), [A], dry_run=False)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    write_table(lake, spark, events)
    [file] = retried_files(lake)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    retry(of(lake, spark), [A], dry_run=False)
    write_table(lake, spark, events)
    assert (retried_files(lake), rows_in(lake, events.key, "id")) == (
        [file],
        [(1,), (2,), (3,)],
    )
