"""Which names in archived files are refused, without a Spark session."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from lakehouse.core.errors import Refused
from lakehouse.engine.archive.stored_columns import StoredGroup, refuse_unmapped
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.store import DiskStore
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.example import events


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list, lambda type_: pa.list_(type_, 1)])
def test_a_renamed_field_is_refused_in_lists_of_every_kind(tmp_path: Path, list_of: Any) -> None:
    """deltalake stores the lists of Polars as large ones."""
    stored = pa.array([[{"old": "x"}]], type=list_of(pa.struct([("old", pa.string())])))
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"at": stored}), tmp_path / "lake" / "a.parquet")
    lake = Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))
    session = TableSession(lake=lake, spark=cast("Any", None), table=events)
    element = StructType([StructField("new", StringType())])
    schema = StructType([StructField("at", ArrayType(element))])
    group = StoredGroup(
        partition_columns=(), names={"at": ("at",)}, field_names={}, files=["a.parquet"]
    )
    with pytest.raises(Refused, match=r"'at\.element\.old', .* lacks 'at\.element\.new'"):
        refuse_unmapped(session, schema, group)


def test_columns_that_delta_adds_to_files_were_not_renamed(tmp_path: Path) -> None:
    """An UPDATE of a table with a change data feed leaves two of them in the table's own files."""
    names = ("id", "_change_type", "__is_cdc", "_row-id-col-1", "_row-commit-version-col-1")
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "lake" / "a.parquet")
    lake = Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))
    session = TableSession(lake=lake, spark=cast("Any", None), table=events)
    schema = StructType([StructField("id", StringType()), StructField("new", StringType())])
    columns = {"id": ("id",), "new": ("new",)}
    group = StoredGroup(partition_columns=(), names=columns, field_names={}, files=["a.parquet"])
    refuse_unmapped(session, schema, group)
